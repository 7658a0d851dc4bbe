package sim

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
)

const (
	mostSteps  = 60_000
	mostOfKind = 3 // runs of a timed stage side by side: the others froze
	tickRelay  = 500 * time.Millisecond
	tickIdle   = 30 * time.Second
	tickSweep  = time.Minute
	tickCheck  = time.Minute
)

// run plays the plan, lets the world come to rest, and looks at it.
func (w *world) run() {
	w.setUp()
	if w.rest("the faults ended") && w.replay() {
		w.examine()
	}
}

// setUp puts everything that the plan says onto the clock.
func (w *world) setUp() {
	for _, i := range w.plan.items {
		w.at(start.Add(i.at), func() { w.begin(i) })
	}
	w.at(start.Add(w.plan.quiet), w.calmDown)
	w.relay.ran(start)
	w.sweep.ran(start.Add(tickSweep / 2))
	w.check.ran(start.Add(tickCheck / 3))
}

// replay does what an operator does about dead events: each is due to an answer that a
// fault made, or to a worker that died again and again.
func (w *world) replay() bool {
	permanent := w.ledger.refused[400] + w.ledger.refused[403] + w.ledger.refused[404] + w.ledger.refused[409]
	for i := 0; ; i++ {
		w.setOwnClock()
		dead := w.query(selectDead)
		if dead == "" {
			return true
		}
		if i == 0 {
			w.trace("dead: %s", dead)
			w.fired["dead and replayed"]++
			if permanent == 0 && w.fired["crash"] < outbox.MaxAttempts {
				w.violate("I1", "something died of waiting: %s", dead)
			}
		}
		if i > 20 {
			w.violate("I5", "replayed again and again: %s", dead)
			return false
		}
		if _, err := w.db.ReplayDead(w.d.t.Context(), postgres.ReplayFilter{}, 1); err != nil {
			w.must(err)
		}
		if !w.rest("a replay") {
			return false
		}
	}
}

const selectDead = `
SELECT coalesce(string_agg(e.last_error_code, ' ' ORDER BY e.id), '') FROM hubspot_outbox_events e
JOIN contact_subscription_state s ON s.latest_event_id = e.id WHERE e.status = 'dead'`

func (w *world) begin(i item) {
	switch do := i.do.(type) {
	case decision:
		for range do.again + 1 {
			w.client(do)
		}
	case act:
		w.happens(do)
	case *fault:
		w.arm(do)
	}
}

// calmDown ends the faults: whatever was broken works again.
func (w *world) calmDown() {
	w.calm = true
	w.trace("calm")
	w.mend()
}

// rest runs until nothing is left to do; false: it never came to rest.
func (w *world) rest(since string) bool {
	limit := w.steps + mostSteps
	for {
		if w.steps > limit {
			w.violate("I5", "the world does not come to rest after %s", since)
			return false
		}
		w.ring()
		w.tick()
		if w.step() {
			continue
		}
		if w.calm && w.quiet() {
			return true
		}
		next, ok := w.upcoming()
		if !ok {
			w.violate("I1", "something waits and nothing will ever come for it, after %s: %s", since, w.open())
			return false
		}
		w.now = next
	}
}

// timetable is when a timed stage runs next, and the earliest moment at which it may.
type timetable struct{ at, notBefore time.Time }

func (t *timetable) ran(next time.Time) { t.at, t.notBefore = next, next }

// tick starts the timed stages.
func (w *world) tick() {
	if !w.relay.at.After(w.now) {
		w.relay.ran(w.now.Add(max(w.relayGap, tickRelay)))
		w.timed("relay", func(ctx context.Context) {
			result, err := w.relayer.Pass(ctx)
			w.relayGap = min(2*max(w.relayGap, tickRelay), tickIdle)
			if result.Claimed > 0 || err != nil {
				w.relayGap = 0
			}
			w.trace("relay: claimed %d, published %d, retried %d, dead %d, failed %t", result.Claimed, result.Published, result.Retried, result.Dead, err != nil)
		})
	}
	if !w.sweep.at.After(w.now) {
		w.sweep.ran(w.now.Add(tickSweep))
		w.timed("sweep", func(ctx context.Context) {
			result, err := w.sweeper.Run(ctx)
			w.trace("sweep: scheduled %d, failed %t", result.Scheduled, err != nil)
		})
	}
	if !w.check.at.After(w.now) {
		w.check.ran(w.now.Add(tickCheck))
		w.timed("check", func(ctx context.Context) {
			result, err := w.checker.Run(ctx)
			w.trace("check: %+v, failed %t", result, err != nil)
		})
	}
}

