package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"hubsync/shared/local"
)

// soakFlags are the flags of hubsync soak.
type soakFlags struct {
	local.SoakOptions
	faults    string
	rateScale float64
	verbose   bool
}

func newSoak() *cobra.Command {
	var f soakFlags
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run a load through the local world and judge HubSpot's ledger",
		Long: `soak starts the local world, sends random decisions through the HTTP intake, and checks
in the simulator's ledger that no subscription was written out of order, that all end
as decided, and that no window was over its limit. With --bulk it makes a backlog of
subscribes first and measures how fast it drains, and how long an opt-out takes
meanwhile. It removes everything it started.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSoak(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Decisions, "decisions", 100_000, "how many decisions to send")
	flags.IntVar(&f.Subscriptions, "subscriptions", 20_000, "on how many subscriptions")
	flags.IntVar(&f.Clients, "clients", 16, "how many clients send side by side")
	flags.BoolVar(&f.Bulk, "bulk", false, "make a backlog of subscribes first, and measure its drain")
	flags.BoolVar(&f.Audit, "audit", false, "audit everything in turns, and measure live decisions with and without it")
	flags.Uint64Var(&f.Seed, "seed", 1, "of the random decisions")
	flags.Float64Var(&f.rateScale, "rate-scale", 20, "multiply HubSpot's limits and our own")
	flags.StringVar(&f.faults, "faults", "", "misbehave: duplicate,shuffle,lose-replies=0.05")
	flags.BoolVar(&f.verbose, "verbose", false, "show hubsync's own log on standard error")
	return cmd
}

func runSoak(ctx context.Context, f soakFlags) error {
	if f.Decisions < 1 || f.Subscriptions < 1 || f.Clients < 1 || f.rateScale <= 0 || f.rateScale > 1000 {
		return &usageError{errors.New("--decisions, --subscriptions and --clients are at least 1, --rate-scale is above 0 and up to 1000")}
	}
	faults, err := parseFaults(f.faults)
	if err != nil {
		return &usageError{err}
	}
	f.World = local.Options{RateScale: f.rateScale, Faults: faults, Logger: logger(f.verbose)}
	var progress io.Writer
	if isTerminal(os.Stderr) && !f.verbose {
		progress = os.Stderr
	}
	report, world, err := local.Soak(ctx, f.SoakOptions, progress)
	if world != nil {
		err = errors.Join(err, world.Stop())
	}
	if err != nil {
		return err
	}
	if err := report.Write(os.Stdout, os.Stderr); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if !report.OK {
		return errSilent
	}
	return nil
}
