package simtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
)

// step is how closely the tests of this file look at the virtual time: what they measure
// is up to one step too long.
const step = 2 * time.Second

// ada is the person of whom these tests decide.
const ada = "ada@example.com"

// until lets time pass until something holds, and returns how long that took.
func (h *hours) until(most time.Duration, done func() bool) time.Duration {
	h.t.Helper()
	from := h.clock.Now()
	for h.clock.Now().Sub(from) <= most+step {
		if done() {
			return h.clock.Now().Sub(from)
		}
		h.pass(step, step, nil)
	}
	h.t.Fatalf("not within %s: %s", most, h.text(`SELECT string_agg(status || ' ' || coalesce(last_error_code, '-'), ', ') FROM hubspot_outbox_events`))
	return 0
}

// arrived reports whether a decision is settled, and shown by HubSpot.
func (h *hours) arrived(id uuid.UUID, shown string) func() bool {
	return func() bool { return h.status(id) == "synced" && h.shown(ada, 6) == shown }
}

// alter carries deliveries to the worker as f changes them.
type alter struct {
	f func(r *http.Request, body []byte) (*http.Response, error)
}

// RoundTrip reads the body for f, and leaves it to be read again.
func (a *alter) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return a.f(r, body)
}

// mailVia has QStash's deliveries go through f.
func (h *hours) mailVia(f func(r *http.Request, body []byte) (*http.Response, error)) {
	h.mail.set(&alter{f: f})
}

// unreachable cuts the worker off for a time.
func (h *hours) unreachable(d time.Duration) {
	h.mailVia(func(*http.Request, []byte) (*http.Response, error) { return nil, errors.New("no route to the worker") })
	h.pass(d, step, nil)
	h.mail.set(h.delivery)
}

// signedBy has every delivery arrive with a signature of another key or another time.
func (h *hours) signedBy(d time.Duration, key string, skew time.Duration) {
	refused := 0
	h.mailVia(func(r *http.Request, body []byte) (*http.Response, error) {
		token, err := qstashtest.Sign(key, "http://"+r.URL.Host+r.URL.Path, body, "1", h.clock.Now().Add(skew))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Upstash-Signature", token)
		answer, err := h.delivery.RoundTrip(r)
		if err == nil && answer.StatusCode == http.StatusUnauthorized {
			refused++
		}
		return answer, err
	})
	h.pass(d, step, nil)
	h.mail.set(h.delivery)
	if refused == 0 {
		h.t.Error("no signature was refused")
	}
}

// refuse has the database refuse a statement's update for a time, as one that went away
// before it could commit.
func (h *hours) refuse(d time.Duration, condition string) {
	h.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'away'; END $$`)
	h.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON contact_subscription_state FOR EACH ROW WHEN (` + condition + `) EXECUTE FUNCTION refuse()`)
	h.pass(d, step, nil)
	h.exec(`DROP TRIGGER refuse ON contact_subscription_state`)
}

// claimed claims the event as a relay that will never be heard of again.
func (h *hours) claimed() {
	h.t.Helper()
	routes := []postgres.Route{{PortalID: "main", Lane: outbox.LaneOptOut, Room: 10, Brands: []string{"acme"}}}
	events, err := h.db.ClaimPublishable(h.t.Context(), routes, 10, uuid.New(), outbox.RelayLease)
	if err != nil || len(events) != 1 {
		h.t.Fatal(events, err)
	}
}

// worked claims the event as a worker that will never be heard of again.
func (h *hours) worked(id uuid.UUID) {
	h.t.Helper()
	claims, err := h.db.ClaimEvents(h.t.Context(), []uuid.UUID{id}, postgres.ClaimOptions{
		Lease: outbox.WorkerLease, Late: outbox.LateWindow, CheckDelay: time.Minute, MaxAttempts: outbox.MaxAttempts})
	if err != nil || len(claims) != 1 || claims[0].Verdict != postgres.VerdictClaimed {
		h.t.Fatal(claims, err)
	}
	h.lastTick = h.clock.Now() // the sweep has just run: its next run is as late as it can be
}

