package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// sweepStuck makes events due again whose deadline passed in flight: queued without a
// word for the delivery window, or processing under a lease that ended. A new
// generation, so that no deduplication swallows it. The subscription's lease stays:
// only its holder can say that nothing is on its way to HubSpot. What waits (pending,
// the retries) is found by the relay's own claim and is never re-scheduled here.
const sweepStuck = `
WITH stuck AS MATERIALIZED (
  SELECT e.id
  FROM hubspot_portals p
  CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (lane)
  CROSS JOIN LATERAL (
    SELECT d.id
    FROM hubspot_outbox_events d
    WHERE d.portal_id = p.id AND d.lane = l.lane AND d.status IN ('queued', 'processing')
      AND d.next_attempt_at <= hubsync.now()
    ORDER BY d.next_attempt_at
    LIMIT $1::bigint
    FOR UPDATE SKIP LOCKED
  ) e
  WHERE p.paused_until IS NULL OR p.paused_until <= hubsync.now() OR (l.lane = 0 AND NOT p.pause_opt_outs)
  LIMIT $1::bigint
)
UPDATE hubspot_outbox_events e
SET status = 'process_retry', generation = e.generation + 1, next_attempt_at = hubsync.now(), lease_expires_at = NULL,
    last_error_code = CASE e.status WHEN 'queued' THEN 'delivery_lost' ELSE 'lease_expired' END,
    last_error_summary = CASE e.status WHEN 'queued' THEN 'no delivery within the delivery window'
                                       ELSE 'the worker did not settle it within its lease' END
FROM stuck
WHERE e.id = stuck.id AND e.status IN ('queued', 'processing')`

// SweepStuck makes up to limit stuck events due again, and returns how many.
func (db *DB) SweepStuck(ctx context.Context, limit int) (int, error) {
	tag, err := db.pool.Exec(ctx, sweepStuck, limit)
	if err != nil {
		return 0, fmt.Errorf("sweep stuck events: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

const beginRun = `INSERT INTO reconcile_runs (id, kind, started_at) VALUES ($1, $2, hubsync.now())`

const endRun = `
UPDATE reconcile_runs
SET finished_at = hubsync.clock(), checked = $2, scheduled = $3, problem = nullif($4, '')
WHERE id = $1`

// BeginRun notes that a run started: silence must be able to raise an alarm.
func (db *DB) BeginRun(ctx context.Context, id uuid.UUID, kind string) error {
	if _, err := db.pool.Exec(ctx, beginRun, id.String(), kind); err != nil {
		return fmt.Errorf("begin %s run: %w", kind, err)
	}
	return nil
}

// EndRun notes how a run ended.
func (db *DB) EndRun(ctx context.Context, id uuid.UUID, checked, scheduled int, problem string) error {
	if _, err := db.pool.Exec(ctx, endRun, id.String(), checked, scheduled, problem); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	return nil
}

const oldestWaiting = `
SELECT coalesce(max(hubsync.now() - e.created_at), interval '0')
FROM hubspot_portals p
CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (lane)
CROSS JOIN brands b
CROSS JOIN LATERAL (
  SELECT d.portal_id, d.lane, d.brand_id, d.created_at FROM hubspot_outbox_events d
  WHERE d.portal_id = p.id AND d.lane = l.lane AND d.brand_id = b.id AND d.status = 'pending'
  ORDER BY d.next_attempt_at
  LIMIT 1
) e
WHERE (p.paused_until IS NULL OR p.paused_until <= hubsync.now() OR (l.lane = 0 AND NOT p.pause_opt_outs))
  AND NOT ` + isPaused + `
  AND NOT EXISTS (SELECT 1 FROM service_breakers k WHERE k.service = 'hubspot:' || p.id)
  AND NOT EXISTS (
    SELECT 1 FROM hubspot_outbox_events q
    WHERE q.portal_id = p.id AND q.lane = l.lane AND q.status = 'queued')`

// OldestPending returns the age of the oldest event that a relay should have taken; an
// old one is a reason for an alarm, not for a second schedule. A backlog behind queued
// events waits for its turn, as it should, and does not count.
func (db *DB) OldestPending(ctx context.Context) (time.Duration, error) {
	var age time.Duration
	if err := db.pool.QueryRow(ctx, oldestWaiting).Scan(&age); err != nil {
		return 0, fmt.Errorf("read the oldest pending event: %w", err)
	}
	return age, nil
}
