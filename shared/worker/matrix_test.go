package worker_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/worker"
)

// Cells of docs/failure-matrix.csv that no other test of this package is about.

func TestADatabaseThatIsAwayIsAnswered503AndTouchesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "unsubscribed", product: "plain"})
	config := w.pool.Config()
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Fallbacks, config.MinConns = "127.0.0.1", 1, nil, 0
	away, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(away.Close)
	w.config.DB = postgres.New(away)
	w.reconnect()
	for name, answer := range map[string]*httptest.ResponseRecorder{
		"a message":  w.deliver(id),
		"a callback": w.post("/failed", failureBody(`{"eventIds":["`+id.String()+`"]}`, "m1"), subject+"/failed"),
	} {
		after, err := strconv.Atoi(answer.Header().Get("Retry-After"))
		if answer.Code != http.StatusServiceUnavailable || err != nil || after < 1 || after > 60 {
			t.Errorf("%s: %d, Retry-After %q", name, answer.Code, answer.Header().Get("Retry-After"))
		}
	}
	w.expect("event", w.event(id), "pending 0 -")
	w.expect("calls", len(w.hubspot.Ledger()), 0)
	w.config.DB = w.db
	w.reconnect()
	w.expect("the same message again", w.deliver(id).Code, 200)
	w.expect("event", w.event(id), "synced 0 -")
}

// Intake makes a subscription's row with its first decision, so that this cannot be. If
// it is all the same, the event must not pass for an overtaken one.
func TestAnEventWithoutItsSubscriptionIsAlarmedNotSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "unsubscribed", product: "plain"})
	w.exec(`DELETE FROM contact_subscription_state`)
	w.deliver(id)
	w.expect("event", w.event(id), "pending 0 -")
	w.expect("calls", len(w.hubspot.Ledger()), 0)
	if !strings.Contains(w.logs.String(), "level=ERROR") {
		t.Errorf("no alarm: %s", w.logs.String())
	}
}

func TestAnErasedContactGetsNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "subscribed"})
	w.exec(`UPDATE contacts SET erasing_at = now()`)
	w.deliver(id)
	w.expect("event", w.event(id), "cancelled 0 -")
	w.expect("request", w.text(`SELECT status_reason FROM subscription_requests`), "erased")
	w.expect("calls", len(w.hubspot.Ledger()), 0)
}

// The mapping changed between a lost worker's claim and the next one: what is written is
// what the event's snapshot says, both times.
func TestARetryPlansFromTheSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "unsubscribed", email: "a@example.com", product: "plain"})
	planned := w.claim(id)[0]
	w.lose(id)
	w.exec(`UPDATE brand_subscription_routes SET snapshot = jsonb_set(snapshot, '{subscriptionTypeId}', '8') WHERE product_id = 'plain'`)
	again := w.claim(id)[0]
	w.expect("the snapshot", string(again.Payload), string(planned.Payload))
	w.lose(id)
	w.deliver(id)
	w.expect("under the snapshot's type", w.status("a@example.com", 6), "UNSUBSCRIBED")
	w.expect("under the new type", w.status("a@example.com", 8), "nothing")
}

// A token has no state: replayed within its life it is a twin of the delivery.
func TestAReplayedTokenIsATwin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "unsubscribed", product: "plain"})
	body := `{"eventIds":["` + id.String() + `"]}`
	token, err := qstashtest.Sign(qstashtest.DefaultCurrentKey, subject, []byte(body), "1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Upstash-Signature", token)
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		w.expect("reply", answer.Code, 200)
	}
	w.expect("event", w.event(id), "synced 0 -")
	w.expect("calls", len(w.hubspot.Ledger()), 1)
}

// More calls than a whole window has: as many as fit are made, and the rest waits for the
// next window instead of being refused for ever.
func TestAMessageAboveTheWindowIsDoneInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(p *hubspottest.Portal, c *worker.Config) { p.Plan, c.RateScale = hubspottest.Professional, 0.01 }) // 10 calls in 10 s
	var ids []uuid.UUID
	for range 25 {
		ids = append(ids, w.accept(decision{state: "unsubscribed", product: "plain"}))
	}
	w.deliver(ids...)
	first, err := strconv.Atoi(w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'synced'`))
	if err != nil || first == 0 || first > 10 {
		t.Errorf("%d of 25 were done under a limit of 10 calls, %v", first, err)
	}
	w.expect("the rest waits, and nothing counts", w.text(`SELECT count(*) || ' ' || max(process_attempts) FROM hubspot_outbox_events WHERE status = 'process_retry'`), strconv.Itoa(25-first)+" 0")
	if n := len(w.hubspot.Ledger()); n > 10 {
		t.Errorf("%d calls over a limit of 10", n)
	}
}

// Neither is tried again, so that somebody has to hear of it. What HubSpot refused is
// kept with the id under which HubSpot's support finds it.
func TestWhatIsNotTriedAgainIsAlarmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, deliver := range map[string]func() int{
		"malformed": func() int { return w.post("/", `{"eventId":1}`, subject).Code },
		"unknown":   func() int { return w.deliver(uuid.New()).Code },
	} {
		w.logs.Reset()
		code := deliver()
		w.expect(name+": reply", code, map[string]int{"malformed": 489, "unknown": 200}[name])
		if !strings.Contains(w.logs.String(), "level=ERROR") {
			t.Errorf("%s: no alarm: %s", name, w.logs.String())
		}
	}
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Status: 400})
	id := w.accept(decision{state: "unsubscribed", product: "plain"})
	w.expect("refused by HubSpot", w.deliver(id).Code, 489)
	w.expect("its correlation id is kept", w.text(`SELECT (last_error_summary ~ '\(correlation [0-9a-f-]{8,}\)')::text FROM hubspot_outbox_events WHERE id = $1`, id.String()), true)
}
