package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/hubspot/hubspottest"
)

// SoakReport is what a soak found in the simulator's ledger.
type SoakReport struct {
	Decisions     int     `json:"decisions"`
	Refused       int     `json:"refused"` // shed by intake
	Subscriptions int     `json:"subscriptions"`
	Overtaken     int     `json:"overtaken"` // events that a newer decision made needless
	Writes        int     `json:"writes"`    // preferences written in HubSpot
	OutOfOrder    int     `json:"outOfOrder"`
	Mismatches    int     `json:"mismatches"`
	Dead          int     `json:"dead"`
	Calls         int     `json:"calls"`
	CallsPerWrite float64 `json:"callsPerWrite"`
	Limit         int     `json:"limit"` // calls in 10 s
	MaxInWindow   int     `json:"maxInWindow"`
	FeedSeconds   float64 `json:"feedSeconds"`
	DrainSeconds  float64 `json:"drainSeconds"`
	// Utilisation is the calls made while a backlog drained, over those that the limit
	// allowed in that time. Only a drain longer than a few windows says something.
	Utilisation float64 `json:"utilisation"`
	OptOuts     int     `json:"optOuts"` // sent while the backlog drained
	OptOutMs    Latency `json:"optOutMs"`
	// Audit is what an audit of everything did to live decisions; nil without --audit.
	Audit *AuditReport `json:"audit,omitempty"`
	OK    bool         `json:"ok"`

	problems []string
}

const latestStates = `
SELECT c.email_key, r.subscription_type_id, s.desired_state
FROM contact_subscription_state s
JOIN contacts c USING (contact_key)
JOIN brand_subscription_routes r ON r.brand_id = s.brand_id AND r.product_id = s.product_id AND r.active`

const eventSequences = `SELECT id, sequence FROM hubspot_outbox_events WHERE sequence IS NOT NULL`

func (r *SoakReport) judge(ctx context.Context, s *soak, fed time.Time, probes []probe) error {
	w := s.world
	ledger := w.HubSpot.Ledger()
	r.Calls, r.Limit = len(ledger), int(150*w.opts.RateScale)
	r.MaxInWindow = w.HubSpot.MaxInWindow("main", 10*time.Second)
	if err := w.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status = 'superseded' AND sequence IS NOT NULL), count(*) FILTER (WHERE status = 'dead') FROM hubspot_outbox_events`).
		Scan(&r.Overtaken, &r.Dead); err != nil {
		return err
	}
	if err := r.order(ctx, w, ledger); err != nil {
		return err
	}
	if err := r.ends(ctx, w); err != nil {
		return err
	}
	r.drain(ledger, fed)
	r.optOuts(ledger, probes)
	r.OK = r.OutOfOrder+r.Mismatches+r.Dead+len(r.problems) == 0 && r.MaxInWindow <= r.Limit
	return nil
}

// order checks that no cell was ever written back to an older decision. Every write
// carries the id of its event.
func (r *SoakReport) order(ctx context.Context, w *World, ledger []hubspottest.Call) error {
	rows, err := w.pool.Query(ctx, eventSequences)
	if err != nil {
		return err
	}
	sequences := map[string]int64{}
	var id uuid.UUID
	var sequence int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &sequence}, func() error { sequences[id.String()] = sequence; return nil }); err != nil {
		return err
	}
	type cell struct {
		email        string
		subscription int64
	}
	newest := map[cell]int64{}
	for _, call := range ledger {
		for _, write := range call.Writes {
			r.Writes++
			key := cell{write.Email, write.SubscriptionID}
			sequence := sequences[eventOf(write.Explanation)]
			switch {
			case sequence == 0:
				r.say("a write carries no event of ours")
			case sequence < newest[key]:
				r.OutOfOrder++
				r.say("subscription %d: sequence %d was written after %d", key.subscription, sequence, newest[key])
			default:
				newest[key] = sequence
			}
		}
	}
	r.CallsPerWrite = float64(r.Calls) / float64(max(r.Writes, 1))
	return nil
}

// eventOf takes the event's id out of a write's marker, which names its attempt.
func eventOf(explanation string) string {
	attempt := explanation[strings.LastIndexByte(explanation, ':')+1:]
	event, _, _ := strings.Cut(attempt, ".")
	return event
}

func (r *SoakReport) ends(ctx context.Context, w *World) error {
	rows, err := w.pool.Query(ctx, latestStates)
	if err != nil {
		return err
	}
	var email, desired string
	var subscription int64
	_, err = pgx.ForEachRow(rows, []any{&email, &subscription, &desired}, func() error {
		r.Subscriptions++
		shown, _ := w.HubSpot.Status("main", email, subscription)
		if shown.State != strings.ToUpper(desired) {
			r.Mismatches++
			r.say("subscription %d of a contact shows %q, must be %s", subscription, shown.State, desired)
		}
		return nil
	})
	return err
}

// drain measures how much of the limit was used while the backlog drained.
func (r *SoakReport) drain(ledger []hubspottest.Call, fed time.Time) {
	calls := 0
	var last time.Time
	for _, c := range ledger {
		if c.At.After(fed) {
			calls++
			last = c.At
		}
	}
	if calls == 0 {
		return
	}
	seconds := last.Sub(fed).Seconds()
	// A full window may be spent at once, and again after ten seconds.
	allowed := float64(r.Limit) * (1 + math.Floor(seconds/10))
	r.DrainSeconds, r.Utilisation = seconds, float64(calls)/allowed
}

func (r *SoakReport) optOuts(ledger []hubspottest.Call, probes []probe) {
	r.OptOuts, r.OptOutMs = waits(ledger, probes)
}

// waits tells how long each probe took from being sent to HubSpot's ledger.
func waits(ledger []hubspottest.Call, probes []probe) (n int, l Latency) {
	written := map[string]time.Time{}
	for _, c := range ledger {
		for _, w := range c.Writes {
			if _, seen := written[w.Email]; !seen {
				written[w.Email] = c.At
			}
		}
	}
	var ms []float64
	for _, p := range probes {
		if at, ok := written[p.email]; ok {
			ms = append(ms, float64(at.Sub(p.at).Microseconds())/1000)
		}
	}
	slices.Sort(ms)
	if len(ms) > 0 {
		l = Latency{P50: ms[len(ms)/2], P99: ms[min(len(ms)*99/100, len(ms)-1)]}
	}
	return len(ms), l
}

func (r *SoakReport) say(format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// Write writes the report as JSON, and the first problems to the other writer.
func (r *SoakReport) Write(out, problems io.Writer) error {
	for _, p := range r.problems {
		say(problems, "%s\n", p)
	}
	return json.NewEncoder(out).Encode(r)
}
