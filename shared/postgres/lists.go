package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ListMember is a contact in a list.
type ListMember struct {
	ContactKey, ListID string
}

// A subscription wants a list when its newest event's snapshot names it and its newest
// decision is a subscribe.
const wantedLists = `
SELECT DISTINCT x.contact_key, x.list_id
FROM unnest($2::text[], $3::text[]) AS x (contact_key, list_id)
JOIN contact_subscription_state s ON s.contact_key = x.contact_key AND s.portal_id = $1 AND s.desired_state = 'subscribed'
JOIN hubspot_outbox_events e ON e.id = s.latest_event_id
WHERE e.payload -> 'targets' @> jsonb_build_array(jsonb_build_object('kind', 'MANUAL_SEGMENT', 'listId', x.list_id))`

// WantedLists returns which of the memberships a subscription of the contact still wants.
func (db *DB) WantedLists(ctx context.Context, portalID string, members []ListMember) (map[ListMember]bool, error) {
	var contacts, lists []string
	for _, m := range members {
		contacts, lists = append(contacts, m.ContactKey), append(lists, m.ListID)
	}
	rows, err := db.pool.Query(ctx, wantedLists, portalID, contacts, lists)
	if err != nil {
		return nil, fmt.Errorf("read wanted lists: %w", err)
	}
	wanted := map[ListMember]bool{}
	var m ListMember
	if _, err = pgx.ForEachRow(rows, []any{&m.ContactKey, &m.ListID}, func() error { wanted[m] = true; return nil }); err != nil {
		return nil, fmt.Errorf("read wanted lists: %w", err)
	}
	return wanted, nil
}
