package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

const sampleSubscribed = `
SELECT DISTINCT c.email_key
FROM (SELECT s.contact_key FROM contact_subscription_state s WHERE s.portal_id = $1 AND s.applied_state = 'subscribed' LIMIT $2) s
JOIN contacts c ON c.contact_key = s.contact_key AND c.erasing_at IS NULL AND c.erased_at IS NULL`

// SampleSubscribed returns addresses of some people who are subscribed in a portal.
func (db *DB) SampleSubscribed(ctx context.Context, portalID string, limit int) ([]string, error) {
	return list(ctx, db, fmt.Sprintf("sample subscribed people of portal %s", portalID), pgx.RowTo[string], sampleSubscribed, portalID, limit)
}

// OwnOptOut is an opt-out that we wrote, and what HubSpot said of it.
type OwnOptOut struct {
	EmailKey           string
	SubscriptionTypeID int64
	outbox.Stamp
}

const sampleOwnOptOuts = `
SELECT c.email_key, (e.payload ->> 'subscriptionTypeId')::bigint, s.own_opt_out_stamp, s.own_opt_out_event_id::text, s.own_opt_out_fence
FROM contact_subscription_state s
JOIN hubspot_outbox_events e ON e.id = s.own_opt_out_event_id
JOIN contacts c ON c.contact_key = s.contact_key AND c.erasing_at IS NULL AND c.erased_at IS NULL
WHERE s.portal_id = $1 AND s.own_opt_out_stamp IS NOT NULL AND s.applied_state = 'unsubscribed'
LIMIT $2`

// SampleOwnOptOuts returns some opt-outs that HubSpot confirmed to us in a portal.
func (db *DB) SampleOwnOptOuts(ctx context.Context, portalID string, limit int) ([]OwnOptOut, error) {
	return list(ctx, db, fmt.Sprintf("sample own opt-outs of portal %s", portalID), func(row pgx.CollectableRow) (o OwnOptOut, err error) {
		var stamp stampColumns
		if err = row.Scan(&o.EmailKey, &o.SubscriptionTypeID, &stamp.at, &stamp.event, &stamp.fence); err == nil {
			o.Stamp, err = stamp.value()
		}
		return o, err
	}, sampleOwnOptOuts, portalID, limit)
}

const setCapability = `
UPDATE hubspot_portals SET capabilities = capabilities || jsonb_build_object($2::text, $3::boolean), updated_at = hubsync.now()
WHERE id = $1`

// SetCapability notes something that a portal was found to do, or not.
func (db *DB) SetCapability(ctx context.Context, portalID, name string, has bool) error {
	if _, err := db.pool.Exec(ctx, setCapability, portalID, name, has); err != nil {
		return fmt.Errorf("note capability %s of portal %s: %w", name, portalID, err)
	}
	return nil
}
