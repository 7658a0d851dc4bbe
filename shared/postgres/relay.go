package postgres

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

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

// claimPublishable takes what is due per portal, lane and brand: waiting events, and
// publishing ones whose lease ended, which is their next_attempt_at. One index serves
// both; a query with OR walks over the whole backlog. The LIMITs stand in a joined CTE:
// inside IN (…) a nested loop would evaluate them anew per row and claim far more. The
// outer one holds where there are more routes than events to claim: a probe is one event.
const claimPublishable = `
WITH due AS MATERIALIZED (
  SELECT e.id
  FROM unnest($1::text[], $2::text[], $3::bigint[]) AS r (portal_id, brand_id, share)
  CROSS JOIN LATERAL (
    SELECT d.id
    FROM hubspot_outbox_events d
    WHERE d.portal_id = r.portal_id AND d.lane = $4::smallint AND d.brand_id = r.brand_id
      AND d.status IN ('pending', 'publishing', 'publish_retry', 'process_retry')
      AND d.next_attempt_at <= hubsync.now()
    ORDER BY d.next_attempt_at
    LIMIT r.share
    FOR UPDATE SKIP LOCKED
  ) e
  LIMIT $5::bigint
)
UPDATE hubspot_outbox_events e
SET status = 'publishing', claim_token = $6, publish_attempts = e.publish_attempts + 1,
    lease_expires_at = hubsync.now() + $7::interval, next_attempt_at = hubsync.now() + $7::interval
FROM due
WHERE e.id = due.id
RETURNING e.id::text, e.portal_id, e.brand_id, e.lane, e.generation, e.publish_attempts, e.travels_alone,
          coalesce(e.traceparent, '')`

// ClaimPublishable claims up to limit due events, opt-outs first, each route within its
// room. Nobody else gets them until the lease ends. With an error come the events that
// were claimed before it.
func (db *DB) ClaimPublishable(ctx context.Context, routes []Route, limit int, token uuid.UUID, lease time.Duration) ([]Publishable, error) {
	var claimed []Publishable
	for lane, routes := range byLane(routes) {
		if limit <= len(claimed) {
			break
		}
		leaveRoom(routes, claimed)
		c := claim{db: db, lane: outbox.Lane(lane), limit: limit - len(claimed), token: token, lease: lease}
		err := c.all(ctx, routes)
		claimed = append(claimed, c.events...)
		if err != nil {
			return claimed, fmt.Errorf("claim events of lane %s: %w", c.lane, err)
		}
	}
	return claimed, nil
}

// leaveRoom takes what more urgent lanes claimed out of the room of recovering portals.
func leaveRoom(routes []Route, claimed []Publishable) {
	for i, r := range routes {
		if !r.Recovering {
			continue
		}
		for _, e := range claimed {
			if e.PortalID == r.PortalID {
				routes[i].Room--
			}
		}
	}
}

func byLane(routes []Route) [][]Route {
	lanes := make([][]Route, len(outbox.Lanes))
	for _, r := range routes {
		lanes[r.Lane] = append(lanes[r.Lane], r)
	}
	return lanes
}

// claim is one relay's claim in one lane.
type claim struct {
	db     *DB
	lane   outbox.Lane
	limit  int
	token  uuid.UUID
	lease  time.Duration
	events []Publishable
}

// part is what one brand of a portal is asked for.
type part struct {
	portal, brand string
}

// all shares the limit between portals and their brands, so that a large backlog of one
// does not take the others' turn; what some leave is offered again to those that took
// their whole share, so that it does not crawl beside idle ones either.
func (c *claim) all(ctx context.Context, routes []Route) error {
	room := map[string]int{}
	var hungry []part
	for _, r := range routes {
		room[r.PortalID] = max(r.Room, 0)
		for _, brand := range r.Brands {
			hungry = append(hungry, part{r.PortalID, brand})
		}
	}
	for len(c.events) < c.limit && len(hungry) > 0 {
		parts, shares := c.share(hungry, room)
		if len(parts) == 0 {
			break
		}
		taken, err := c.take(ctx, parts, shares)
		if err != nil {
			return err
		}
		hungry = hungry[:0:0]
		for i, p := range parts {
			room[p.portal] -= taken[p]
			if taken[p] >= shares[i] {
				hungry = append(hungry, p)
			}
		}
	}
	return nil
}

// share divides what is left of the limit, and of each portal's room, evenly. Where
// there is less room than brands, those that wait longest get it.
func (c *claim) share(hungry []part, room map[string]int) (parts []part, shares []int) {
	brands := map[string]int{}
	for _, p := range hungry {
		brands[p.portal]++
	}
	even := max((c.limit-len(c.events))/len(hungry), 1)
	left := maps.Clone(room)
	for _, p := range hungry {
		n := min(even, max(room[p.portal]/brands[p.portal], 1), left[p.portal])
		if n > 0 {
			left[p.portal] -= n
			parts, shares = append(parts, p), append(shares, n)
		}
	}
	return parts, shares
}

// take claims up to shares[i] events of parts[i], and returns how many each gave.
func (c *claim) take(ctx context.Context, parts []part, shares []int) (map[part]int, error) {
	var portals, brands []string
	for _, p := range parts {
		portals, brands = append(portals, p.portal), append(brands, p.brand)
	}
	rows, err := c.db.pool.Query(ctx, claimPublishable, portals, brands, shares, int16(c.lane), c.limit-len(c.events), c.token.String(), c.lease)
	if err != nil {
		return nil, err
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Publishable, err error) {
		var id string
		if err = row.Scan(&id, &p.PortalID, &p.BrandID, &p.Lane, &p.Generation, &p.Attempts, &p.TravelsAlone, &p.Traceparent); err == nil {
			p.ID, err = uuid.Parse(id)
		}
		return p, err
	})
	if err != nil {
		return nil, err
	}
	taken := map[part]int{}
	for _, e := range events {
		taken[part{e.PortalID, e.BrandID}]++
	}
	c.events = append(c.events, events...)
	return taken, nil
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
    published_at = CASE WHEN x.message_id <> '' THEN coalesce(e.published_at, hubsync.now()) ELSE e.published_at END,
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
