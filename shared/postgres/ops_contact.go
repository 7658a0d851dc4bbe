package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ContactRow is a contact, as an operator sees it: without its address.
type ContactRow struct {
	ContactKey string     `json:"contactKey"`
	Aliases    []string   `json:"aliases"`
	OptedOutAt *time.Time `json:"optedOutAt"` // of everything
	ErasedAt   *time.Time `json:"erasedAt"`
	CreatedAt  time.Time  `json:"createdAt"`
}

const selectContact = `
SELECT c.contact_key, (SELECT array_agg(b.alias_key ORDER BY b.alias_key) FROM contact_aliases b WHERE b.contact_key = c.contact_key),
       c.opted_out_at, c.erased_at, c.created_at
FROM contact_aliases a JOIN contacts c ON c.contact_key = a.contact_key
WHERE a.alias_key = $1`

// Contact returns the contact that a key names; nil: none.
func (db *DB) Contact(ctx context.Context, key string) (*ContactRow, error) {
	rows, err := db.pool.Query(ctx, selectContact, key)
	if err != nil {
		return nil, fmt.Errorf("read a contact: %w", err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[ContactRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a contact: %w", err)
	}
	return c, nil
}

// RequestRow is one decision of a contact. Its consent is shown by its hash.
type RequestRow struct {
	ID           string
	Brand        string
	Product      string
	DesiredState string
	Sequence     int64
	Source       string
	Status       string
	Reason       string
	RequestHash  string
	LegalBasis   string
	ConsentHash  string
	OccurredAt   *time.Time
	ConsentAt    time.Time
	CreatedAt    time.Time
}

const selectRequests = `
SELECT r.id::text, r.brand_id, r.product_id, r.desired_state, coalesce(r.sequence, 0), r.source, r.sync_status, coalesce(r.status_reason, ''),
       r.request_hash, coalesce(r.consent ->> 'legalBasis', ''), encode(sha256(convert_to(r.consent::text, 'UTF8')), 'hex'),
       r.occurred_at, r.consent_at, r.created_at
FROM every_request r
WHERE r.contact_key = $1
ORDER BY r.created_at, r.id`

// Requests returns the decisions of a contact, in order.
func (db *DB) Requests(ctx context.Context, contactKey string) ([]RequestRow, error) {
	return list(ctx, db, "read a contact's decisions", pgx.RowToStructByPos[RequestRow], selectRequests, contactKey)
}

const selectContactEvents = eventColumns + everyEvent + `
WHERE r.contact_key = $1
ORDER BY e.created_at, e.id`

// ContactEvents returns every event of a contact, in order.
func (db *DB) ContactEvents(ctx context.Context, contactKey string) ([]EventRow, error) {
	return list(ctx, db, "read a contact's events", pgx.RowToStructByPos[EventRow], selectContactEvents, contactKey)
}

// SeenRow is what HubSpot was seen to show of a subscription last.
type SeenRow struct {
	Brand, Product, Status string
	At                     time.Time
}

const selectSeen = `
SELECT brand_id, product_id, coalesce(hubspot_status, ''), hubspot_seen_at
FROM contact_subscription_state
WHERE contact_key = $1 AND hubspot_seen_at IS NOT NULL
ORDER BY hubspot_seen_at, brand_id, product_id`

// Seen returns when HubSpot was looked at for a contact's subscriptions, and what it
// showed.
func (db *DB) Seen(ctx context.Context, contactKey string) ([]SeenRow, error) {
	return list(ctx, db, "read what HubSpot showed of a contact", pgx.RowToStructByPos[SeenRow], selectSeen, contactKey)
}
