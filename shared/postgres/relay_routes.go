package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

// Route is one portal and lane with due events and room in QStash.
type Route struct {
	PortalID string
	Lane     outbox.Lane
	Room     int      // events that may still be queued
	Brands   []string // with due events, the longest waiting one first
	// Recovering: HubSpot was away. The lanes share one room then, opt-outs first.
	Recovering bool
}

// isPaused holds for an event (as e) that a row of pauses stops at a time.
const isPaused = `EXISTS (SELECT 1 FROM pauses x
  WHERE x.portal_id IN ('', e.portal_id) AND x.brand_id IN ('', e.brand_id) AND x.lane IN (-1, e.lane)
    AND x.paused_until > hubsync.clock() AND (e.lane <> 0 OR x.opt_outs))`

// The rest of a backlog waits here, where lanes and coalescing still work: per route
// only as much is queued as the budget serves in a minute, and less while HubSpot
// recovers from an outage. What is paused, or away, has no route, so that its rows are
// never walked over; opt-outs go on unless told otherwise. The count of what is queued
// stops at the cap.
const selectRoutes = `
SELECT e.portal_id, e.lane, cap.events - q.queued AS room, array_agg(e.brand_id ORDER BY e.next_attempt_at, e.brand_id) AS brands,
       k.service IS NOT NULL AS recovering
FROM hubspot_portals p
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (lane)
CROSS JOIN brands b
CROSS JOIN LATERAL (
  SELECT d.portal_id, d.lane, d.brand_id, d.next_attempt_at
  FROM hubspot_outbox_events d
  WHERE d.portal_id = p.id AND d.lane = l.lane AND d.brand_id = b.id
    AND d.status IN ('pending', 'publishing', 'publish_retry', 'process_retry')
    AND d.next_attempt_at <= hubsync.now()
  ORDER BY d.next_attempt_at
  LIMIT 1) e
LEFT JOIN service_breakers k ON k.service = 'hubspot:' || p.id
CROSS JOIN LATERAL (
  SELECT least(greatest(round($1::float8 * p.burst_limit * $2::float8 * 1000 / p.burst_window_ms), $3::float8), k.room)::bigint AS events) cap
CROSS JOIN LATERAL (
  SELECT count(*) AS queued FROM (
    SELECT 1 FROM hubspot_outbox_events f
    WHERE f.portal_id = p.id AND f.lane BETWEEN CASE WHEN k.service IS NULL THEN l.lane ELSE 0 END AND l.lane AND f.status = 'queued'
    LIMIT cap.events) x) q
WHERE (p.paused_until IS NULL OR p.paused_until <= hubsync.now() OR (l.lane = 0 AND NOT p.pause_opt_outs))
  AND (k.open_until IS NULL OR k.open_until <= hubsync.now())
  AND NOT ` + isPaused + `
GROUP BY e.portal_id, e.lane, cap.events, q.queued, k.service
ORDER BY e.lane, e.portal_id`

// RouteOptions bound what is queued.
type RouteOptions struct {
	RateScale     float64
	Ahead         time.Duration // how much of the budget's time is queued ahead
	EventsPerCall float64       // contacts converged by one HubSpot call in full messages
	Least         int
}

// Routes returns the unpaused routes that have room, opt-outs first.
func (db *DB) Routes(ctx context.Context, o RouteOptions) ([]Route, error) {
	scale := o.RateScale * o.EventsPerCall
	routes, err := list(ctx, db, "read routes", pgx.RowToStructByPos[Route], selectRoutes, scale, o.Ahead.Seconds(), float64(o.Least))
	if err != nil {
		return nil, err
	}
	open := routes[:0]
	for _, r := range routes {
		if r.Room > 0 {
			open = append(open, r)
		}
	}
	return open, nil
}
