package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/local"
	"hubsync/shared/qstash/qstashtest"
)

func newEmulate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "emulate",
		Short: "Run one of the emulators alone: QStash or HubSpot",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEmulateQStash(), newEmulateHubSpot())
	return cmd
}

func newEmulateQStash() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "qstash",
		Short: "Run the QStash emulator until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server := qstashtest.New(qstashtest.Options{})
			defer server.Close()
			return serve(cmd.Context(), addr, server.Handler(), func(url string) {
				fmt.Printf("export QSTASH_URL='%s'\nexport QSTASH_TOKEN='%s'\nexport QSTASH_CURRENT_SIGNING_KEY='%s'\nexport QSTASH_NEXT_SIGNING_KEY='%s'\n",
					url, qstashtest.DefaultToken, qstashtest.DefaultCurrentKey, qstashtest.DefaultNextKey)
			})
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8080", "where it listens")
	return cmd
}

// emulateFlags are the flags of hubsync emulate hubspot.
type emulateFlags struct {
	addr, state, routes, plan string
	rateScale                 float64
}

func newEmulateHubSpot() *cobra.Command {
	var f emulateFlags
	cmd := &cobra.Command{
		Use:   "hubspot",
		Short: "Run the HubSpot simulator until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, portals, err := f.simulator()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), f.addr, server.Handler(), func(url string) {
				fmt.Printf("export HUBSPOT_BASE_URL='%s'\n", url)
				for _, p := range portals {
					fmt.Printf("# portal %s: bearer token %s\n", p.ID, p.Token)
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.addr, "addr", "127.0.0.1:8788", "where it listens")
	flags.StringVar(&f.state, "state", "", "what it holds, JSON")
	flags.StringVar(&f.routes, "routes", "", "portals, brands and products that exist in it (default: the sample's)")
	flags.StringVar(&f.plan, "plan", "enterprise", "enterprise or professional (no batch preferences)")
	flags.Float64Var(&f.rateScale, "rate-scale", 1, "multiply the limits")
	return cmd
}

func (f emulateFlags) simulator() (*hubspottest.Server, []hubspottest.Portal, error) {
	if f.plan != "enterprise" && f.plan != "professional" {
		return nil, nil, &usageError{fmt.Errorf("--plan takes enterprise or professional, not %q", f.plan)}
	}
	var o local.Options
	if err := readWorld(&o, f.routes, f.state); err != nil {
		return nil, nil, err
	}
	for i := range o.Routes.Portals {
		o.Routes.Portals[i].Plan = f.plan
	}
	return simulate(o, f.rateScale)
}

func simulate(o local.Options, scale float64) (*hubspottest.Server, []hubspottest.Portal, error) {
	portals := local.Portals(o.Routes, scale)
	server := hubspottest.New(hubspottest.Options{Portals: portals})
	if o.HubSpotState != nil {
		if err := server.LoadState(local.Reader(o.HubSpotState)); err != nil {
			return nil, nil, err
		}
	}
	return server, portals, nil
}

const headerTimeout = 10 * time.Second

// serve listens on an address until the context ends.
func serve(ctx context.Context, addr string, h http.Handler, ready func(url string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; choose another address with --addr", addr, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	ready("http://" + listener.Addr().String())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		if err := server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, err)
		}
		return nil
	}
}
