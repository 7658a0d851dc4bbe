package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func newDoctor(op *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look at every dependency, with its latency, and the fix for what is wrong",
		Long: `doctor looks at the configuration, the database and its schema, Redis, QStash and its keys, the relay,
the reconciler and every HubSpot account. It needs none of them to work. Exit code 3: something is
wrong.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := ask[ops.Diagnosis](cmd.Context(), op, "doctor", ops.None{})
			if err != nil {
				return err
			}
			err = op.show(cmd.OutOrStdout(), d, func(p *page) {
				for _, h := range d.Checks {
					sign := "✓"
					if !h.OK {
						sign = "✗"
					}
					p.wrapped("      ", fmt.Sprintf("%s %-14s %7.1f ms  %s", sign, h.Name, h.LatencyMs, h.Detail))
					if h.Fix != "" {
						p.wrapped("      ", "    → "+h.Fix)
					}
				}
			})
			return attention(err, d.OK)
		},
	}
}

func newKeys(op *operator) *cobra.Command {
	return group("keys", "QStash's signing keys", &cobra.Command{
		Use:   "check",
		Short: "Compare the signing keys that the worker verifies with and those that QStash signs with",
		Long:  "check compares the two pairs of keys and shows neither. Exit code 3: they differ.",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := ask[ops.KeyCheck](cmd.Context(), op, "keys.check", ops.None{})
			if err != nil {
				return err
			}
			fine := k.State == ops.KeysEqual
			err = op.show(cmd.OutOrStdout(), k, func(p *page) {
				sign := "✓"
				if !fine {
					sign = "✗"
				}
				p.line("%s %s", sign, k.Detail)
				if k.Fix != "" {
					p.wrapped("    ", "  → "+k.Fix)
				}
			})
			return attention(err, fine)
		},
	})
}
