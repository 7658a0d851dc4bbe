package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ContactRecord is what is known of a contact's record in a portal.
type ContactRecord struct {
	ContactKey string
	RecordID   string // empty: none was confirmed yet
	MayCreate  bool   // this caller, and nobody else until the lease ends, may make it
}

// The rows are taken in the order of their keys, as everywhere. A row without a record
// is leased to one caller.
const beginContacts = `
INSERT INTO contact_portal_records AS r (contact_key, portal_id, creating_until, seen_at)
SELECT x.contact_key, $1, hubsync.clock() + $3::interval, hubsync.now()
FROM (SELECT DISTINCT unnest($2::text[]) AS contact_key ORDER BY 1) x
ON CONFLICT (contact_key, portal_id) DO UPDATE
SET creating_until = excluded.creating_until
WHERE r.hubspot_id = '' AND (r.creating_until IS NULL OR r.creating_until <= hubsync.clock())
RETURNING r.contact_key`

const selectContacts = `
SELECT r.contact_key, r.hubspot_id
FROM contact_portal_records r
WHERE r.portal_id = $1 AND r.contact_key = ANY($2::text[])`

// BeginContacts asks for the right to make contacts in a portal. For each key it says
// which record is known, or whether this caller may make one; neither: somebody else is
// making it just now.
func (db *DB) BeginContacts(ctx context.Context, portalID string, keys []string, lease time.Duration) (map[string]ContactRecord, error) {
	records := make(map[string]ContactRecord, len(keys))
	rows, err := db.pool.Query(ctx, beginContacts, portalID, keys, lease)
	if err != nil {
		return nil, fmt.Errorf("begin %d contacts in portal %s: %w", len(keys), portalID, err)
	}
	ours, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("begin %d contacts in portal %s: %w", len(keys), portalID, err)
	}
	if rows, err = db.pool.Query(ctx, selectContacts, portalID, keys); err != nil {
		return nil, fmt.Errorf("read %d contacts of portal %s: %w", len(keys), portalID, err)
	}
	var key, record string
	if _, err = pgx.ForEachRow(rows, []any{&key, &record}, func() error {
		records[key] = ContactRecord{ContactKey: key, RecordID: record}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %d contacts of portal %s: %w", len(keys), portalID, err)
	}
	for _, key := range ours {
		records[key] = ContactRecord{ContactKey: key, MayCreate: true}
	}
	return records, nil
}

// The newest decision of each of the contacts' subscriptions that is an opt-out.
const selectOptOuts = `
SELECT s.contact_key, e.payload::text, r.consent_at
FROM contact_subscription_state s
JOIN hubspot_outbox_events e ON e.id = s.latest_event_id
JOIN subscription_requests r ON r.id = e.request_id
WHERE s.portal_id = $1 AND s.contact_key = ANY($2::text[]) AND s.desired_state = 'unsubscribed'`

// OptOut is a subscription that a contact opted out of.
type OptOut struct {
	ContactKey string
	Payload    []byte // routing.Snapshot as JSON
	ConsentAt  time.Time
}

// OptOuts returns what contacts opted out of in a portal: a contact that is made after
// its opt-out must show it from the beginning.
func (db *DB) OptOuts(ctx context.Context, portalID string, keys []string) ([]OptOut, error) {
	return list(ctx, db, fmt.Sprintf("read opt-outs of %d contacts", len(keys)), func(row pgx.CollectableRow) (o OptOut, err error) {
		var payload string
		err = row.Scan(&o.ContactKey, &payload, &o.ConsentAt)
		o.Payload = []byte(payload)
		return o, err
	}, selectOptOuts, portalID, keys)
}

const selectBeingMade = `
SELECT r.contact_key
FROM contact_portal_records r
WHERE r.portal_id = $1 AND r.contact_key = ANY($2::text[]) AND r.hubspot_id = '' AND r.creating_until > hubsync.clock()`

// ContactsBeingMade returns which of the contacts some worker makes just now.
func (db *DB) ContactsBeingMade(ctx context.Context, portalID string, keys []string) (map[string]bool, error) {
	rows, err := db.pool.Query(ctx, selectBeingMade, portalID, keys)
	if err != nil {
		return nil, fmt.Errorf("read contacts being made in portal %s: %w", portalID, err)
	}
	making := map[string]bool{}
	var key string
	if _, err = pgx.ForEachRow(rows, []any{&key}, func() error { making[key] = true; return nil }); err != nil {
		return nil, fmt.Errorf("read contacts being made in portal %s: %w", portalID, err)
	}
	return making, nil
}

// Kinds of contact conflicts that are listed for a person to look at.
const (
	ConflictMoved = "address_changed_in_hubspot"
	// ConflictWide: subscribed by a later consent, but HubSpot still shows an older opt-out
	// of everything, and sends nothing. Only a person in HubSpot can lift it.
	ConflictWide = "opted_out_of_all_in_hubspot"
)

const noteConflict = `
INSERT INTO contact_conflicts AS k (contact_key, kind, detail) VALUES ($1, $2, $3)
ON CONFLICT (contact_key, kind, detail) DO UPDATE
SET seen_count = k.seen_count + 1, last_seen_at = hubsync.now(), resolved_at = NULL`

// NoteConflict lists something about a contact that only a person can decide. detail
// holds no personal data.
func (db *DB) NoteConflict(ctx context.Context, contactKey, kind, detail string) error {
	if _, err := db.pool.Exec(ctx, noteConflict, contactKey, kind, detail); err != nil {
		return fmt.Errorf("list conflict %s: %w", kind, err)
	}
	return nil
}

const noteContacts = `
INSERT INTO contact_portal_records AS r (contact_key, portal_id, hubspot_id, adopted, seen_at)
SELECT x.contact_key, $1, x.hubspot_id, $4, hubsync.now()
FROM unnest($2::text[], $3::text[]) AS x (contact_key, hubspot_id)
ORDER BY x.contact_key
ON CONFLICT (contact_key, portal_id) DO UPDATE
SET hubspot_id = excluded.hubspot_id, adopted = r.adopted OR excluded.adopted, creating_until = NULL, seen_at = excluded.seen_at`

// NoteContacts records the records of contacts, by contact key, and ends the right to
// make them. adopted: HubSpot had them before us; noted before our key is written onto
// them, because their address must never be sent. An empty record id says that none was
// made.
func (db *DB) NoteContacts(ctx context.Context, portalID string, records map[string]string, adopted bool) error {
	if len(records) == 0 {
		return nil
	}
	var keys, ids []string
	for key, id := range records {
		keys, ids = append(keys, key), append(ids, id)
	}
	if _, err := db.pool.Exec(ctx, noteContacts, portalID, keys, ids, adopted); err != nil {
		return fmt.Errorf("note %d contacts in portal %s: %w", len(records), portalID, err)
	}
	return nil
}