// timed starts a run of a stage, unless too many froze.
func (w *world) timed(stage string, run func(context.Context)) {
	alive := 0
	for _, a := range w.actors {
		if a.stage == stage {
			alive++
		}
	}
	if alive < mostOfKind {
		w.spawn(stage, func() { run(w.d.t.Context()) })
	}
}

const selectDue = `
WITH open AS (
  SELECT e.status, greatest(e.next_attempt_at,
    (SELECT p.paused_until FROM hubspot_portals p WHERE p.id = e.portal_id AND (e.lane <> 0 OR p.pause_opt_outs) AND isfinite(p.paused_until))) AS at
  FROM hubspot_outbox_events e WHERE e.completed_at IS NULL)
SELECT (SELECT min(at) FROM open WHERE status NOT IN ('queued', 'processing')),
       (SELECT min(at) FROM open WHERE status IN ('queued', 'processing')),
       (SELECT min(s.check_at) FROM contact_subscription_state s WHERE s.uncertain_until IS NOT NULL OR s.check_at < current_setting('sim.now')::timestamptz + $1::interval)`

// upcoming is when something happens next by itself. What would be polled until then in
// vain is not polled.
func (w *world) upcoming() (time.Time, bool) {
	var relay, sweep, check *time.Time
	w.setOwnClock()
	soon := time.Hour
	if err := w.d.own.QueryRow(w.d.t.Context(), selectDue, soon).Scan(&relay, &sweep, &check); err != nil {
		w.d.t.Fatal(err)
	}
	at, found := w.next()
	for _, x := range []struct {
		due   *time.Time
		timer *timetable
	}{{relay, &w.relay}, {sweep, &w.sweep}, {check, &w.check}} {
		x.timer.at = x.timer.notBefore
		if x.due == nil {
			continue
		}
		if x.due.After(x.timer.at) {
			x.timer.at = *x.due
		}
		if !found || x.timer.at.Before(at) {
			at, found = x.timer.at, true
		}
	}
	return at, found
}

func (w *world) setOwnClock() { w.d.exec("SELECT set_config('sim.now', $1, false)", w.d.moment()) }

const selectOpen = `
SELECT (SELECT count(*) FROM hubspot_outbox_events WHERE completed_at IS NULL),
       (SELECT count(*) FROM contact_subscription_state WHERE uncertain_until IS NOT NULL
        OR check_at < current_setting('sim.now')::timestamptz + interval '1 hour')`

// quiet: no actor, no message, nothing open in the database, and nothing uncertain.
func (w *world) quiet() bool {
	if len(w.actors) > 0 || !w.qstash.Idle() {
		return false
	}
	w.setOwnClock()
	var events, checks int
	if err := w.d.own.QueryRow(w.d.t.Context(), selectOpen).Scan(&events, &checks); err != nil {
		w.d.t.Fatal(err)
	}
	return events == 0 && checks == 0
}

// open describes what is left.
func (w *world) open() string {
	return w.query(`SELECT coalesce(string_agg(status || ' ' || coalesce(last_error_code, '') || ' ' || next_attempt_at, ', '), 'nothing') FROM hubspot_outbox_events WHERE completed_at IS NULL`)
}

func (w *world) query(sql string, args ...any) (text string) {
	if err := w.d.own.QueryRow(w.d.t.Context(), sql, args...).Scan(&text); err != nil {
		w.d.t.Fatal(err, sql)
	}
	return text
}

// client sends a decision until it has an answer, as a client does.
func (w *world) client(d decision) {
	t := w.ledger.tries[d.key]
	if t == nil {
		t = &try{decision: d}
		w.ledger.tries[d.key] = t
	}
	if d.forged && t.receipt == "" {
		return // it would be the first one
	}
	w.send(t, d)
}

