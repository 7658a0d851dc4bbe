package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Membership is a contact's place in something that subscriptions may share: a list, or
// an entry of a list-valued property.
type Membership struct {
	ContactKey      string
	ListID          string
	Property, Entry string // where ListID is empty
}

// A subscription wants a membership when its newest event's snapshot names it and its
// newest decision is a subscribe.
const selectWanted = `
SELECT DISTINCT x.contact_key, x.list_id, x.property, x.entry
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS x (contact_key, list_id, property, entry)
JOIN contact_subscription_state s ON s.contact_key = x.contact_key AND s.portal_id = $1 AND s.desired_state = 'subscribed'
JOIN hubspot_outbox_events e ON e.id = s.latest_event_id
WHERE e.payload -> 'targets' @> jsonb_build_array(CASE
  WHEN x.list_id <> '' THEN jsonb_build_object('kind', 'MANUAL_SEGMENT', 'listId', x.list_id)
  ELSE jsonb_build_object('kind', 'CONTACT_PROPERTY', 'name', x.property, 'subscribed', x.entry, 'multi', true) END)`

// Wanted returns which of the memberships a subscription of the contact still wants.
func (db *DB) Wanted(ctx context.Context, portalID string, members []Membership) (map[Membership]bool, error) {
	wanted := map[Membership]bool{}
	if len(members) == 0 {
		return wanted, nil
	}
	var contacts, lists, properties, entries []string
	for _, m := range members {
		contacts, lists = append(contacts, m.ContactKey), append(lists, m.ListID)
		properties, entries = append(properties, m.Property), append(entries, m.Entry)
	}
	rows, err := db.pool.Query(ctx, selectWanted, portalID, contacts, lists, properties, entries)
	if err != nil {
		return nil, fmt.Errorf("read wanted memberships: %w", err)
	}
	var m Membership
	if _, err = pgx.ForEachRow(rows, []any{&m.ContactKey, &m.ListID, &m.Property, &m.Entry}, func() error { wanted[m] = true; return nil }); err != nil {
		return nil, fmt.Errorf("read wanted memberships: %w", err)
	}
	return wanted, nil
}
