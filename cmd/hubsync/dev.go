package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubsync/shared/console"
	"hubsync/shared/local"
	"hubsync/shared/ops"
	"hubsync/shared/routing"
)

func newDev() *cobra.Command {
	var o local.Options
	var routes, state, browser string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine until Ctrl-C",
		Long: `dev starts PostgreSQL, Redis, a QStash emulator, a HubSpot simulator and hubsync itself,
and prints the addresses, the variables that another program needs to work with them, and
a request to paste.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := readWorld(&o, routes, state); err != nil {
				return err
			}
			o.Logger = logger(true)
			return runDev(cmd.Context(), o, browser)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&routes, "routes", "", "portals, brands and products, JSON or YAML (default: the sample's)")
	flags.StringVar(&state, "hubspot", "", "what HubSpot holds before, JSON")
	flags.Float64Var(&o.RateScale, "rate-scale", 1, "multiply HubSpot's limits and our own")
	flags.StringVar(&o.APIAddr, "api-addr", "127.0.0.1:8787", "where the API listens")
	flags.StringVar(&o.QStashAddr, "qstash-addr", "127.0.0.1:8080", "where the QStash emulator listens")
	flags.StringVar(&o.HubSpotAddr, "hubspot-addr", "127.0.0.1:8788", "where the HubSpot simulator listens")
	flags.StringVar(&browser, "console-addr", consoleAddr, "where the console listens")
	flags.StringVar(&o.QStashURL, "qstash-url", "", "use this QStash instead of the emulator")
	flags.StringVar(&o.HubSpotURL, "hubspot-url", "", "use this HubSpot instead of the simulator")
	flags.StringVar(&o.DataDir, "data", "", "keep PostgreSQL's data in this folder between runs")
	return cmd
}

// readWorld fills routes and state from files, or from the sample.
func readWorld(o *local.Options, routes, state string) error {
	files := local.Sample()
	var err error
	if routes != "" {
		files.HubSpot = nil
		if files.Routes, err = os.ReadFile(routes); err != nil {
			return err
		}
	}
	if state != "" {
		if files.HubSpot, err = os.ReadFile(state); err != nil {
			return err
		}
	}
	o.HubSpotState = files.HubSpot
	o.Routes, err = routing.Parse(files.Routes)
	return err
}

func runDev(ctx context.Context, o local.Options, browser string) error {
	if err := loopbackOnly(browser); err != nil {
		return err
	}
	w, err := local.Start(ctx, o)
	if err != nil {
		return err
	}
	printWorld(os.Stdout, w)
	env := map[string]string{}
	for _, v := range w.Variables() {
		env[v[0]] = v[1]
	}
	operators := ops.Open(ctx, ops.Environment{Getenv: func(name string) string { return env[name] }, Logger: o.Logger})
	err = serveConsole(ctx, browser, console.Config{Serve: operators.Serve, By: caller(), What: "this machine", Clock: time.Now}, func(url string) {
		fmt.Printf("console  %s\n", url)
	})
	fmt.Fprintln(os.Stderr, "stopping …")
	return errors.Join(err, w.Stop())
}

// printWorld says how to use a running world.
func printWorld(out io.Writer, w *local.World) {
	var b strings.Builder
	fmt.Fprintf(&b, "\nAPI      %s\nQStash   %s\nHubSpot  %s\n\n", w.APIURL, w.QStashURL, w.HubSpotURL)
	for _, v := range w.Variables() {
		fmt.Fprintf(&b, "export %s='%s'\n", v[0], v[1])
	}
	fmt.Fprintf(&b, "\n%s\n\nCtrl-C ends it.\n", w.Curl())
	_, _ = io.WriteString(out, b.String()) // a terminal that is gone needs no addresses
}
