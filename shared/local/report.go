package local

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Report is what a demo found.
type Report struct {
	Requests          int                     `json:"requests"`
	Answers           map[string]int          `json:"answers"`
	UnexpectedAnswers int                     `json:"unexpectedAnswers"`
	Accepted          int                     `json:"accepted"`
	Subscriptions     int                     `json:"subscriptions"`
	Events            map[string]int          `json:"events"`
	Mismatches        int                     `json:"mismatches"`
	HubSpotCalls      map[string]int          `json:"hubspotCalls"`
	Budget            map[string]BudgetReport `json:"budget"`
	LatencyMs         Latency                 `json:"latencyMs"`
	ElapsedSeconds    float64                 `json:"elapsedSeconds"`
	OK                bool                    `json:"ok"`

	problems []string
}

// BudgetReport compares a portal's limit in 10 s with the most that arrived.
type BudgetReport struct {
	Limit       int `json:"limit"`
	MaxInWindow int `json:"maxInWindow"`
}

// Latency is the time from accepted to confirmed, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

const eventCounts = `SELECT status, count(*) FROM hubspot_outbox_events GROUP BY status`

const latencies = `
SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), 0), coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms), 0)
FROM (SELECT extract(epoch FROM completed_at - created_at) * 1000 AS ms
      FROM hubspot_outbox_events WHERE status = 'synced') l`

// count fills what the database knows.
func (r *Report) count(ctx context.Context, w *World) error {
	rows, err := w.pool.Query(ctx, eventCounts)
	if err != nil {
		return fmt.Errorf("count events: %w", err)
	}
	var status string
	var n int
	r.Events = map[string]int{"synced": 0, "superseded": 0, "dead": 0}
	if _, err = pgx.ForEachRow(rows, []any{&status, &n}, func() error { r.Events[status] = n; return nil }); err != nil {
		return fmt.Errorf("count events: %w", err)
	}
	if err = w.pool.QueryRow(ctx, `SELECT count(*) FROM contact_subscription_state`).Scan(&r.Subscriptions); err != nil {
		return fmt.Errorf("count subscriptions: %w", err)
	}
	if err = w.pool.QueryRow(ctx, latencies).Scan(&r.LatencyMs.P50, &r.LatencyMs.P99); err != nil {
		return fmt.Errorf("measure latency: %w", err)
	}
	return nil
}

// budget fills what the simulator's ledger knows.
func (r *Report) budget(w *World) {
	r.HubSpotCalls, r.Budget = map[string]int{}, map[string]BudgetReport{}
	for _, p := range w.opts.Routes.Portals {
		r.HubSpotCalls[p.ID] = w.HubSpot.CallCount(p.ID)
		b := BudgetReport{
			Limit:       int(float64(p.Burst.Limit) * w.opts.RateScale),
			MaxInWindow: w.HubSpot.MaxInWindow(p.ID, p.Burst.WindowDuration()),
		}
		if b.MaxInWindow > b.Limit {
			r.problems = append(r.problems, fmt.Sprintf("portal %s got %d calls within %s, the limit is %d", p.ID, b.MaxInWindow, p.Burst.Window, b.Limit))
		}
		r.Budget[p.ID] = b
	}
}

// JSON writes the report for a program.
func (r *Report) JSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}

// maxProblems is how many lines a person wants to see.
const maxProblems = 20

// Text writes the report for a person.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d requests → %s\n", r.Requests, counts(r.Answers))
	fmt.Fprintf(&b, "%d decisions accepted for %d subscriptions → events: %s\n", r.Accepted, r.Subscriptions, counts(r.Events))
	for _, id := range slices.Sorted(maps.Keys(r.Budget)) {
		fmt.Fprintf(&b, "portal %s: %d HubSpot calls, at most %d in any window of the limit of %d\n",
			id, r.HubSpotCalls[id], r.Budget[id].MaxInWindow, r.Budget[id].Limit)
	}
	fmt.Fprintf(&b, "accepted → confirmed in HubSpot: p50 %.0f ms, p99 %.0f ms; %.1f s in all\n", r.LatencyMs.P50, r.LatencyMs.P99, r.ElapsedSeconds)
	fmt.Fprintf(&b, "%d unexpected answers, %d mismatches with what HubSpot must show\n", r.UnexpectedAnswers, r.Mismatches)
	for i, p := range r.problems {
		if i == maxProblems {
			fmt.Fprintf(&b, "  … and %d more\n", len(r.problems)-i)
			break
		}
		fmt.Fprintf(&b, "  ✗ %s\n", p)
	}
	verdict := "✓ HubSpot shows every latest valid decision, within its limits"
	if !r.OK {
		verdict = "✗ not as it must be"
	}
	fmt.Fprintf(&b, "%s\n", verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

func counts(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(m[b]-m[a], strings.Compare(a, b)) })
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = fmt.Sprintf("%d × %s", m[k], k)
	}
	return strings.Join(parts, ", ")
}