// Each failure by itself, and how long after its end (or, where nobody has to mend
// anything, after its beginning) the decision has arrived. The bounds are those of
// docs/failure-matrix.csv.
func TestADecisionArrivesWithinItsBound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		within time.Duration
		fail   func(h *hours, id uuid.UUID)
	}{
		{"the relay dies after its claim", 2 * time.Minute, func(h *hours, _ uuid.UUID) { h.claimed() }},
		{"QStash is away", time.Minute, func(h *hours, _ uuid.UUID) {
			h.qstash.SetFaults(qstashtest.Faults{BatchStatus: 503})
			h.pass(5*time.Minute, step, nil)
			h.qstash.SetFaults(qstashtest.Faults{})
		}},
		{"QStash refuses the token", 5 * time.Minute, func(h *hours, id uuid.UUID) {
			h.qstash.SetFaults(qstashtest.Faults{BatchStatus: 401})
			h.pass(5*time.Minute, step, nil)
			h.qstash.SetFaults(qstashtest.Faults{})
			h.expect("attempts of a refused token", h.text(`SELECT publish_attempts::text FROM hubspot_outbox_events WHERE id = $1`, id.String()), 0)
		}},
		{"QStash loses the message", 11 * time.Minute, func(h *hours, _ uuid.UUID) {
			h.qstash.SetFaults(qstashtest.Faults{Drop: 1})
			h.world.pass()
			h.qstash.SetFaults(qstashtest.Faults{})
		}},
		{"the worker is unreachable for a moment", time.Minute, func(h *hours, _ uuid.UUID) { h.unreachable(20 * time.Second) }},
		{"the worker is unreachable until QStash gives up", 11 * time.Minute, func(h *hours, _ uuid.UUID) {
			h.unreachable(3 * time.Minute)
			h.expect("dead letters", h.qstash.Stats().Dead > 0, true)
		}},
		{"the worker's clock is wrong", 11 * time.Minute, func(h *hours, _ uuid.UUID) {
			h.signedBy(5*time.Minute, qstashtest.DefaultCurrentKey, -10*time.Minute)
		}},
		{"the keys were rolled twice", 11 * time.Minute, func(h *hours, _ uuid.UUID) { h.signedBy(5*time.Minute, "sig_nobody_has_this_key", 0) }},
		{"the worker dies after its claim", 150 * time.Second, func(h *hours, id uuid.UUID) { h.worked(id) }},
		{"the worker dies after its call", 150 * time.Second, func(h *hours, id uuid.UUID) {
			h.worked(id)
			h.hubspot.SetStatus("main", ada, 6, "UNSUBSCRIBED", h.clock.Now())
		}},
		{"the database is away at the claim", time.Minute, func(h *hours, _ uuid.UUID) { h.refuse(20*time.Second, "NEW.fence > OLD.fence") }},
		{"the database is away at the commit", 150 * time.Second, func(h *hours, _ uuid.UUID) {
			h.refuse(20*time.Second, "NEW.applied_sequence > OLD.applied_sequence")
		}},
		{"HubSpot is away", time.Minute, func(h *hours, _ uuid.UUID) {
			h.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Status: 503})
			h.pass(7*time.Minute, step, nil) // long enough for the breaker's longest wait
			h.hubspot.SetFaults()
		}},
		{"HubSpot refuses the token", time.Minute, func(h *hours, id uuid.UUID) {
			h.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Status: 401})
			h.pass(5*time.Minute, step, nil)
			h.hubspot.SetFaults()
			h.expect("attempts of a refused token", h.text(`SELECT process_attempts::text FROM hubspot_outbox_events WHERE id = $1`, id.String()), 0)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHours(t)
			id := h.decide(ada, "plain", "unsubscribed", h.clock.Now())
			tc.fail(h, id)
			t.Logf("arrived after %s of %s", h.until(tc.within, h.arrived(id, "UNSUBSCRIBED")), tc.within)
		})
	}
}

// What was published and not marked is published again in the same generation, which
// QStash takes for a twin. If the first one was lost, the sweep makes a new generation.
func TestAnUnmarkedMessageIsPublishedAgainWithinItsLease(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	id := h.decide(ada, "plain", "unsubscribed", h.clock.Now())
	h.claimed()
	body, err := outbox.EncodeMessage([]uuid.UUID{id})
	if err != nil {
		t.Fatal(err)
	}
	h.qstash.SetFaults(qstashtest.Faults{Drop: 1})
	dedup := outbox.DeduplicationID([]outbox.Reference{{EventID: id, Generation: 1}})
	if _, err := h.client.PublishBatch(t.Context(), []qstash.Message{{Destination: h.destination, Body: body, DeduplicationID: dedup}}); err != nil {
		t.Fatal(err)
	}
	h.qstash.SetFaults(qstashtest.Faults{})
	again := h.until(2*time.Minute, func() bool { return h.status(id) == "queued" })
	h.expect("generation", h.text(`SELECT generation::text FROM hubspot_outbox_events`), 1)
	sent := h.until(11*time.Minute, h.arrived(id, "UNSUBSCRIBED"))
	h.expect("generation", h.text(`SELECT generation::text FROM hubspot_outbox_events`), 2)
	t.Logf("published again after %s, sent anew after %s more", again, sent)
}

// The worker did all of it and its answer was lost: the message comes again, is
// recognised, and costs no call.
func TestALostAnswerIsDeliveredAgainAndCostsNoCall(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	id := h.decide(ada, "plain", "unsubscribed", h.clock.Now())
	var codes []int
	h.mailVia(func(r *http.Request, _ []byte) (*http.Response, error) {
		answer, err := h.delivery.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if codes = append(codes, answer.StatusCode); len(codes) == 1 {
			return nil, errors.New("the connection broke before the answer")
		}
		return answer, nil
	})
	h.world.pass()
	h.calm()
	h.expect("after the first delivery", h.status(id)+" "+h.shown(ada, 6), "synced UNSUBSCRIBED")
	took := h.until(time.Minute, func() bool { return len(codes) == 2 })
	h.pass(3*time.Minute, step, nil)
	if len(codes) != 2 || codes[0] != http.StatusOK || codes[1] != http.StatusOK {
		t.Errorf("the worker answered %v", codes)
	}
	h.expect("writes", h.writes(ada), 1)
	t.Logf("delivered again after %s", took)
}

