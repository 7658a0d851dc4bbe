package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func newReplay(op *operator) *cobra.Command {
	var in ops.ReplayArgs
	var from, to string
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Give dead events another try under the active mapping",
		Long: `replay makes a new event for each dead one that is still its subscription's newest decision: mend the
mapping first. --dry-run counts. They become due at a rate, opt-outs first.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if in.From, err = readTime("--from", from); err != nil {
				return err
			}
			if in.To, err = readTime("--to", to); err != nil {
				return err
			}
			if !in.DryRun {
				count := in
				count.DryRun = true
				found, err := ask[ops.Replayed](cmd.Context(), op, "replay", count)
				if err != nil {
					return err
				}
				if err := confirm(cmd, confirmed, fmt.Sprintf("Replay %d events, over %.0f s?", found.Events, found.Seconds)); err != nil {
					return err
				}
			}
			replayed, err := ask[ops.Replayed](cmd.Context(), op, "replay", in)
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), replayed, func(p *page) {
				verb := "✓ replayed"
				if replayed.DryRun {
					verb = "would replay"
				}
				p.line("%s %d events; the last is due in %.0f s", verb, replayed.Events, replayed.Seconds)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Code, "code", "", "those that died of this code")
	f.StringVar(&in.Brand, "brand", "", "of this brand")
	f.IntVar(&in.MappingVersion, "mapping", 0, "under this version of their brand's mapping")
	f.StringVar(&from, "from", "", "that died at this time or later (RFC 3339, or a day)")
	f.StringVar(&to, "to", "", "that died before this time")
	f.IntVar(&in.Limit, "limit", 0, "at most so many (default 100000)")
	f.Float64Var(&in.PerSecond, "rate", 50, "how many become due a second")
	f.BoolVar(&in.DryRun, "dry-run", false, "count only")
	yesFlag(cmd, &confirmed)
	return cmd
}

// readTime reads a time, or a day that begins at midnight UTC; empty: the zero time.
func readTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, &usageError{fmt.Errorf("%s: %q is neither a time (2026-03-01T09:00:00Z) nor a day (2026-03-01)", flag, text)}
}

func newDrift(op *operator) *cobra.Command {
	return group("drift", "What differs from HubSpot for good, and runs that ask", newDriftReport(op), newDriftApprove(op))
}

func newDriftReport(op *operator) *cobra.Command {
	var in ops.DriftArgs
	cmd := &cobra.Command{
		Use:   "report",
		Short: "List differences that a repair did not mend, and runs that wait for an approval",
		Long:  "Exit code 3: there is something to look at.",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := ask[ops.Drift](cmd.Context(), op, "drift.report", in)
			if err != nil {
				return err
			}
			err = op.show(cmd.OutOrStdout(), d, func(p *page) {
				for _, r := range d.HeldRuns {
					p.line("✗ run %s stopped at %s: too many repairs at once. Look at what changed in HubSpot, then: hubsync drift approve %s", r.ID, when(r.HeldAt), r.ID)
				}
				if len(d.Listed) == 0 {
					p.line("no differences")
					return
				}
				rows := make([][]string, len(d.Listed))
				for i, x := range d.Listed {
					rows[i] = []string{x.ContactKey, x.Brand + "/" + x.Product, x.Difference, when(&x.LastSeenAt)}
				}
				p.table([]string{"CONTACT", "SUBSCRIPTION", "DIFFERENCE", "LAST SEEN"}, rows)
			})
			return attention(err, len(d.Listed)+len(d.HeldRuns) == 0)
		},
	}
	cmd.Flags().StringVar(&in.Brand, "brand", "", "of this brand")
	cmd.Flags().IntVar(&in.Limit, "limit", 50, "how many, at most 1000")
	return cmd
}

func newDriftApprove(op *operator) *cobra.Command {
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "approve RUN",
		Short: "Let repairs go on after a run that stopped and asked",
		Args:  exactly(1, "one run's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirm(cmd, confirmed, "Write what we have over what HubSpot shows?"); err != nil {
				return err
			}
			a, err := ask[ops.Approved](cmd.Context(), op, "drift.approve", ops.ApproveArgs{Run: args[0]})
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), a, func(p *page) { p.line("✓ run %s is approved: the next check repairs", a.Run) })
		},
	}
	yesFlag(cmd, &confirmed)
	return cmd
}

func newConflicts(op *operator) *cobra.Command {
	return group("conflicts", "Keys that name two contacts, and addresses changed inside HubSpot", newConflictsList(op), newConflictsResolve(op))
}

func newConflictsList(op *operator) *cobra.Command {
	var in ops.ConflictsArgs
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what about contacts waits for a person",
		Long:  "Exit code 3: there is something to look at.",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := ask[ops.Conflicts](cmd.Context(), op, "conflicts.list", in)
			if err != nil {
				return err
			}
			err = op.show(cmd.OutOrStdout(), c, func(p *page) {
				if len(c.Conflicts) == 0 {
					p.line("no conflicts")
					return
				}
				rows := make([][]string, len(c.Conflicts))
				for i, x := range c.Conflicts {
					rows[i] = []string{x.ContactKey, x.Kind, x.Detail, strconv.Itoa(x.SeenCount), when(&x.LastSeenAt)}
				}
				p.table([]string{"CONTACT", "KIND", "DETAIL", "SEEN", "LAST SEEN"}, rows)
			})
			return attention(err, len(c.Conflicts) == 0)
		},
	}
	cmd.Flags().StringVar(&in.Kind, "kind", "", "such as shared_key or address_changed_in_hubspot")
	cmd.Flags().IntVar(&in.Limit, "limit", 50, "how many, at most 1000")
	return cmd
}

func newConflictsResolve(op *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "resolve CONTACT KIND",
		Short: "Take a contact's conflicts of a kind off the list; they come back when they are seen again",
		Args:  exactly(2, "a contact's key and a kind of conflict"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask[ops.Resolved](cmd.Context(), op, "conflicts.resolve", ops.ResolveArgs{ContactKey: args[0], Kind: args[1]})
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), r, func(p *page) { p.line("✓ %d resolved", r.Resolved) })
		},
	}
}
