package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func newPause(op *operator) *cobra.Command {
	var in ops.PauseArgs
	var last time.Duration
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "pause [PORTAL]",
		Short: "Stop a portal, a brand or a lane; nothing is lost, and nothing dies of waiting",
		Long: `pause stops a portal, or what of it belongs to a brand or a lane. Opt-outs go on unless --opt-outs is
given. It takes effect at the next claim, also for messages that are published already.`,
		Args: atMostOne("one portal"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Portal, in.Seconds = first(args), int(last.Seconds())
			if err := confirm(cmd, confirmed, "Pause "+scope(in.Portal, in.Brand, in.Lane)+"?"); err != nil {
				return err
			}
			paused, err := ask[ops.Paused](cmd.Context(), op, "pause", in)
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), paused, func(p *page) {
				p.line("✓ %s is paused until %s", paused.What, until(paused.Until, time.Now()))
			})
		},
	}
	scopeFlags(cmd, &in.Brand, &in.Lane)
	cmd.Flags().DurationVar(&last, "for", 0, "how long, such as 30m (default: until it is resumed)")
	cmd.Flags().BoolVar(&in.OptOuts, "opt-outs", false, "opt-outs wait too")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why: whoever looks at 'hubsync status' will want to know")
	yesFlag(cmd, &confirmed)
	return cmd
}

func newResume(op *operator) *cobra.Command {
	var in ops.ResumeArgs
	cmd := &cobra.Command{
		Use:   "resume [PORTAL]",
		Short: "End the pause of a portal, a brand or a lane",
		Args:  atMostOne("one portal"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Portal = first(args)
			resumed, err := ask[ops.Resumed](cmd.Context(), op, "resume", in)
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), resumed, func(p *page) {
				if !resumed.Was {
					p.line("%s was not paused", resumed.What)
					return
				}
				p.line("✓ %s goes on", resumed.What)
			})
		},
	}
	scopeFlags(cmd, &in.Brand, &in.Lane)
	return cmd
}

func scopeFlags(cmd *cobra.Command, brand, lane *string) {
	cmd.Flags().StringVar(brand, "brand", "", "only this brand")
	cmd.Flags().StringVar(lane, "lane", "", "only this lane: optout, live or bulk")
}

func scope(portal, brand, lane string) string {
	return fmt.Sprintf("portal %s, brand %s, lane %s", anyOf(portal), anyOf(brand), anyOf(lane))
}

func newBudget(op *operator) *cobra.Command {
	return group("budget", "HubSpot call limits", newBudgetSet(op))
}

func newBudgetSet(op *operator) *cobra.Command {
	var in ops.BudgetArgs
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "set PORTAL",
		Short: "Change a portal's call limits; every worker has them within 5 seconds",
		Long: `set changes the limits at once. The next routes file that is applied brings its own: change them
there too, if they are to stay.`,
		Args: exactly(1, "one portal"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Portal = args[0]
			if err := confirm(cmd, confirmed, "Change the call limits of portal "+in.Portal+"?"); err != nil {
				return err
			}
			set, err := ask[ops.BudgetSet](cmd.Context(), op, "budget.set", in)
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), set, func(p *page) { p.line("✓ %s", set) })
		},
	}
	cmd.Flags().IntVar(&in.Burst, "burst", 0, "calls in a burst window, at least 10")
	cmd.Flags().IntVar(&in.Daily, "daily", 0, "calls a day")
	yesFlag(cmd, &confirmed)
	return cmd
}
