//go:build week

package simtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
	"hubsync/shared/qstash/qstashtest"
)

// unreliable is a HubSpot whose answers are lost, whose calls fail, and whose writes land
// late, on the virtual clock.
type unreliable struct {
	inProcess
	clock *clock

	mu      sync.Mutex
	random  *rand.Rand
	on      bool
	pending int // late writes
	lost    int
	failed  int
	late    int
}

var errCut = errors.New("connection reset")

// RoundTrip serves the call, or does not.
func (u *unreliable) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	draw := 1.0
	if u.on {
		draw = u.random.Float64()
	}
	delay := time.Duration(u.random.IntN(480)) * time.Second
	u.mu.Unlock()
	switch {
	case draw < 0.02 && r.Method == http.MethodPost:
		return u.landLate(r, delay)
	case draw < 0.05:
		u.count(&u.lost)
		response, err := u.inProcess.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close() // nothing is left to read
		}
		return nil, errCut
	case draw < 0.08:
		u.count(&u.failed)
		return &http.Response{StatusCode: []int{502, 429, 423, 503}[u.failed%4], Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader("<html>"))}, nil
	}
	return u.inProcess.RoundTrip(r)
}

func (u *unreliable) count(n *int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*n++
}

// landLate cuts the connection, and carries the call out minutes later.
func (u *unreliable) landLate(r *http.Request, delay time.Duration) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.late, u.pending = u.late+1, u.pending+1
	again := r.Clone(context.WithoutCancel(r.Context()))
	u.clock.AfterFunc(delay, func() {
		again.Body = io.NopCloser(bytes.NewReader(body))
		if response, err := u.inProcess.RoundTrip(again); err == nil {
			_ = response.Body.Close() // nobody waits for it
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.pending--
	})
	return nil, errCut
}

// week is what a test does to the world, and what it knows must come out.
type week struct {
	*hours
	hub      *unreliable
	random   *rand.Rand
	must     map[person]string // the last act of each subscription
	merged   map[string]bool
	optedOut map[person]time.Time // made inside HubSpot, and not taken in yet
	acts     map[string]int
	slowest  time.Duration
}

type person struct {
	email, product string
}

func (p person) typeID() int64 { return map[string]int64{"news": 5, "plain": 6}[p.product] }

const weekPeople = 60

func (w *week) anyone() person {
	return person{fmt.Sprintf("p%02d@example.com", w.random.IntN(weekPeople)), []string{"news", "plain"}[w.random.IntN(2)]}
}

// decideNow sends a decision of the person's, taken this very second.
func (w *week) decideNow() {
	p, state := w.anyone(), []string{"subscribed", "subscribed", "unsubscribed"}[w.random.IntN(3)]
	w.decide(p.email, p.product, state, w.clock.Now())
	w.must[p] = state
	if state == "subscribed" {
		delete(w.optedOut, p) // a later consent lifts it
	}
	w.acts["decided"]++
}

// inside does what people and HubSpot do behind our back. A late write on its way could
// land on a person's opt-out: HubSpot has no compare-and-set, and that window is
// documented; the week keeps out of it.
func (w *week) inside() {
	p, q := w.anyone(), w.anyone()
	if w.hub.pending > 0 || w.open() != "0" {
		return
	}
	shown := w.shown(p.email, p.typeID())
	switch draw := w.random.IntN(10); {
	case draw < 5 && shown == "SUBSCRIBED":
		w.hubspot.SetStatus("main", p.email, p.typeID(), "UNSUBSCRIBED", w.clock.Now())
		w.must[p] = "unsubscribed"
		w.optedOut[p] = w.clock.Now()
		w.acts["opted out in HubSpot"]++
	case draw < 7 && shown == "UNSUBSCRIBED" && w.optedOut[p].IsZero():
		w.hubspot.SetStatus("main", p.email, p.typeID(), "NOT_SPECIFIED", w.clock.Now())
		w.acts["write undone"]++
	case draw == 7:
		w.hubspot.DeleteContact("main", p.email)
		w.acts["contact deleted"]++
	case draw == 8 && p.email != q.email:
		w.hubspot.Merge("main", p.email, q.email)
		w.merged[p.email], w.merged[q.email] = true, true
		w.acts["contacts merged"]++
	case draw == 9:
		w.redis.FlushAll()
		w.acts["counters flushed"]++
	}
}

