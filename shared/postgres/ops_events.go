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

// EventRow is one event with its request, as an operator sees it.
type EventRow struct {
	ID              string     `json:"id"`
	RequestID       string     `json:"requestId"`
	Status          string     `json:"status"`
	Portal          string     `json:"portal"`
	Lane            int16      `json:"lane"`
	Brand           string     `json:"brand"`
	Product         string     `json:"product"`
	ContactKey      string     `json:"contactKey"`
	DesiredState    string     `json:"desiredState"`
	Source          string     `json:"source"`
	Sequence        int64      `json:"sequence"` // 0: it never took a place in the order
	Revision        int        `json:"revision"`
	Generation      int        `json:"generation"`
	MappingVersion  int        `json:"mappingVersion"`
	PublishAttempts int        `json:"publishAttempts"`
	ProcessAttempts int        `json:"processAttempts"`
	ProcessWaits    int        `json:"processWaits"`
	Code            string     `json:"code,omitzero"`
	Problem         string     `json:"problem,omitzero"`
	Reason          string     `json:"reason,omitzero"` // the request's status_reason
	CreatedAt       time.Time  `json:"createdAt"`
	PublishedAt     *time.Time `json:"publishedAt"`
	NextAttemptAt   time.Time  `json:"nextAttemptAt"`
	CompletedAt     *time.Time `json:"completedAt"`
	MessageID       string     `json:"messageId,omitzero"`
	SupersededBy    string     `json:"supersededBy,omitzero"`
	TravelsAlone    bool       `json:"travelsAlone,omitzero"`
}

const eventColumns = `
SELECT e.id::text, e.request_id::text, e.status, e.portal_id, e.lane, r.brand_id, r.product_id, r.contact_key, r.desired_state, r.source,
       coalesce(e.sequence, 0), e.revision, e.generation, e.mapping_version, e.publish_attempts, e.process_attempts, e.process_waits,
       coalesce(e.last_error_code, ''), coalesce(e.last_error_summary, ''), coalesce(r.status_reason, ''),
       e.created_at, e.published_at, e.next_attempt_at, e.completed_at, coalesce(e.qstash_message_id, ''),
       coalesce(e.superseded_by::text, ''), e.travels_alone`

// Lists are of what is at work; what is asked for by its id may be in history.
const (
	hotEvent = `
FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id`
	everyEvent = `
FROM every_request r JOIN every_event e ON e.request_id = r.id`
)

// EventFilter selects events; empty members select all.
type EventFilter struct {
	Status     string
	Code       string
	Portal     string
	Brand      string
	Product    string
	ContactKey string // any key of the contact
	Request    string // its id, or the caller's idempotency key
	Limit      int
}

const listEvents = eventColumns + hotEvent + `
WHERE ($1 = '' OR e.status = $1 OR ($1 = 'open' AND e.completed_at IS NULL))
  AND ($2 = '' OR e.last_error_code = $2) AND ($3 = '' OR e.portal_id = $3) AND ($4 = '' OR e.brand_id = $4)
  AND ($5 = '' OR r.product_id = $5)
  AND ($6 = '' OR r.contact_key = (SELECT a.contact_key FROM contact_aliases a WHERE a.alias_key = $6))
  AND ($7 = '' OR r.id::text = $7 OR r.idempotency_key = $7)
ORDER BY e.created_at DESC, e.id
LIMIT $8`

// Events lists events, the newest first.
func (db *DB) Events(ctx context.Context, f EventFilter) ([]EventRow, error) {
	return list(ctx, db, "list events", pgx.RowToStructByPos[EventRow], listEvents, f.Status, f.Code, f.Portal, f.Brand, f.Product, f.ContactKey, f.Request, f.Limit)
}

// An event by its id, or the newest one of a request.
const selectEvent = eventColumns + everyEvent + `
WHERE e.id = $1 OR e.request_id = $1
ORDER BY e.id <> $1, e.revision DESC
LIMIT 1`

// Event returns an event by its own id or its request's; false: there is none.
func (db *DB) Event(ctx context.Context, id uuid.UUID) (EventRow, bool, error) {
	rows, err := db.pool.Query(ctx, selectEvent, id.String())
	if err != nil {
		return EventRow{}, false, fmt.Errorf("read event %s: %w", id, err)
	}
	event, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[EventRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return EventRow{}, false, nil
	}
	if err != nil {
		return EventRow{}, false, fmt.Errorf("read event %s: %w", id, err)
	}
	return event, true, nil
}

// SubscriptionRow is the state of a subscription, as an operator sees it.
type SubscriptionRow struct {
	LatestSequence  int64      `json:"latestSequence"`
	LatestEvent     string     `json:"latestEvent"`
	DesiredState    string     `json:"desiredState"`
	OptedOutAt      *time.Time `json:"optedOutAt"`
	AppliedSequence int64      `json:"appliedSequence"`
	AppliedState    string     `json:"appliedState,omitzero"`
	Fence           int64      `json:"fence"`
	LeaseExpiresAt  *time.Time `json:"leaseExpiresAt"`
	UncertainUntil  *time.Time `json:"uncertainUntil"`
	CheckAt         *time.Time `json:"checkAt"`
	HubSpotStatus   string     `json:"hubspotStatus,omitzero"`
	HubSpotSeenAt   *time.Time `json:"hubspotSeenAt"`
	Difference      string     `json:"difference,omitzero"` // what was repaired last
}

const selectSubscription = `
SELECT s.latest_sequence, s.latest_event_id::text, s.desired_state, s.opted_out_at, s.applied_sequence, coalesce(s.applied_state, ''),
       s.fence, s.lease_expires_at, s.uncertain_until, s.check_at, coalesce(s.hubspot_status, ''), s.hubspot_seen_at,
       coalesce(s.repaired_difference, '')
FROM contact_subscription_state s
WHERE (s.contact_key, s.brand_id, s.product_id) = ($1, $2, $3)`

// Subscription returns the state of a subscription; nil: no decision has made it yet.
func (db *DB) Subscription(ctx context.Context, contactKey, brandID, productID string) (*SubscriptionRow, error) {
	rows, err := db.pool.Query(ctx, selectSubscription, contactKey, brandID, productID)
	if err != nil {
		return nil, fmt.Errorf("read a subscription to %s/%s: %w", brandID, productID, err)
	}
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[SubscriptionRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a subscription to %s/%s: %w", brandID, productID, err)
	}
	return s, nil
}

// ReceiptRow is one operation that HubSpot confirmed.
type ReceiptRow struct {
	EventID       string     `json:"eventId"`
	Operation     string     `json:"operation"`
	DesiredHash   string     `json:"desiredHash"`
	Outcome       string     `json:"outcome"`
	CorrelationID string     `json:"correlationId,omitzero"`
	HubSpotAt     *time.Time `json:"hubspotAt"`
	ConfirmedAt   time.Time  `json:"confirmedAt"`
}

const selectReceipts = `
SELECT event_id::text, operation, desired_hash, outcome, coalesce(correlation_id, ''), hubspot_at, confirmed_at
FROM every_receipt
WHERE event_id = ANY($1::uuid[])
ORDER BY confirmed_at, operation, id`

// Receipts returns what HubSpot confirmed of events, in order.
func (db *DB) Receipts(ctx context.Context, events []string) ([]ReceiptRow, error) {
	return list(ctx, db, fmt.Sprintf("read receipts of %d events", len(events)), pgx.RowToStructByPos[ReceiptRow], selectReceipts, events)
}

// LaneName is an operator's name of a lane.
func LaneName(lane int16) string { return outbox.Lane(lane).String() }
