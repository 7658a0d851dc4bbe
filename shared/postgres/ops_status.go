package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

// LaneBacklog is what of one portal and lane is not settled.
type LaneBacklog struct {
	PortalID string
	Lane     outbox.Lane
	Waiting  int // in PostgreSQL: pending and the retries
	InFlight int // with a relay, QStash or a worker
	Oldest   time.Time
}

// Every index on the events is partial, and together these two cover what is not settled.
const selectBacklog = `
SELECT x.portal_id, x.lane, (sum(x.n) FILTER (WHERE x.waits))::bigint, (sum(x.n) FILTER (WHERE NOT x.waits))::bigint, min(x.oldest)
FROM (
  SELECT e.portal_id, e.lane, e.status <> 'publishing' AS waits, count(*) AS n, min(e.created_at) AS oldest
  FROM hubspot_outbox_events e
  WHERE e.status IN ('pending', 'publishing', 'publish_retry', 'process_retry')
  GROUP BY 1, 2, 3
  UNION ALL
  SELECT e.portal_id, e.lane, false, count(*), min(e.created_at)
  FROM hubspot_outbox_events e
  WHERE e.status IN ('queued', 'processing')
  GROUP BY 1, 2) x
GROUP BY 1, 2
ORDER BY 1, 2`

// Backlog counts what is not settled, per portal and lane.
func (db *DB) Backlog(ctx context.Context) ([]LaneBacklog, error) {
	return list(ctx, db, "count the backlog", func(row pgx.CollectableRow) (b LaneBacklog, err error) {
		var waiting, inFlight *int
		err = row.Scan(&b.PortalID, &b.Lane, &waiting, &inFlight, &b.Oldest)
		if waiting != nil {
			b.Waiting = *waiting
		}
		if inFlight != nil {
			b.InFlight = *inFlight
		}
		return b, err
	}, selectBacklog)
}

// PortalRate is what went through a portal lately.
type PortalRate struct {
	PortalID  string
	Confirmed int // subscriptions that HubSpot confirmed
}

// The ids of receipts carry their time (UUIDv7), so their primary key serves as an index
// over it.
const selectRates = `
SELECT e.portal_id, count(DISTINCT e.id)
FROM hubspot_operation_receipts o JOIN hubspot_outbox_events e ON e.id = o.event_id
WHERE o.id >= $1 AND o.operation = 'preference'
GROUP BY 1 ORDER BY 1`

// Rates counts what HubSpot confirmed since a time, per portal.
func (db *DB) Rates(ctx context.Context, since time.Time) ([]PortalRate, error) {
	return list(ctx, db, "count what was confirmed", pgx.RowToStructByPos[PortalRate], selectRates, floorID(since).String())
}

// floorID is the least UUIDv7 of a time.
func floorID(at time.Time) (id uuid.UUID) {
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	id[6], id[8] = 0x70, 0x80
	return id
}

// DeadCount is how many events died of one code in one portal.
type DeadCount struct {
	PortalID string    `json:"portal"`
	Code     string    `json:"code"`
	Count    int       `json:"count"`
	Newest   time.Time `json:"newest"`
}

// One that a newer decision has replaced since is no loss.
const selectDead = `
SELECT e.portal_id, coalesce(e.last_error_code, 'unknown'), count(*), max(e.completed_at)
FROM hubspot_outbox_events e
JOIN contact_subscription_state s ON s.latest_event_id = e.id
JOIN subscription_requests r ON r.id = e.request_id AND (r.contact_key, r.brand_id, r.product_id) = (s.contact_key, s.brand_id, s.product_id)
WHERE e.status = 'dead'
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2`

// Dead counts the subscriptions whose newest decision is dead, by code.
func (db *DB) Dead(ctx context.Context) ([]DeadCount, error) {
	return list(ctx, db, "count dead events", pgx.RowToStructByPos[DeadCount], selectDead)
}

// Attention counts what waits for a person, or is not certain yet.
type Attention struct {
	Drift     int `json:"drift"`     // differences that a repair did not mend
	Conflicts int `json:"conflicts"` // shared keys, changed addresses
	Uncertain int `json:"uncertain"` // subscriptions into which a call of ours may still land
}

const selectAttention = `
SELECT (SELECT count(*) FROM drift_listings WHERE resolved_at IS NULL),
       (SELECT count(*) FROM contact_conflicts WHERE resolved_at IS NULL),
       (SELECT count(*) FROM contact_subscription_state WHERE uncertain_until IS NOT NULL AND check_at IS NOT NULL)`

// Attention counts what an operator should look at.
func (db *DB) Attention(ctx context.Context) (a Attention, err error) {
	if err = db.pool.QueryRow(ctx, selectAttention).Scan(&a.Drift, &a.Conflicts, &a.Uncertain); err != nil {
		err = fmt.Errorf("count what needs attention: %w", err)
	}
	return a, err
}

// OpenBreaker is a service that everybody is kept from, or that recovers.
type OpenBreaker struct {
	Service string    `json:"service"`
	Until   time.Time `json:"openUntil"`
	Reason  string    `json:"reason"`
}

const selectBreakers = `SELECT service, open_until, reason FROM service_breakers ORDER BY service`

// Breakers lists the services that are away or recover.
func (db *DB) Breakers(ctx context.Context) ([]OpenBreaker, error) {
	return list(ctx, db, "read breakers", pgx.RowToStructByPos[OpenBreaker], selectBreakers)
}
