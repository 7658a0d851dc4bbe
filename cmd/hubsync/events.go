package main

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
	"hubsync/shared/postgres"
)

func newEvents(op *operator) *cobra.Command {
	return group("events", "Look at events: what became of a decision, why, and what comes next",
		newEventsList(op), newEventsShow(op), newEventsExplain(op))
}

func newEventsList(op *operator) *cobra.Command {
	var in ops.EventsArgs
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List events, the newest first",
		Args:  exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := ask[ops.Events](cmd.Context(), op, "events.list", in)
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), e, func(p *page) { eventTable(p, e.Events) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Status, "status", "", "open, dead, synced, superseded, …")
	f.StringVar(&in.Code, "code", "", "of the last failure")
	f.StringVar(&in.Portal, "portal", "", "of this portal")
	f.StringVar(&in.Brand, "brand", "", "of this brand")
	f.StringVar(&in.Product, "product", "", "of this product")
	f.StringVar(&in.ContactKey, "contact", "", "of the contact with this key")
	f.StringVar(&in.Request, "request", "", "of this request id or idempotency key")
	f.IntVar(&in.Limit, "limit", 50, "how many, at most 1000")
	return cmd
}

func eventTable(p *page, events []postgres.EventRow) {
	if len(events) == 0 {
		p.line("no events")
		return
	}
	rows := make([][]string, len(events))
	for i, e := range events {
		rows[i] = []string{e.ID, e.Status, shortState(e.DesiredState), e.Brand + "/" + e.Product, strconv.FormatInt(e.Sequence, 10),
			e.CreatedAt.UTC().Format("01-02 15:04:05"), e.Code}
	}
	p.table([]string{"=EVENT", "STATUS", "WANTS", "SUBSCRIPTION", "SEQ", "MADE", "CODE"}, rows)
}

func shortState(state string) string { return strings.TrimSuffix(state, "scribed") }

const oneEvent = "one event's or request's id"

func newEventsShow(op *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show an event with its subscription, what HubSpot confirmed, and its history",
		Args:  exactly(1, oneEvent),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := ask[ops.EventDetail](cmd.Context(), op, "events.show", ops.EventArgs{ID: args[0]})
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), d, func(p *page) { showEvent(p, d) })
		},
	}
}

func newEventsExplain(op *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Say in words what became of an event, why, what comes next, and what to do",
		Args:  exactly(1, oneEvent),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := ask[ops.EventDetail](cmd.Context(), op, "events.show", ops.EventArgs{ID: args[0]})
			if err != nil {
				return err
			}
			return op.show(cmd.OutOrStdout(), d.Explanation, func(p *page) { explain(p, d) })
		},
	}
}

func explain(p *page, d ops.EventDetail) {
	x := d.Explanation
	p.line("%s wanted %s/%s to be %s: %s", d.Event.Source, d.Event.Brand, d.Event.Product, d.Event.DesiredState, x.State)
	for _, part := range [][2]string{{"why", x.Cause}, {"overtaken by", x.Ahead}, {"next", x.Next}, {"to do", x.Do}, {"run", x.Run}} {
		if part[1] != "" {
			p.wrapped("    ", "  "+part[0]+": "+part[1])
		}
	}
}

func showEvent(p *page, d ops.EventDetail) {
	e := d.Event
	fields := [][2]string{
		{"event", e.ID}, {"request", e.RequestID + " (" + e.Source + ")"}, {"status", e.Status},
		{"subscription", e.Brand + "/" + e.Product + " of contact " + e.ContactKey}, {"wants", e.DesiredState},
		{"portal, lane", e.Portal + ", " + postgres.LaneName(e.Lane)},
		{"sequence", strconv.FormatInt(e.Sequence, 10) + ", revision " + strconv.Itoa(e.Revision) + ", generation " + strconv.Itoa(e.Generation) +
			", mapping version " + strconv.Itoa(e.MappingVersion)},
		{"attempts", strconv.Itoa(e.PublishAttempts) + " published, " + strconv.Itoa(e.ProcessAttempts) + " failed, " + strconv.Itoa(e.ProcessWaits) + " waited"},
		{"made", when(&e.CreatedAt)}, {"published", when(e.PublishedAt)}, {"due", when(&e.NextAttemptAt)}, {"settled", when(e.CompletedAt)},
		{"last failure", strings.TrimSuffix(e.Code+": "+e.Problem, ": ")},
	}
	if s := d.Subscription; s != nil {
		fields = append(fields, [2]string{"newest decision", s.DesiredState + ", sequence " + strconv.FormatInt(s.LatestSequence, 10)},
			[2]string{"in HubSpot", cmp.Or(s.AppliedState, "nothing") + " (sequence " + strconv.FormatInt(s.AppliedSequence, 10) + "), seen " + cmp.Or(s.HubSpotStatus, "nothing") + " " + when(s.HubSpotSeenAt)})
	}
	for _, f := range fields {
		if f[1] != "" {
			p.wrapped("                  ", f[0]+strings.Repeat(" ", 18-len(f[0]))+f[1])
		}
	}
	if len(d.Receipts) > 0 {
		p.WriteString("\n")
		rows := make([][]string, len(d.Receipts))
		for i, r := range d.Receipts {
			rows[i] = []string{r.ConfirmedAt.UTC().Format(time.DateTime), r.Operation, r.Outcome, r.CorrelationID}
		}
		p.table([]string{"CONFIRMED", "OPERATION", "OUTCOME", "=CORRELATION ID"}, rows)
	}
	if len(d.History) > 0 {
		p.WriteString("\n")
		eventTable(p, d.History)
	}
	p.WriteString("\n")
	explain(p, d)
}
