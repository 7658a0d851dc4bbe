package worker_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/postgres"
	"hubsync/shared/worker"
)

// optOutOfAll stores an opt-out of acme, or of everything, and returns its wide event and
// how many others it made.
func (w *world) optOutOfAll(brand, email string) (wide uuid.UUID, others []uuid.UUID) {
	w.t.Helper()
	w.serial++
	d := postgres.Decision{RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: brand, ContactKey: "key-" + email, Email: email, EmailKey: email,
		IdempotencyKey: "wide", RequestHash: "h", Source: "unsubscribe_all"}
	if _, err := w.db.UnsubscribeAll(w.t.Context(), d); err != nil {
		w.t.Fatal(err)
	}
	rows, err := w.pool.Query(w.t.Context(), `SELECT id::text FROM hubspot_outbox_events WHERE status = 'pending' AND NOT payload ? 'wide'`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			w.t.Fatal(err)
		}
		others = append(others, uuid.MustParse(id))
	}
	return d.EventID, others
}

func TestAnOptOutOfAllArrivesWide(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		brand  string
		unit   int64
		change func(*hubspottest.Portal, *worker.Config)
	}{
		"of a brand":            {brand: "acme", unit: 7},
		"of the portal":         {brand: "*", unit: 0},
		"without batch writing": {brand: "acme", unit: 7, change: func(p *hubspottest.Portal, _ *worker.Config) { p.Plan = hubspottest.Professional }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := tc.change
			if change == nil {
				change = func(*hubspottest.Portal, *worker.Config) {}
			}
			w := newWorld(t, change)
			w.deliver(w.accept(decision{state: "subscribed", email: addressA}))
			wide, others := w.optOutOfAll(tc.brand, addressA)
			w.deliver(append(others, wide)...)
			w.expect("event", w.event(wide), "synced 0 -")
			w.expect("shown", w.hubspot.OptedOutOfAll("main", addressA, tc.unit), true)
			w.expect("nothing wider than asked", w.hubspot.OptedOutOfAll("main", addressA, 0), tc.unit == 0)
			w.expect("subscription", w.status(addressA, newsID), "UNSUBSCRIBED")
			w.expect("receipts", w.text(`SELECT count(*)::text FROM hubspot_operation_receipts WHERE operation = 'opt_out_of_all'`), 1)
		})
	}
}

// HubSpot's time of our wide opt-out is later than a consent that came just after the
// person's: without the stamp that consent would give way to our own echo.
func TestAConsentAfterOurOptOutOfAllIsNoObstacle(t *testing.T) {
	t.Parallel()
	for _, brand := range []string{"acme", "*"} {
		w := newWorld(t)
		wide, _ := w.optOutOfAll(brand, addressA)
		consent := time.Now()
		time.Sleep(5 * time.Millisecond)
		w.deliver(wide)
		again := w.accept(decision{state: "subscribed", email: addressA, consent: consent})
		w.deliver(again)
		w.expect("a consent that came before the write landed", w.event(again), "synced 0 -")
		w.expect("what HubSpot will not act on", w.text(`SELECT kind || ': ' || detail FROM contact_conflicts`), "opted_out_of_all_in_hubspot: portal main, brand acme")
	}
}

// A person's own wide opt-out is not taken for ours, although we wanted it too.
func TestAPersonsWideOptOutStaysTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wide, _ := w.optOutOfAll("acme", addressA)
	consent := time.Now()
	w.hubspot.OptOutOfAll("main", addressA, 7, consent.Add(time.Second))
	w.deliver(wide)
	w.expect("event", w.event(wide), "synced 0 -")
	again := w.accept(decision{state: "subscribed", email: addressA, consent: consent})
	w.deliver(again)
	w.expect("an older consent", w.event(again)[:10], "superseded")
	w.expect("subscription", w.status(addressA, newsID) != "SUBSCRIBED", true)
}

// A wide opt-out that HubSpot refuses or loses is written again.
func TestAnOptOutOfAllIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wide, _ := w.optOutOfAll("*", addressA)
	w.hubspot.SetFaults(hubspottest.Fault{Route: "unsubscribe-all", Probability: 1, Count: 2, Status: 502})
	w.deliver(wide)
	w.expect("waits", w.event(wide)[:13], "process_retry")
	w.due(wide)
	w.hubspot.SetFaults()
	w.deliver(wide)
	w.expect("event", w.event(wide)[:6], "synced")
	w.expect("shown", w.hubspot.OptedOutOfAll("main", addressA, 0), true)
}
