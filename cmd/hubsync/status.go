package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func newStatus(op *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "How everything stands: backlog, oldest decision, rates, dead by code, drift, drain time",
		Long: `status reads the database, and from Redis what of the budgets is spent. Exit code 3: something waits for a person (dead events, differences,
conflicts, a run that asks), or HubSpot or QStash keeps us away.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask[ops.Status](cmd.Context(), op, "status", ops.None{})
			if err != nil {
				return err
			}
			return attention(op.show(cmd.OutOrStdout(), s, func(p *page) { showStatus(p, s) }), s.OK)
		},
	}
}

func showStatus(p *page, s ops.Status) {
	var rows [][]string
	for _, portal := range s.Portals {
		if len(portal.Lanes) == 0 {
			rows = append(rows, []string{portal.ID, "–", "0", "0", "–"})
		}
		for _, l := range portal.Lanes {
			rows = append(rows, []string{portal.ID, l.Lane, strconv.Itoa(l.Waiting), strconv.Itoa(l.InFlight), seconds(l.OldestSeconds)})
		}
	}
	p.table([]string{"PORTAL", "LANE", "WAITING", "IN FLIGHT", "OLDEST DECISION"}, rows)
	p.WriteString("\n")
	for _, portal := range s.Portals {
		p.line("portal %s: %.0f confirmed a minute, %s; calls %s of %d in %d ms, %s of %d today", portal.ID, portal.PerMinute,
			drained(portal.DrainSeconds), known(portal.WindowUsed), portal.Burst, portal.WindowMs, known(portal.DayUsed), portal.Daily)
		if portal.PausedUntil != nil {
			p.wrapped("    ", fmt.Sprintf("  ! paused until %s: %s%s", until(*portal.PausedUntil, s.At), portal.PauseReason, optOutsToo(portal.OptOutsToo)))
		}
		if portal.Recovering {
			p.line("  ! HubSpot was away; what goes out grows with each success")
		}
	}
	for _, x := range s.Pauses {
		p.wrapped("    ", fmt.Sprintf("! paused: portal %s, brand %s, lane %s, until %s: %s%s", anyOf(x.Portal), anyOf(x.Brand), anyOf(x.Lane),
			until(x.Until, s.At), x.Reason, optOutsToo(x.OptOutsToo)))
	}
	for _, b := range s.Breakers {
		p.wrapped("    ", fmt.Sprintf("! %s: %s (asked again %s)", b.Service, b.Reason, b.Until.UTC().Format(time.RFC3339)))
	}
	for _, r := range s.HeldRuns {
		p.line("✗ check run %s would have repaired %d subscriptions, and asks: hubsync drift approve %s", r.ID, r.Scheduled, r.ID)
	}
	if len(s.Dead) > 0 {
		p.WriteString("\n")
		rows = nil
		for _, d := range s.Dead {
			rows = append(rows, []string{d.PortalID, d.Code, strconv.Itoa(d.Count), when(&d.Newest)})
		}
		p.table([]string{"PORTAL", "DEAD BY", "COUNT", "NEWEST"}, rows)
	}
	p.WriteString("\n")
	p.line("differences listed: %d; conflicts: %d; uncertain, looked at soon: %d", s.Attention.Drift, s.Attention.Conflicts, s.Attention.Uncertain)
	p.line("last sweep %s, last check %s", when(s.LastSweep), when(s.LastCheck))
}

func anyOf(text string) string {
	if text == "" {
		return "any"
	}
	return text
}

func optOutsToo(yes bool) string {
	if yes {
		return " (opt-outs too)"
	}
	return ""
}

// known shows a count, or that it is not known.
func known(n int) string {
	if n < 0 {
		return "?"
	}
	return strconv.Itoa(n)
}

func seconds(n int) string { return (time.Duration(n) * time.Second).String() }

func drained(n int) string {
	switch n {
	case 0:
		return "nothing left"
	case -1:
		return "nothing moves"
	default:
		return "done in about " + seconds(n)
	}
}

// until shows the end of a pause; a year away it has none.
func until(t, now time.Time) string {
	if t.Sub(now) > 365*24*time.Hour {
		return "it is resumed"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