// send makes one attempt, and another one later where there was no answer.
func (w *world) send(t *try, d decision) {
	if d.bulk {
		w.importRow(t, d)
		return
	}
	var answer *httptest.ResponseRecorder
	a := w.spawn("intake", func() {
		recorder := httptest.NewRecorder()
		w.intake.ServeHTTP(recorder, w.requestOf(d))
		w.point("before reply")
		answer = recorder
	})
	a.try = t
	a.ending = func() {
		if answer == nil || !w.answered(t, d, answer) {
			w.at(w.now.Add(time.Duration(1+w.order.IntN(20))*time.Second), func() { w.send(t, d) })
		}
	}
}

// importRow stores a decision as an import does: in the bulk lane.
func (w *world) importRow(t *try, d decision) {
	answer := httptest.NewRecorder()
	answer.Code = http.StatusServiceUnavailable
	row := postgres.Decision{
		RequestID: w.newID(), EventID: w.newID(), BrandID: d.brand, ProductID: d.product, ContactKey: d.contact, Email: d.email, EmailKey: d.email,
		DesiredState: outbox.DesiredState(d.state), IdempotencyKey: d.key, RequestHash: d.key, Source: "import", Lane: outbox.LaneBulk, UndatedWindow: undated,
	}
	if d.occurred != nil {
		row.OccurredAt = ptr(start.Add(*d.occurred))
	}
	a := w.spawn("intake", func() {
		receipt, err := w.db.Accept(w.d.t.Context(), row)
		w.point("before reply")
		if err == nil {
			answer.Code = http.StatusAccepted
			_, _ = answer.WriteString(`{"requestId":"` + receipt.RequestID.String() + `"}`)
		}
	})
	a.try = t
	a.ending = func() {
		if !w.answered(t, d, answer) {
			w.at(w.now.Add(5*time.Second), func() { w.send(t, d) })
		}
	}
}

func (w *world) requestOf(d decision) *http.Request {
	body := map[string]any{"contactKey": d.contact, "email": d.spelling, "productId": d.product, "desiredState": d.state}
	if d.occurred != nil {
		body["occurredAt"] = start.Add(*d.occurred).Format(time.RFC3339Nano)
	}
	if d.forged {
		body["consent"] = map[string]any{"source": "another body"}
	}
	content, err := json.Marshal(body)
	w.must(err)
	r := httptest.NewRequest(http.MethodPost, "/v1/brands/"+d.brand+"/subscriptions", strings.NewReader(string(content)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", d.key)
	return r
}

// answered takes an answer of intake's; false: it said nothing for good.
func (w *world) answered(t *try, d decision, answer *httptest.ResponseRecorder) bool {
	w.trace("%s: intake answers %d", d.key, answer.Code)
	var receipt struct {
		RequestID string `json:"requestId"`
	}
	switch code := answer.Code; {
	case code == http.StatusConflict || code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests:
		return false
	case d.forged && code == http.StatusUnprocessableEntity:
		return true
	case d.forged:
		w.violate("I8", "%s came back with another body and was answered %d", d.key, code)
		return true
	case code != http.StatusAccepted && code != http.StatusOK:
		w.violate("I1", "%s was answered %d: %s", d.key, code, answer.Body.String())
		return true
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &receipt); err != nil || receipt.RequestID == "" {
		w.violate("I8", "%s: the receipt cannot be read", d.key)
	}
	switch {
	case len(t.executed) == 0:
		w.violate("I1", "%s has a receipt, and the database carried nothing out", d.key)
	case t.receipt != "" && t.receipt != receipt.RequestID:
		w.violate("I8", "%s has two receipts", d.key)
	case t.receipt == "" && len(t.executed) > 0:
		w.ledger.accepted = append(w.ledger.accepted, accepted{t.decision, t.executed[0]})
	}
	t.receipt = receipt.RequestID
	return true
}

// keysAPI asks QStash for its signing keys, or makes it change them.
func (w *world) keysAPI(method, path string) qstash.Keys {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Authorization", "Bearer "+qstashtest.DefaultToken)
	answer := httptest.NewRecorder()
	w.qstash.Handler().ServeHTTP(answer, r)
	var keys struct{ Current, Next string }
	w.must(json.Unmarshal(answer.Body.Bytes(), &keys, json.MatchCaseInsensitiveNames(true)))
	return qstash.Keys{Current: keys.Current, Next: keys.Next}
}
