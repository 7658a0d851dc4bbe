package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"hubsync/shared/console"
	"hubsync/shared/ops"
)

// consoleAddr is where the console listens unless it is told otherwise.
const consoleAddr = "127.0.0.1:8789"

func newConsole(op *operator) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve health, search, timelines, replay and pause to a browser on this machine",
		Long: `console serves a page on the loopback, over the same verbs as this command: with --stack a browser
reaches production without credentials of a cloud. It shows no address. It runs until Ctrl-C.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := loopbackOnly(addr); err != nil {
				return err
			}
			what := "this machine"
			serve := op.here(cmd.Context()).Serve
			if op.stack != "" {
				what = "stack " + op.stack
				serve = func(ctx context.Context, r ops.Request) ops.Response {
					response, err := invoke(ctx, op.stack, r)
					if err != nil {
						return ops.Response{Error: err.Error()}
					}
					return response
				}
			}
			return serveConsole(cmd.Context(), addr, console.Config{Serve: serve, By: caller(), What: what, Clock: time.Now}, func(url string) {
				cmd.Printf("console  %s\nCtrl-C ends it.\n", url)
			})
		},
	}
	cmd.Flags().StringVar(&addr, "addr", consoleAddr, "where it listens; on the loopback only")
	return cmd
}

// loopbackOnly refuses an address that others could reach: who reaches the console, acts.
func loopbackOnly(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return &usageError{fmt.Errorf("--addr: %q is not an address such as %s", addr, consoleAddr)}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return &usageError{fmt.Errorf("--addr: %s is not on the loopback; reach it from elsewhere with 'ssh -L'", addr)}
	}
	return nil
}

// serveConsole serves a console until the context ends.
func serveConsole(ctx context.Context, addr string, cfg console.Config, ready func(url string)) error {
	c, err := console.New(cfg)
	if err != nil {
		return err
	}
	go c.Run(ctx)
	return serve(ctx, addr, c, ready)
}
