package reconcile_test

import (
	"testing"

	"github.com/google/uuid"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// A wide opt-out that HubSpot lost is written again; one that a later consent lifted is
// left as it is.
func TestAWideOptOutIsCheckedUntilALaterConsent(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Enterprise)
	email := w.settled(outbox.Unsubscribed)
	d := postgres.Decision{RequestID: uuid.New(), EventID: uuid.New(), BrandID: "acme", ContactKey: email[:len(email)-12], Email: email, EmailKey: email,
		IdempotencyKey: "wide", RequestHash: "h", Source: "unsubscribe_all"}
	if _, err := w.db.UnsubscribeAll(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.exec(`UPDATE hubspot_outbox_events SET status = 'synced', completed_at = hubsync.now() WHERE completed_at IS NULL`)
	w.exec(`UPDATE contact_subscription_state SET applied_sequence = latest_sequence, applied_state = desired_state`)
	w.hubspot.OptOutOfAll("main", email, 7, w.now)
	w.dueNow()
	if r := w.run(); r.Equal != 2 || r.Repaired != 0 {
		t.Errorf("shown: %+v", r)
	}
	w.hubspot.LiftOptOutOfAll("main", email, 7)
	w.dueNow()
	if r := w.run(); r.Repaired != 1 || r.Inbound != 0 {
		t.Errorf("lost: %+v", r)
	}
	w.exec(`UPDATE hubspot_outbox_events SET status = 'synced', completed_at = hubsync.now() WHERE completed_at IS NULL`)
	w.exec(`UPDATE contact_subscription_state SET repaired_difference = NULL, desired_state = 'subscribed' WHERE product_id = 'news'`)
	w.exec(`UPDATE contact_subscription_state SET check_at = hubsync.now() WHERE product_id = '*'`)
	if r := w.run(); r.Checked != 0 {
		t.Errorf("lifted: %+v", r)
	}
	if again := text(w, `SELECT (check_at > hubsync.now() + interval '1 hour')::text FROM contact_subscription_state WHERE product_id = '*'`); again != "true" {
		t.Error("it is looked at again and again")
	}
}
