package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hubsync/shared/local"
	"hubsync/shared/routing"
)

// demoFlags are the flags of hubsync demo.
type demoFlags struct {
	routes, changes, hubspot, expected, report, faults string
	keep, verbose                                      bool
	rateScale                                          float64
}

func newDemo() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything on this machine, feed it requests, and compare HubSpot with what must be",
		Long: `demo starts PostgreSQL, Redis, a QStash emulator, a HubSpot simulator and hubsync
itself, sends requests through the real HTTP intake, waits until nothing is left, and
compares what HubSpot shows with what must be. It removes everything it started.

Without files it runs on a small sample. The exit code is 0 only if every answer, every
subscription, every property and every limit is as it must be.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.routes, "routes", "", "portals, brands and products, JSON or YAML")
	flags.StringVar(&f.changes, "changes", "", "requests to send, one JSON object a line, with the status each must get")
	flags.StringVar(&f.hubspot, "hubspot", "", "what HubSpot holds before, JSON")
	flags.StringVar(&f.expected, "expected", "", "what HubSpot must show in the end, one JSON object a line")
	flags.StringVar(&f.report, "report", "text", "text or json")
	flags.BoolVar(&f.keep, "keep", false, "leave the world running until Ctrl-C")
	flags.Float64Var(&f.rateScale, "rate-scale", 1, "multiply HubSpot's limits and our own, so that a demo need not wait")
	flags.StringVar(&f.faults, "faults", "", "misbehave: duplicate,shuffle,lose-replies=0.05 (QStash messages delivered twice, out of order; HubSpot answers lost after the write)")
	flags.BoolVar(&f.verbose, "verbose", false, "show hubsync's own log on standard error")
	return cmd
}

func runDemo(ctx context.Context, f demoFlags) error {
	in, err := f.input()
	if err != nil {
		return err
	}
	var progress io.Writer
	if isTerminal(os.Stderr) && !f.verbose {
		progress = os.Stderr
	}
	report, world, err := local.Demo(ctx, in, progress)
	if world != nil && (!f.keep || err != nil) {
		err = errors.Join(err, world.Stop())
	}
	if err != nil {
		return err
	}
	write := report.Text
	if f.report == "json" {
		write = report.JSON
	}
	if err := write(os.Stdout); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if f.keep {
		printWorld(os.Stderr, world)
		<-ctx.Done()
		if err := world.Stop(); err != nil {
			return err
		}
	}
	if !report.OK {
		return errSilent
	}
	return nil
}

// input reads the files of the flags; what is not given comes from the sample, but a
// given routes file brings its own world.
func (f demoFlags) input() (local.DemoInput, error) {
	if f.report != "text" && f.report != "json" {
		return local.DemoInput{}, &usageError{fmt.Errorf("--report takes text or json, not %q", f.report)}
	}
	if f.rateScale <= 0 || f.rateScale > 1000 {
		return local.DemoInput{}, &usageError{fmt.Errorf("--rate-scale takes a number above 0 and up to 1000, not %v", f.rateScale)}
	}
	if (f.routes == "") != (f.changes == "") || (f.routes == "" && (f.hubspot != "" || f.expected != "")) {
		return local.DemoInput{}, &usageError{errors.New("--routes and --changes go together; --hubspot and --expected need both")}
	}
	faults, err := parseFaults(f.faults)
	if err != nil {
		return local.DemoInput{}, &usageError{err}
	}
	sample := local.Sample()
	if f.routes != "" {
		sample = local.Files{}
		for _, file := range []struct {
			name string
			into *[]byte
		}{{f.routes, &sample.Routes}, {f.changes, &sample.Changes}, {f.hubspot, &sample.HubSpot}, {f.expected, &sample.Expected}} {
			if file.name == "" {
				continue
			}
			if *file.into, err = os.ReadFile(file.name); err != nil {
				return local.DemoInput{}, err
			}
		}
	}
	routes, err := routing.Parse(sample.Routes)
	if err != nil {
		return local.DemoInput{}, err
	}
	return local.DemoInput{
		World: local.Options{
			Routes: routes, HubSpotState: sample.HubSpot, RateScale: f.rateScale, Faults: faults, Logger: logger(f.verbose),
		},
		Changes: sample.Changes, Expected: sample.Expected,
	}, nil
}

func parseFaults(text string) (local.Faults, error) {
	var f local.Faults
	if text == "" {
		return f, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "duplicate":
			f.DuplicateMessages = true
		case "shuffle":
			f.ShuffleMessages = true
		case "lose-replies":
			share, err := strconv.ParseFloat(value, 64)
			if err != nil || share < 0 || share >= 1 {
				return f, fmt.Errorf("--faults: lose-replies takes a share from 0 to 1, not %q", value)
			}
			f.LostReplies = share
		default:
			return f, fmt.Errorf("--faults: %q is none of duplicate, shuffle, lose-replies=SHARE", name)
		}
	}
	return f, nil
}

func logger(verbose bool) *slog.Logger {
	if !verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
