package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

// QStashBreaker is the name of the breaker that a refused QStash token opens.
const QStashBreaker = "qstash"

// Route is one portal and lane with room in QStash.
type Route struct {
	PortalID string
	Lane     outbox.Lane
	Room     int // events that may still be queued
}

// The rest of a backlog waits here, where lanes and coalescing still work: per route
// only as much is queued as the budget serves in a minute. A paused portal has no
// routes, so its rows are never walked over; its opt-outs go on unless told otherwise.
// The count of what is queued stops at the cap.
const selectRoutes = `
SELECT p.id, l.lane,
       cap.events - (SELECT count(*) FROM (
         SELECT 1 FROM hubspot_outbox_events e
         WHERE e.portal_id = p.id AND e.lane = l.lane AND e.status = 'queued'
         LIMIT cap.events) q) AS room
FROM hubspot_portals p
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (lane)
CROSS JOIN LATERAL (
  SELECT greatest(round($1::float8 * p.burst_limit * $2::float8 * 1000 / p.burst_window_ms), $3::float8)::bigint AS events) cap
WHERE p.paused_until IS NULL OR p.paused_until <= hubsync.now() OR (l.lane = 0 AND NOT p.pause_opt_outs)
ORDER BY l.lane, p.id`

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
	rows, err := db.pool.Query(ctx, selectRoutes, scale, o.Ahead.Seconds(), float64(o.Least))
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	routes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Route])
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	open := routes[:0]
	for _, r := range routes {
		if r.Room > 0 {
			open = append(open, r)
		}
	}
	return open, nil
}

// Publishable is an event that a relay claimed.
type Publishable struct {
	ID           uuid.UUID
	PortalID     string
	BrandID      string
	Lane         outbox.Lane
	Generation   int
	Attempts     int // to publish it, this one included
	TravelsAlone bool
	Traceparent  string
}

// claimPublishable takes what is due per route: waiting events, and publishing ones
// whose lease ended, which is their next_attempt_at. One index serves both; a query
// with OR walks over the whole backlog. The LIMITs stand in a joined CTE: inside
// IN (…) a nested loop would evaluate them anew per row and claim far more. The outer
// one holds where there are more routes than events to claim: a probe is one event.
const claimPublishable = `
WITH due AS MATERIALIZED (
  SELECT e.id
  FROM unnest($1::text[], $2::smallint[], $3::bigint[]) AS r (portal_id, lane, room)
  CROSS JOIN LATERAL (
    SELECT d.id
    FROM hubspot_outbox_events d
    WHERE d.portal_id = r.portal_id AND d.lane = r.lane
      AND d.status IN ('pending', 'publishing', 'publish_retry', 'process_retry')
      AND d.next_attempt_at <= hubsync.now()
    ORDER BY d.next_attempt_at
    LIMIT r.room
    FOR UPDATE SKIP LOCKED
  ) e
  LIMIT $6::bigint
)
UPDATE hubspot_outbox_events e
SET status = 'publishing', claim_token = $4, publish_attempts = e.publish_attempts + 1,
    lease_expires_at = hubsync.now() + $5::interval, next_attempt_at = hubsync.now() + $5::interval
FROM due
WHERE e.id = due.id
RETURNING e.id::text, e.portal_id, e.brand_id, e.lane, e.generation, e.publish_attempts, e.travels_alone,
          coalesce(e.traceparent, '')`

// ClaimPublishable claims up to limit due events, opt-outs first, each route within its
// room. Nobody else gets them until the lease ends. With an error come the events that
// were claimed before it.
func (db *DB) ClaimPublishable(ctx context.Context, routes []Route, limit int, token uuid.UUID, lease time.Duration) ([]Publishable, error) {
	var claimed []Publishable
	for lane, portals := range byLane(routes) {
		if limit <= len(claimed) {
			break
		}
		events, err := db.claimLane(ctx, outbox.Lane(lane), portals, limit-len(claimed), token, lease)
		claimed = append(claimed, events...)
		if err != nil {
			return claimed, err
		}
	}
	return claimed, nil
}

