package postgres_test

import (
	"testing"
	"time"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

func TestGaugesSeeWhatAPersonMustLookAt(t *testing.T) {
	t.Parallel()
	pool := newOutbox(t)
	db := postgres.New(pool)
	read := func() postgres.Gauges {
		t.Helper()
		g, err := db.Gauges(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	if g := read(); g.Dead+g.Drift+g.Held+g.Paused != 0 || len(g.Oldest) != 3 || g.Oldest[outbox.LaneOptOut] != 0 {
		t.Errorf("an idle system shows %+v", g)
	}
	// Rows of an hour's age in each lane: waiting, on its way, settled.
	execute(t, pool, outboxRows, "pending", "main", 0, 30)
	execute(t, pool, outboxRows, "processing", "main", 1, 1)
	execute(t, pool, outboxRows, "synced", "main", 2, 1)
	g := read()
	for lane, want := range map[outbox.Lane]time.Duration{outbox.LaneOptOut: time.Hour, outbox.LaneLive: time.Hour, outbox.LaneBulk: 0} {
		if d := g.Oldest[lane] - want; d < 0 || d > time.Minute {
			t.Errorf("lane %s: %s, want %s", lane, g.Oldest[lane], want)
		}
	}

	execute(t, pool, `UPDATE hubspot_outbox_events SET status = 'dead', completed_at = now() WHERE status IN ('pending', 'processing')`)
	if g := read(); g.Dead != 0 {
		t.Errorf("%d dead events of which none decides a subscription", g.Dead)
	}
	execute(t, pool, `INSERT INTO contact_subscription_state (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state)
		SELECT 'k', 'acme', 'p', 'main', 1, id, 'subscribed' FROM hubspot_outbox_events WHERE status = 'dead' LIMIT 1`)
	execute(t, pool, `INSERT INTO drift_listings (contact_key, brand_id, product_id, difference, resolved_at) VALUES ('k', 'acme', 'p', 'a', NULL), ('k', 'acme', 'p', 'b', now())`)
	execute(t, pool, `INSERT INTO reconcile_runs (id, kind, held_at, approved_at) VALUES (gen_random_uuid(), 'check', now(), NULL), (gen_random_uuid(), 'check', now(), now())`)
	execute(t, pool, `UPDATE hubspot_portals SET paused_until = now() + interval '1 hour'`)
	if g := read(); g.Dead != 1 || g.Drift != 1 || g.Held != 1 || g.Paused != 1 {
		t.Errorf("%+v", g)
	}
	execute(t, pool, `UPDATE hubspot_portals SET paused_until = now() - interval '1 hour'`)
	execute(t, pool, `INSERT INTO pauses (paused_until, reason, brand_id) VALUES (now() + interval '1 hour', 'r', 'acme')`)
	if g := read(); g.Paused != 0 {
		t.Errorf("a brand's pause is taken for a portal's: %+v", g)
	}
	execute(t, pool, `INSERT INTO pauses (paused_until, reason) VALUES (now() + interval '1 hour', 'r')`)
	if g := read(); g.Paused != 1 {
		t.Errorf("everything is paused: %+v", g)
	}
}
