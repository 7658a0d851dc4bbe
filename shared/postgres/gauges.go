package postgres

import (
	"context"
	"fmt"
	"time"

	"hubsync/shared/outbox"
)

// Gauges are what an alarm looks at once a minute.
type Gauges struct {
	// Oldest is the age of the oldest decision that HubSpot does not show, by lane.
	Oldest map[outbox.Lane]time.Duration
	Dead   int // events that died and still decide their subscription
	Drift  int // differences that a repair did not mend
	Held   int // runs of the check that wait for a person
	Paused int // portals to which nothing, or nothing but opt-outs, is sent
}

// selectOldest looks at the first rows of each index range only, so it costs the same with
// millions waiting. What waits for its first try stands in the order of its arrival; a
// retry is seen at the latest when it is due, which is some minutes off at most.
const selectOldest = `
SELECT l.lane, coalesce(extract(epoch FROM hubsync.clock() - least(min(w.oldest), min(f.oldest)))::float8, 0)
FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (lane)
LEFT JOIN hubspot_portals p ON true
LEFT JOIN LATERAL (
  SELECT min(x.created_at) AS oldest
  FROM brands b
  CROSS JOIN LATERAL (
    SELECT d.created_at FROM hubspot_outbox_events d
    WHERE d.portal_id = p.id AND d.lane = l.lane AND d.brand_id = b.id
      AND d.status IN ('pending', 'publishing', 'publish_retry', 'process_retry')
    ORDER BY d.next_attempt_at
    LIMIT 20
  ) x
) w ON true
LEFT JOIN LATERAL (
  SELECT min(x.created_at) AS oldest
  FROM (
    SELECT d.created_at FROM hubspot_outbox_events d
    WHERE d.portal_id = p.id AND d.lane = l.lane AND d.status IN ('queued', 'processing')
    ORDER BY d.next_attempt_at
    LIMIT 1000
  ) x
) f ON true
GROUP BY l.lane`

const selectGauges = `
SELECT
  (SELECT count(*) FROM hubspot_outbox_events e
   JOIN subscription_requests r ON r.id = e.request_id
   JOIN contact_subscription_state s
     ON s.contact_key = r.contact_key AND s.brand_id = r.brand_id AND s.product_id = r.product_id AND s.latest_event_id = e.id
   WHERE e.status = 'dead'),
  (SELECT count(*) FROM drift_listings WHERE resolved_at IS NULL),
  (SELECT count(*) FROM reconcile_runs WHERE held_at IS NOT NULL AND approved_at IS NULL),
  (SELECT count(*) FROM hubspot_portals p
   WHERE p.paused_until > hubsync.now()
      OR EXISTS (SELECT 1 FROM service_breakers k WHERE k.service = 'hubspot:' || p.id AND k.open_until > hubsync.now())
      OR EXISTS (SELECT 1 FROM pauses x WHERE x.portal_id IN ('', p.id) AND x.brand_id = '' AND x.lane = -1 AND x.paused_until > hubsync.now()))`

// Gauges reads what the alarms look at.
func (db *DB) Gauges(ctx context.Context) (Gauges, error) {
	g := Gauges{Oldest: map[outbox.Lane]time.Duration{}}
	rows, err := db.pool.Query(ctx, selectOldest)
	if err != nil {
		return g, fmt.Errorf("read the oldest decisions: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var lane outbox.Lane
		var seconds float64
		if err := rows.Scan(&lane, &seconds); err != nil {
			return g, fmt.Errorf("read the oldest decisions: %w", err)
		}
		g.Oldest[lane] = time.Duration(max(seconds, 0) * float64(time.Second))
	}
	if err := rows.Err(); err != nil {
		return g, fmt.Errorf("read the oldest decisions: %w", err)
	}
	if err := db.pool.QueryRow(ctx, selectGauges).Scan(&g.Dead, &g.Drift, &g.Held, &g.Paused); err != nil {
		return g, fmt.Errorf("read what a person must look at: %w", err)
	}
	return g, nil
}