// takenIn notes which of the opt-outs made inside HubSpot are decisions here by now.
func (w *week) takenIn() {
	for p, at := range w.optedOut {
		if w.text(`SELECT count(*)::text FROM contact_subscription_state s JOIN contacts c USING (contact_key)
			WHERE c.email_key = $1 AND s.product_id = $2 AND s.desired_state = 'unsubscribed'`, p.email, p.product) == "1" {
			w.slowest = max(w.slowest, w.clock.Now().Sub(at))
			delete(w.optedOut, p)
		}
	}
}

// A simulated week: HubSpot loses, delays and undoes writes, deletes and merges
// contacts; QStash duplicates, reorders and drops; counters are flushed; people opt out
// inside HubSpot. In the end every subscription shows its last act.
func TestAWeek(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	w := &week{hours: h, random: rand.New(rand.NewPCG(7, 7)), must: map[person]string{}, optedOut: map[person]time.Time{}, merged: map[string]bool{}, acts: map[string]int{}}
	w.hub = &unreliable{inProcess: inProcess{handler: h.hubspot.Handler()}, clock: h.clock, random: rand.New(rand.NewPCG(8, 8))}
	h.transport.set(w.hub)
	for p := range weekPeople { // everybody subscribes first
		for _, product := range []string{"news", "plain"} {
			email := fmt.Sprintf("p%02d@example.com", p)
			w.decide(email, product, "subscribed", h.clock.Now())
			w.must[person{email, product}] = "subscribed"
		}
	}
	h.pass(5*time.Minute, 10*time.Second, nil)
	w.hub.on = true
	h.qstash.SetFaults(qstashtest.Faults{Duplicate: 0.2, ShuffleMs: 3000, Drop: 0.05})
	const step = 10 * time.Minute
	h.pass(7*24*time.Hour, step, func() {
		if w.random.IntN(3) == 0 {
			w.decideNow()
		}
		w.inside()
		w.takenIn()
	})
	w.hub.on = false
	h.qstash.SetFaults(qstashtest.Faults{})
	h.pass(2*outbox.AuditPeriod, step, w.takenIn)
	w.judge(t)
}

func (w *week) judge(t *testing.T) {
	t.Helper()
	if open := w.open(); open != "0" {
		t.Errorf("%s events are open", open)
	}
	for p, state := range w.must {
		if got := w.shown(p.email, p.typeID()); got != strings.ToUpper(state) {
			t.Errorf("%s %s shows %s, its last act was %s", p.email, p.product, got, state)
		}
		if got := w.text(`SELECT s.desired_state FROM contact_subscription_state s JOIN contacts c USING (contact_key) WHERE c.email_key = $1 AND s.product_id = $2`, p.email, p.product); got != state {
			t.Errorf("%s %s: the newest decision here is %s, its last act was %s", p.email, p.product, got, state)
		}
	}
	if len(w.optedOut) > 0 || w.slowest > outbox.AuditPeriod+time.Hour {
		t.Errorf("opt-outs made inside HubSpot: %d never came, the slowest took %s", len(w.optedOut), w.slowest)
	}
	if dead := w.text(`SELECT coalesce(string_agg(DISTINCT last_error_code, ', '), '') FROM hubspot_outbox_events WHERE status = 'dead'`); dead != "" {
		t.Errorf("dead: %s", dead)
	}
	rows, err := w.pool.Query(t.Context(), `SELECT c.email_key, d.difference FROM drift_listings d JOIN contacts c USING (contact_key) WHERE d.resolved_at IS NULL`)
	if err != nil {
		t.Fatal(err)
	}
	var email, difference string
	listed := 0
	if _, err := pgx.ForEachRow(rows, []any{&email, &difference}, func() error {
		listed++
		// Two people who are one record share its property: it cannot show both.
		if !w.merged[email] || !strings.HasPrefix(difference, "property ") {
			t.Errorf("listed without an explanation: %s", difference)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := w.hubspot.MaxInWindow("main", 10*time.Second); n > 1000 {
		t.Errorf("%d calls in a window of 1000", n)
	}
	for what, n := range map[string]int{"decided": 200, "opted out in HubSpot": 30, "write undone": 5, "contact deleted": 5, "contacts merged": 3, "counters flushed": 5} {
		if w.acts[what] < n {
			t.Errorf("%s only %d times: the week was too quiet", what, w.acts[what])
		}
	}
	t.Logf("%v; %d lost, %d failed, %d late; slowest opt-out taken in %s; %s corrections, %d listed", w.acts, w.hub.lost, w.hub.failed, w.hub.late, w.slowest,
		w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE revision > 1`), listed)
}