func byLane(routes []Route) [][]Route {
	lanes := make([][]Route, len(outbox.Lanes))
	for _, r := range routes {
		lanes[r.Lane] = append(lanes[r.Lane], r)
	}
	return lanes
}

// claimLane shares the limit between the portals, so that a large backlog of one does
// not take the others' turn; what some leave is offered again to those that took their
// whole share, so that a large backlog does not crawl beside idle portals either.
func (db *DB) claimLane(ctx context.Context, lane outbox.Lane, routes []Route, limit int, token uuid.UUID, lease time.Duration) ([]Publishable, error) {
	var claimed []Publishable
	for limit > len(claimed) && len(routes) > 0 {
		left := limit - len(claimed)
		share := max(left/len(routes), 1)
		events, err := db.claimRoutes(ctx, lane, routes, share, left, token, lease)
		if err != nil {
			return claimed, err
		}
		claimed = append(claimed, events...)
		routes = hungry(routes, events, share)
	}
	return claimed, nil
}

// hungry returns the routes that took their whole share and have room for more.
func hungry(routes []Route, events []Publishable, share int) []Route {
	taken := map[string]int{}
	for _, e := range events {
		taken[e.PortalID]++
	}
	var more []Route
	for _, r := range routes {
		if n := taken[r.PortalID]; n >= share && r.Room > n {
			more = append(more, Route{r.PortalID, r.Lane, r.Room - n})
		}
	}
	return more
}

// claimRoutes claims at most share events per route, and at most limit of all.
func (db *DB) claimRoutes(ctx context.Context, lane outbox.Lane, routes []Route, share, limit int, token uuid.UUID, lease time.Duration) ([]Publishable, error) {
	var portals []string
	var lanes []int16
	var rooms []int64
	for _, r := range routes {
		portals, lanes, rooms = append(portals, r.PortalID), append(lanes, int16(lane)), append(rooms, int64(min(r.Room, share)))
	}
	rows, err := db.pool.Query(ctx, claimPublishable, portals, lanes, rooms, token.String(), lease, limit)
	if err != nil {
		return nil, fmt.Errorf("claim events of lane %s: %w", lane, err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Publishable, err error) {
		var id string
		if err = row.Scan(&id, &p.PortalID, &p.BrandID, &p.Lane, &p.Generation, &p.Attempts, &p.TravelsAlone, &p.Traceparent); err == nil {
			p.ID, err = uuid.Parse(id)
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim events of lane %s: %w", lane, err)
	}
	return events, nil
}

// Published is the end of one claimed event's way to QStash.
type Published struct {
	EventID   uuid.UUID
	MessageID string        // set: QStash has it
	Delay     time.Duration // else: publish_retry after this time
	Code      string
	Summary   string
	Dead      bool // no retry mends it
	Unburnt   bool // the attempt does not count: the token was refused
}

// markPublished writes only rows that this relay still holds. One that a worker has
// already taken, because the message was faster than its mark, is left alone; a row
// that is locked keeps its lease and is published again, a harmless twin.
const markPublished = `
WITH mark AS (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::boolean[], $7::boolean[])
  AS x (id, message_id, delay_ms, code, summary, dead, unburnt)
),
held AS MATERIALIZED (
  SELECT e.id FROM hubspot_outbox_events e
  WHERE e.id = ANY($1::uuid[]) AND e.status = 'publishing' AND e.claim_token = $8
  FOR UPDATE SKIP LOCKED
)
UPDATE hubspot_outbox_events e
SET status = CASE WHEN x.message_id <> '' THEN 'queued' WHEN x.dead THEN 'dead' ELSE 'publish_retry' END,
    qstash_message_id = CASE WHEN x.message_id <> '' THEN x.message_id ELSE e.qstash_message_id END,
    next_attempt_at = hubsync.now() + CASE WHEN x.message_id <> '' THEN $9::interval
                                           ELSE x.delay_ms * interval '1 millisecond' END,
    completed_at = CASE WHEN x.message_id = '' AND x.dead THEN hubsync.now() END,
    publish_attempts = e.publish_attempts - x.unburnt::integer,
    lease_expires_at = NULL, claim_token = NULL,
    last_error_code = CASE WHEN x.code = '' THEN e.last_error_code ELSE x.code END,
    last_error_summary = CASE WHEN x.code = '' THEN e.last_error_summary ELSE x.summary END
FROM mark x, held h
WHERE e.id = x.id AND e.id = h.id AND e.status = 'publishing' AND e.claim_token = $8
RETURNING e.request_id::text, e.status`

const markRequestsDead = `
UPDATE subscription_requests SET sync_status = 'dead', status_reason = 'publish_config' WHERE id = ANY($1::uuid[])`

// MarkPublished writes how publishing ended, for the rows that the claim with this
// token still holds, and returns how many those were.
func (db *DB) MarkPublished(ctx context.Context, token uuid.UUID, marks []Published, deliveryWindow time.Duration) (int, error) {
	if len(marks) == 0 {
		return 0, nil
	}
	var ids, messages, codes, summaries []string
	var delays []int64
	var dead, unburnt []bool
	for _, m := range marks {
		ids, messages = append(ids, m.EventID.String()), append(messages, m.MessageID)
		codes, summaries = append(codes, m.Code), append(summaries, m.Summary)
		delays, dead, unburnt = append(delays, m.Delay.Milliseconds()), append(dead, m.Dead), append(unburnt, m.Unburnt)
	}
	marked := 0
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, markPublished, ids, messages, delays, codes, summaries, dead, unburnt, token.String(), deliveryWindow)
		if err != nil {
			return err
		}
		var deadRequests []string
		marked = 0
		var request, status string
		if _, err = pgx.ForEachRow(rows, []any{&request, &status}, func() error {
			marked++
			if status == string(outbox.Dead) {
				deadRequests = append(deadRequests, request)
			}
			return nil
		}); err != nil || len(deadRequests) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, markRequestsDead, deadRequests)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("mark %d events: %w", len(marks), err)
	}
	return marked, nil
}

