package simtest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// The nine crashes that a transactional outbox is made for, each over a real PostgreSQL
// and between the emulators.

func TestCrash1AfterTheCommitBeforeTheRelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.decide("a@example.com", "news", "subscribed", noon)
	// The process that accepted it is gone; another one's relay comes by.
	w.expect("waits", w.status(id), "pending")
	w.settle()
	w.expect("event", w.status(id), "synced")
	w.expect("HubSpot", w.shown("a@example.com", 5), "SUBSCRIBED")
}

func TestCrash2PublishedButNotMarked(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		w := newWorld(t)
		id := w.decide("a@example.com", "plain", "subscribed", noon)
		events, err := w.db.ClaimPublishable(t.Context(), []postgres.Route{{PortalID: "main", Lane: outbox.LaneLive, Room: 10, Brands: []string{"acme"}}}, 10, uuid.New(), time.Minute)
		if err != nil || len(events) != 1 {
			t.Fatal(events, err)
		}
		if !arrives {
			w.qstash.SetFaults(qstashtest.Faults{Drop: 1})
		}
		body, err := outbox.EncodeMessage([]uuid.UUID{id})
		if err != nil {
			t.Fatal(err)
		}
		dedup := outbox.DeduplicationID([]outbox.Reference{{EventID: id, Generation: 1}})
		if _, err := w.client.PublishBatch(t.Context(), []qstash.Message{{Destination: w.destination, Body: body, DeduplicationID: dedup}}); err != nil {
			t.Fatal(err)
		}
		w.idle() // the relay dies here
		w.qstash.SetFaults(qstashtest.Faults{})
		if arrives { // the worker was faster than the mark
			w.expect("event", w.status(id), "synced")
		}
		w.exec(`UPDATE hubspot_outbox_events SET lease_expires_at = now(), next_attempt_at = now() WHERE status = 'publishing'`)
		r := w.pass()
		w.expect("claimed again", r.Claimed, map[bool]int{true: 0, false: 1}[arrives])
		w.idle()
		if !arrives {
			// The same generation: QStash takes it for a twin and sends nothing. The delivery
			// window ends, the sweep makes a new generation, and that one is sent.
			w.expect("swallowed", r.Deduplicated, 1)
			w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now()`)
			w.expect("swept", w.run().Scheduled, 1)
			w.settle()
		}
		w.expect("in the end", w.status(id), "synced")
		w.expect("written", w.writes("a@example.com"), 1)
	}
}

func TestCrash3OneEventToTwoWorkersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.qstash.SetFaults(qstashtest.Faults{Duplicate: 1})
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, SlowMs: 50})
	var ids []uuid.UUID
	for range 8 {
		ids = append(ids, w.decide("a@example.com", "plain", "unsubscribed", noon), w.decide("b@example.com", "plain", "unsubscribed", noon))
		w.pass()
	}
	w.settle()
	for _, id := range ids[len(ids)-2:] {
		w.expect("newest", w.status(id), "synced")
	}
	w.expect("each decision is settled once", w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE completed_at IS NOT NULL`), len(ids))
	for _, email := range []string{"a@example.com", "b@example.com"} {
		if n := w.writes(email); n > 8 {
			t.Errorf("%s was written %d times for 8 decisions", email, n)
		}
	}
}

func TestCrash4HubSpotAppliedButTheAnswerWasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, Route: "batch/write", LoseReply: true})
	id := w.decide("a@example.com", "news", "unsubscribed", noon)
	w.settle()
	w.expect("event", w.status(id), "synced")
	w.expect("HubSpot", w.shown("a@example.com", 5), "UNSUBSCRIBED")
	w.expect("uncertain until L", w.text(`SELECT (uncertain_until > now())::text FROM contact_subscription_state`), "true")
	// The opt-out is ours, although its answer never came: a newer consent lifts it.
	w.decide("a@example.com", "news", "subscribed", noon.Add(time.Minute))
	w.settle()
	w.expect("HubSpot", w.shown("a@example.com", 5), "SUBSCRIBED")
}

func TestCrash5EveryAnswerOfHubSpot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault hubspottest.Fault
		end   string
	}{
		"429": {hubspottest.Fault{Status: 429, Body: `{"errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}`, Header: map[string]string{"Retry-After": "1"}}, "synced"},
		"423": {hubspottest.Fault{Status: 423}, "synced"},
		"401": {hubspottest.Fault{Status: 401}, "synced"},
		"500": {hubspottest.Fault{Status: 500}, "synced"},
		"502": {hubspottest.Fault{Status: 502, Body: "<html>"}, "synced"},
		"524": {hubspottest.Fault{Status: 524}, "synced"},
		"400": {hubspottest.Fault{Status: 400}, "dead"},
		"207": {hubspottest.Fault{Replace: `{"status":"COMPLETE","results":[],"numErrors":1,"errors":[{"status":"error","category":"VALIDATION_ERROR","message":"no","context":{"subscriberIdString":["a@example.com"]}}]}`}, "dead"},
	} {
		w := newWorld(t)
		tc.fault.Probability, tc.fault.Count, tc.fault.Route = 1, 1, "batch/write"
		w.hubspot.SetFaults(tc.fault)
		id := w.decide("a@example.com", "plain", "unsubscribed", noon)
		w.pass()
		w.idle()
		w.exec(`UPDATE hubspot_portals SET paused_until = NULL`) // an operator mended the token
		w.settle()
		w.expect(name, w.status(id), tc.end)
		if tc.end == "synced" {
			w.expect(name+": no attempt is burnt", w.text(`SELECT process_attempts::text FROM hubspot_outbox_events`), 0)
		}
	}
}

func TestCrash6ExpiredLeasesOfRelayAndWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.decide("a@example.com", "plain", "subscribed", noon)
	if _, err := w.db.ClaimPublishable(t.Context(), []postgres.Route{{PortalID: "main", Lane: outbox.LaneLive, Room: 10, Brands: []string{"acme"}}}, 10, uuid.New(), time.Minute); err != nil {
		t.Fatal(err)
	}
	w.expect("a living relay's", w.pass().Claimed, 0)
	w.exec(`UPDATE hubspot_outbox_events SET lease_expires_at = now(), next_attempt_at = now()`)
	claims, err := w.db.ClaimEvents(t.Context(), []uuid.UUID{id}, postgres.ClaimOptions{Lease: time.Minute, Late: time.Minute, MaxAttempts: 8})
	if err != nil || claims[0].Verdict != postgres.VerdictClaimed {
		t.Fatal(claims, err)
	}
	w.expect("a living worker's", w.run().Scheduled, 0)
	w.exec(`UPDATE hubspot_outbox_events SET lease_expires_at = now(), next_attempt_at = now()`)
	w.exec(`UPDATE contact_subscription_state SET lease_expires_at = now() - interval '1 second'`)
	w.expect("a dead worker's", w.run().Scheduled, 1)
	w.settle()
	w.expect("event", w.status(id), "synced")
	w.expect("taken over", w.text(`SELECT (uncertain_until IS NOT NULL)::text || ' ' || fence FROM contact_subscription_state`), "true 2")
	// The dead worker wakes up and commits: too late.
	settled, err := w.db.SettleEvents(t.Context(), []postgres.Settlement{{Claim: claims[0], Outcome: postgres.OutcomeDead, Code: "late"}}, nil, postgres.SettleOptions{Late: time.Minute})
	if err != nil || settled[0].Held {
		t.Error(settled, err)
	}
	w.expect("event", w.status(id), "synced")
}

func TestCrash7AnOlderSubscribeAfterANewerUnsubscribe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older := w.decide("a@example.com", "news", "subscribed", noon)
	newer := w.decide("a@example.com", "news", "unsubscribed", noon.Add(time.Hour))
	late := w.decide("a@example.com", "news", "subscribed", noon.Add(time.Minute)) // decided before, arrived after
	w.expect("late", w.status(late), "superseded")
	w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() + interval '1 hour' WHERE id = $1`, older.String())
	w.pass()
	w.idle()
	w.expect("newer", w.status(newer), "synced")
	w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE id = $1`, older.String())
	w.pass()
	w.idle()
	w.expect("older", w.status(older), "superseded")
	w.expect("HubSpot", w.shown("a@example.com", 5), "UNSUBSCRIBED")
	w.expect("written once", w.writes("a@example.com"), 1)
}

func TestCrash8TwoReconcilersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.qstash.SetFaults(qstashtest.Faults{Drop: 1})
	for i := range 60 {
		w.decide(uuid.NewString()+"@example.com", "plain", "unsubscribed", noon.Add(time.Duration(i)))
	}
	w.pass()
	w.qstash.SetFaults(qstashtest.Faults{})
	w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now()`)
	var wg sync.WaitGroup
	var mu sync.Mutex
	scheduled := 0
	for range 3 {
		wg.Go(func() {
			r := w.run()
			mu.Lock()
			defer mu.Unlock()
			scheduled += r.Scheduled
		})
	}
	wg.Wait()
	w.expect("scheduled once each", scheduled, 60)
	w.settle()
	w.expect("synced", w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'synced' AND generation = 2`), 60)
}

func TestCrash9ARepairedMappingIsReplayedUnderANewVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("maybe") // version 2: a value that the property does not have
	bad := w.decide("a@example.com", "news", "subscribed", noon)
	replaced := w.decide("b@example.com", "news", "subscribed", noon)
	w.settle()
	w.expect("bad", w.status(bad), "dead")
	w.decide("b@example.com", "news", "unsubscribed", noon.Add(time.Minute))
	w.settle()
	w.apply("true") // version 3
	w.settle()
	w.expect("a new mapping alone changes nothing", w.status(bad), "dead")
	code := w.text(`SELECT last_error_code FROM hubspot_outbox_events WHERE id = $1`, bad.String())
	n, err := w.db.CountReplayable(t.Context(), postgres.ReplayFilter{Code: code, MappingVersion: 2}, 100)
	if err != nil || n != 1 {
		t.Errorf("dry run: %d, %v", n, err)
	}
	if n, err = w.db.ReplayDead(t.Context(), postgres.ReplayFilter{Code: code, MappingVersion: 2}, 100); err != nil || n != 1 {
		t.Errorf("replayed %d, %v", n, err)
	}
	w.settle()
	w.expect("the dead one stays for the record", w.status(bad)+w.status(replaced), "deaddead")
	w.expect("the new event", w.text(`SELECT status || ' ' || mapping_version || ' ' || revision || ' ' || sequence FROM hubspot_outbox_events WHERE revision = 2`), "synced 3 2 2")
	contact, _ := w.hubspot.Contact("main", "a@example.com")
	w.expect("HubSpot", contact.Properties["news"]+w.shown("a@example.com", 5), "trueSUBSCRIBED")
	w.expect("nobody is resubscribed", w.shown("b@example.com", 5), "UNSUBSCRIBED")
	if n, err = w.db.ReplayDead(t.Context(), postgres.ReplayFilter{}, 100); err != nil || n != 0 {
		t.Errorf("replayed again: %d, %v", n, err)
	}
}
