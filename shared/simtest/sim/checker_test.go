package sim

import (
	"slices"
	"strings"
	"testing"
)

// TestTheCheckerSees spoils worlds that went well, in the ways in which a broken product
// would: a checker that is blind finds nothing in any seed.
func TestTheCheckerSees(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for name, tc := range map[string]struct {
		invariant string
		spoil     func(w *world, a accepted)
	}{
		"a lost decision": {"I1", func(w *world, a accepted) {
			w.d.exec(`UPDATE subscription_requests SET sync_status = 'pending' WHERE idempotency_key = $1`, a.key)
		}},
		"a state that nobody decided": {"I2", func(w *world, a accepted) {
			p := placeOf(a.brand, a.product)
			s, _ := w.hubspot.Status(p.portal, a.email, p.subscription)
			other := map[string]string{"SUBSCRIBED": "UNSUBSCRIBED", "UNSUBSCRIBED": "SUBSCRIBED"}[s.State]
			w.hubspot.SetStatus(p.portal, a.email, p.subscription, other, start)
		}},
		"a subscribe over an opt-out that was read": {"I3", func(w *world, a accepted) {
			event := w.query(`SELECT e.id::text FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id WHERE r.idempotency_key = $1 LIMIT 1`, a.key)
			w.ledger.overtook = append(w.ledger.overtook, overtaking{event: event, act: &acted{at: w.now, step: 1}, read: 2})
		}},
		"too many calls": {"I4", func(w *world, _ accepted) {
			for range burstLimit + 1 {
				w.ledger.calls = append(w.ledger.calls, &sent{portal: "main", began: w.now, landed: w.now})
			}
		}},
		"an address in the log": {"I7", func(w *world, a accepted) { w.logger.Info("sent to " + a.email) }},
		"a second effect": {"I8", func(w *world, a accepted) {
			w.d.exec(`INSERT INTO subscription_requests (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash, consent_at, sync_status)
				SELECT gen_random_uuid(), brand_id, contact_key, product_id, desired_state, mapping_version, 'twin', request_hash, consent_at, 'synced'
				FROM subscription_requests WHERE idempotency_key = $1`, a.key)
		}},
	} {
		p := newPlan(5, nil)
		p.items = slices.DeleteFunc(p.items, func(i item) bool { _, ok := i.do.(decision); return !ok })
		w := newWorld(l.d, l.r, p, false)
		w.setUp()
		if !w.rest("the traffic") {
			t.Fatal(w.ledger.violations)
		}
		tc.spoil(w, w.ledger.accepted[len(w.ledger.accepted)-1])
		w.setOwnClock()
		w.look()
		if !slices.ContainsFunc(w.ledger.violations, func(v string) bool { return strings.HasPrefix(v, tc.invariant) }) {
			t.Errorf("%s: %q is not noticed", name, w.ledger.violations)
		}
		w.close()
	}
}