// The time doubles from one opening to the next, whichever process opened it: functions
// come and go. One that is open is left alone, so that two relays that are refused at
// the same moment count once.
const openBreaker = `
INSERT INTO service_breakers AS b (service, open_until, reason, updated_at)
VALUES ($1, hubsync.now() + $2::interval, $4, hubsync.now())
ON CONFLICT (service) DO UPDATE
SET open_until = hubsync.now() + least(greatest(2 * (b.open_until - b.updated_at), $2::interval), $3::interval),
    reason = excluded.reason, updated_at = excluded.updated_at
WHERE b.open_until <= hubsync.now()`

// OpenBreaker keeps everybody from a service, for the time first, then longer at every
// opening without a success between, at most for the time most.
func (db *DB) OpenBreaker(ctx context.Context, service string, first, most time.Duration, reason string) error {
	if _, err := db.pool.Exec(ctx, openBreaker, service, first, most, reason); err != nil {
		return fmt.Errorf("open breaker of %s: %w", service, err)
	}
	return nil
}

// Breaker is the state of a service's breaker.
type Breaker struct {
	Open   bool
	Exists bool // it was opened and no success has closed it: the next call is a probe
}

const selectBreaker = `SELECT open_until > hubsync.now() FROM service_breakers WHERE service = $1`

// Breaker reads a service's breaker.
func (db *DB) Breaker(ctx context.Context, service string) (Breaker, error) {
	b := Breaker{Exists: true}
	err := db.pool.QueryRow(ctx, selectBreaker, service).Scan(&b.Open)
	if errors.Is(err, pgx.ErrNoRows) {
		return Breaker{}, nil
	}
	if err != nil {
		return Breaker{}, fmt.Errorf("read breaker of %s: %w", service, err)
	}
	return b, nil
}

const closeBreaker = `DELETE FROM service_breakers WHERE service = $1`

// CloseBreaker says that a service works again.
func (db *DB) CloseBreaker(ctx context.Context, service string) error {
	if _, err := db.pool.Exec(ctx, closeBreaker, service); err != nil {
		return fmt.Errorf("close breaker of %s: %w", service, err)
	}
	return nil
}
