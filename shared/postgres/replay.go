package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ReplayFilter selects dead events; empty members select all.
type ReplayFilter struct {
	Code           string
	BrandID        string
	MappingVersion int
	From, To       time.Time // when it died: From included, To not
	// First is when the first new event becomes due, and Gap how much later each further
	// one does.
	First, Gap time.Duration
}

// timeOrNull is a bound of a query; the zero time is none.
func timeOrNull(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// A dead event that is still its subscription's newest decision, and whose route exists
// in the active mapping.
const replayable = `
SELECT e.id, e.request_id, s.contact_key, s.brand_id, s.product_id, t.snapshot, t.version, t.portal_id, r.desired_state
FROM hubspot_outbox_events e
JOIN subscription_requests r ON r.id = e.request_id
JOIN contact_subscription_state s
  ON (s.contact_key, s.brand_id, s.product_id) = (r.contact_key, r.brand_id, r.product_id) AND s.latest_event_id = e.id
JOIN brand_subscription_routes t ON t.brand_id = s.brand_id AND t.product_id = s.product_id AND t.active
WHERE e.status = 'dead'
  AND ($1 = '' OR e.last_error_code = $1) AND ($2 = '' OR e.brand_id = $2) AND ($3 = 0 OR e.mapping_version = $3)
  AND ($5::timestamptz IS NULL OR e.completed_at >= $5::timestamptz) AND ($6::timestamptz IS NULL OR e.completed_at < $6::timestamptz)
ORDER BY s.contact_key, s.brand_id, s.product_id
LIMIT $4`

const countReplayable = `SELECT count(*) FROM (` + replayable + `) x`

// A replay is a new event under the active mapping, with the sequence after the last: an
// event that is still on its way somewhere counts as older. Subscriptions are locked by
// key. The new events become due one after the other, so that a large replay leaves room
// for what comes in meanwhile.
const replayDead = `
WITH dead AS MATERIALIZED (` + replayable + `),
locked AS MATERIALIZED (
  SELECT s.contact_key, s.brand_id, s.product_id
  FROM contact_subscription_state s
  WHERE (s.contact_key, s.brand_id, s.product_id) IN (SELECT d.contact_key, d.brand_id, d.product_id FROM dead d)
  ORDER BY s.contact_key, s.brand_id, s.product_id
  FOR UPDATE
),
moved AS (
  UPDATE contact_subscription_state s
  SET latest_sequence = s.latest_sequence + 1, latest_event_id = gen_random_uuid(), portal_id = d.portal_id,
      updated_at = hubsync.clock()
  FROM dead d, locked l
  WHERE (s.contact_key, s.brand_id, s.product_id) = (d.contact_key, d.brand_id, d.product_id)
    AND (s.contact_key, s.brand_id, s.product_id) = (l.contact_key, l.brand_id, l.product_id)
    AND s.latest_event_id = d.id
  RETURNING s.latest_event_id, s.latest_sequence, d.id AS dead_id
),
events AS (
  INSERT INTO hubspot_outbox_events
    (id, request_id, event_type, payload, next_attempt_at, created_at, portal_id, brand_id, lane, sequence, revision,
     mapping_version, traceparent)
  SELECT m.latest_event_id, d.request_id, e.event_type, d.snapshot,
         hubsync.clock() + $8::interval + $7::interval * (row_number() OVER (ORDER BY d.desired_state DESC, m.latest_event_id) - 1),
         hubsync.clock(), d.portal_id, d.brand_id,
         CASE WHEN d.desired_state = 'unsubscribed' THEN 0 ELSE 2 END, m.latest_sequence,
         (SELECT max(o.revision) + 1 FROM hubspot_outbox_events o WHERE o.request_id = d.request_id AND o.event_type = e.event_type),
         d.version, e.traceparent
  FROM moved m JOIN dead d ON d.id = m.dead_id JOIN hubspot_outbox_events e ON e.id = d.id
  RETURNING request_id
)
UPDATE subscription_requests r SET sync_status = 'pending', status_reason = 'replayed'
FROM events v WHERE r.id = v.request_id`

// CountReplayable says how many events ReplayDead would replay, at most limit.
func (db *DB) CountReplayable(ctx context.Context, f ReplayFilter, limit int) (int, error) {
	var n int
	if err := db.pool.QueryRow(ctx, countReplayable, f.Code, f.BrandID, f.MappingVersion, limit, timeOrNull(f.From), timeOrNull(f.To)).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead events: %w", err)
	}
	return n, nil
}

// ReplayDead gives up to limit dead events another try under the active mapping, and
// returns how many. One that a newer decision has replaced is left alone. Opt-outs become
// due before the others.
func (db *DB) ReplayDead(ctx context.Context, f ReplayFilter, limit int) (int, error) {
	var n int
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, replayDead, f.Code, f.BrandID, f.MappingVersion, limit, timeOrNull(f.From), timeOrNull(f.To), f.Gap, f.First)
		n = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("replay dead events: %w", err)
	}
	return n, nil
}
