package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// RequestState is what became of a stored decision. It holds no address.
type RequestState struct {
	RequestID    uuid.UUID
	BrandID      string
	ProductID    string
	DesiredState string
	Status       string
	Reason       string // "": none
	AcceptedAt   time.Time
	OccurredAt   *time.Time
	Sequence     int64 // 0: it took no place in the order
	Events       []EventState
}

// EventState is one event of a request: the first one, then its repetitions.
type EventState struct {
	Status        string
	Attempts      int
	NextAttemptAt *time.Time // nil: settled
	CompletedAt   *time.Time
	ErrorCode     string
}

const requestStateQuery = `
SELECT r.product_id, r.desired_state, r.sync_status, coalesce(r.status_reason, ''), r.created_at,
       r.occurred_at, coalesce(r.sequence, 0),
       coalesce(e.status, ''), coalesce(e.process_attempts, 0),
       CASE WHEN e.completed_at IS NULL THEN e.next_attempt_at END, e.completed_at,
       coalesce(e.last_error_code, '')
FROM every_request r
LEFT JOIN every_event e ON e.request_id = r.id
WHERE r.id = $1::uuid AND r.brand_id = $2::text
ORDER BY e.revision`

// RequestState returns the state of a brand's request; found is false if that
// brand has no such request.
func (db *DB) RequestState(ctx context.Context, brandID string, id uuid.UUID) (state RequestState, found bool, err error) {
	state = RequestState{RequestID: id, BrandID: brandID}
	rows, err := db.pool.Query(ctx, requestStateQuery, id.String(), brandID)
	if err == nil {
		var e EventState
		_, err = pgx.ForEachRow(rows, []any{
			&state.ProductID, &state.DesiredState, &state.Status, &state.Reason, &state.AcceptedAt,
			&state.OccurredAt, &state.Sequence,
			&e.Status, &e.Attempts, &e.NextAttemptAt, &e.CompletedAt, &e.ErrorCode,
		}, func() error {
			found = true
			if e.Status != "" {
				state.Events = append(state.Events, e)
			}
			return nil
		})
	}
	if err != nil {
		return RequestState{}, false, fmt.Errorf("read request %s: %w", id, intakeError(err))
	}
	return state, found, nil
}

// ContactSubscriptions is what one brand knows about one contact.
type ContactSubscriptions struct {
	BrandKnown    bool
	KeyKnown      bool
	Gone          bool // the contact is being erased, or was
	Subscriptions []SubscriptionState
}

// SubscriptionState is one subscription: what was decided, and what HubSpot shows.
type SubscriptionState struct {
	ProductID       string
	DesiredState    string
	Sequence        int64
	AppliedState    string // "": nothing was confirmed yet
	AppliedSequence int64
	Uncertain       bool   // a call of ours may still land
	HubSpotStatus   string // as last read; "": never read
	HubSpotSeenAt   *time.Time
	UpdatedAt       time.Time
}

// One row at least, so that an unknown brand, an unknown key and a contact
// without subscriptions are told apart in one round trip.
const contactSubscriptionsQuery = `
SELECT b.id IS NOT NULL, a.alias_key IS NOT NULL,
       coalesce(c.erasing_at IS NOT NULL OR c.erased_at IS NOT NULL, false),
       coalesce(s.product_id, ''), coalesce(s.desired_state, ''), coalesce(s.latest_sequence, 0),
       coalesce(s.applied_state, ''), coalesce(s.applied_sequence, 0), s.uncertain_until IS NOT NULL,
       coalesce(s.hubspot_status, ''), s.hubspot_seen_at, coalesce(s.updated_at, 'epoch')
FROM (SELECT $1::text AS brand_id, $2::text AS caller_key) q
LEFT JOIN brands b ON b.id = q.brand_id
LEFT JOIN contact_aliases a ON a.alias_key = q.caller_key
LEFT JOIN contacts c ON c.contact_key = a.contact_key
LEFT JOIN contact_subscription_state s ON s.contact_key = a.contact_key AND s.brand_id = q.brand_id AND s.product_id <> '*'
ORDER BY s.product_id`

// ContactSubscriptions returns a brand's subscriptions of the contact that one of
// its callers knows under this key.
func (db *DB) ContactSubscriptions(ctx context.Context, brandID, callerKey string) (ContactSubscriptions, error) {
	var found ContactSubscriptions
	rows, err := db.pool.Query(ctx, contactSubscriptionsQuery, brandID, callerKey)
	if err == nil {
		var s SubscriptionState
		_, err = pgx.ForEachRow(rows, []any{
			&found.BrandKnown, &found.KeyKnown, &found.Gone,
			&s.ProductID, &s.DesiredState, &s.Sequence, &s.AppliedState, &s.AppliedSequence, &s.Uncertain,
			&s.HubSpotStatus, &s.HubSpotSeenAt, &s.UpdatedAt,
		}, func() error {
			if s.ProductID != "" {
				found.Subscriptions = append(found.Subscriptions, s)
			}
			return nil
		})
	}
	if err != nil {
		return ContactSubscriptions{}, fmt.Errorf("read subscriptions of brand %s: %w", brandID, intakeError(err))
	}
	return found, nil
}