// The sweep's own failures, and what a sweep finds: the next run is a minute later.
func TestTheNextSweepIsAMinuteLater(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		fail func(h *hours, id uuid.UUID)
	}{
		{"a run that is cut off before it began", func(h *hours, _ uuid.UUID) {
			h.lost()
			ctx, cancel := context.WithCancel(h.t.Context())
			cancel()
			if _, err := h.sweep.Run(ctx); err == nil {
				h.t.Error("a run without a database reports no error")
			}
		}},
		{"a run that dies after its first batch", func(h *hours, id uuid.UUID) {
			h.lost()
			if n, err := h.db.SweepStuck(h.t.Context(), 1); err != nil || n != 1 {
				h.t.Fatal(n, err)
			}
			h.expect("scheduled already", h.status(id), "process_retry")
		}},
		{"an expired lease", func(h *hours, id uuid.UUID) {
			h.worked(id)
			h.jump(outbox.WorkerLease)
		}},
		{"a message that was lost", func(h *hours, _ uuid.UUID) { h.lost() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHours(t)
			id := h.decide(ada, "plain", "unsubscribed", h.clock.Now())
			tc.fail(h, id)
			h.lastTick = h.clock.Now()
			took := h.until(time.Minute, func() bool {
				return h.text(`SELECT generation::text FROM hubspot_outbox_events`) == "2"
			})
			h.until(2*step, h.arrived(id, "UNSUBSCRIBED"))
			h.expect("generation in the end: scheduled once", h.text(`SELECT generation::text FROM hubspot_outbox_events`), 2)
			t.Logf("scheduled after %s", took)
		})
	}
}

// lost publishes a message that never arrives, and waits out its delivery window.
func (h *hours) lost() {
	h.t.Helper()
	h.qstash.SetFaults(qstashtest.Faults{Drop: 1})
	h.world.pass()
	h.qstash.SetFaults(qstashtest.Faults{})
	h.jump(outbox.DeliveryWindow)
}

// jump lets time pass in which nothing of ours runs.
func (h *hours) jump(d time.Duration) {
	end := h.clock.Now().Add(d)
	for f := h.clock.next(end); f != nil; f = h.clock.next(end) {
		f()
	}
	h.sync()
}

// A worker stalls with its call under way; its successor applies a newer decision; then
// the call lands. The look that the takeover made due finds it, at the latest one gap
// after L.
func TestALateCallOfAZombieIsPutRight(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{100 * time.Second, 5 * time.Minute, outbox.LateWindow} {
		h := newHours(t)
		stalled := h.decide(ada, "plain", "subscribed", h.clock.Now())
		h.worked(stalled)
		from := h.clock.Now()
		h.jump(time.Second)
		newer := h.decide(ada, "plain", "unsubscribed", h.clock.Now())
		h.until(150*time.Second, h.arrived(newer, "UNSUBSCRIBED"))
		h.pass(late-h.clock.Now().Sub(from), step, nil)
		h.hubspot.SetStatus("main", ada, 6, "SUBSCRIBED", h.clock.Now())
		took := h.until(outbox.LateWindow+5*time.Minute, func() bool {
			return h.shown(ada, 6) == "UNSUBSCRIBED" && h.open() == "0"
		})
		t.Logf("landed %s after the claim, put right %s later", late, took)
	}
}

// Processes whose clocks are wrong by an hour, each in its own way: leases, deadlines and
// order are the database's.
func TestProcessesWithWrongClocksAgree(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		h := newHours(t)
		wrong := func() time.Time { return h.clock.Now().Add(skew) }
		h.relay.Clock, h.sweep.Clock = wrong, wrong
		id := h.decide(ada, "plain", "unsubscribed", h.clock.Now())
		h.claimed()
		h.pass(outbox.RelayLease-2*step, step, nil)
		h.expect("a living lease, whatever the relay's clock says", h.status(id), "publishing")
		h.qstash.SetFaults(qstashtest.Faults{Drop: 1})
		h.until(4*step, func() bool { return h.status(id) == "queued" })
		h.qstash.SetFaults(qstashtest.Faults{})
		h.pass(outbox.DeliveryWindow-2*step, step, nil)
		h.expect("within its delivery window, whatever the sweep's clock says", h.status(id), "queued")
		h.until(time.Minute+4*step, h.arrived(id, "UNSUBSCRIBED"))
		late := h.decide(ada, "plain", "subscribed", h.clock.Now().Add(time.Second))
		h.worked(late)
		h.pass(outbox.WorkerLease-2*step, step, nil)
		h.expect("a living worker's, whatever the sweep's clock says", h.status(late), "processing")
		h.until(time.Minute+4*step, h.arrived(late, "SUBSCRIBED"))
	}
}
