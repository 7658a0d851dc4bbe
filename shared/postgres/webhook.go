package postgres

import (
	"context"
	"fmt"
)

// PortalRecord is a contact's record in an account of HubSpot's.
type PortalRecord struct {
	HubID    int64
	RecordID string
}

// What was touched comes before every audit that is due already. Rows that somebody
// holds are skipped: their commit says when to look. Uncertain ones keep their times.
const checkRecordsNow = `
WITH touched AS MATERIALIZED (
  SELECT s.contact_key, s.brand_id, s.product_id
  FROM unnest($1::bigint[], $2::text[]) AS x (hub_id, record_id)
  JOIN hubspot_portals p ON p.hub_id = x.hub_id
  JOIN contact_portal_records r ON r.portal_id = p.id AND r.hubspot_id = x.record_id
  JOIN contact_subscription_state s ON s.contact_key = r.contact_key AND s.portal_id = p.id
  ORDER BY s.contact_key, s.brand_id, s.product_id
  FOR UPDATE OF s SKIP LOCKED
)
UPDATE contact_subscription_state s
SET check_at = least(s.check_at, hubsync.now() - interval '2 days')
FROM touched t
WHERE (s.contact_key, s.brand_id, s.product_id) = (t.contact_key, t.brand_id, t.product_id)`

// CheckRecordsNow makes the subscriptions of some records due for a look, before every
// audit, and returns how many. A record that is not known to be a contact of ours is
// left to the audit.
func (db *DB) CheckRecordsNow(ctx context.Context, records []PortalRecord) (int, error) {
	if len(records) == 0 {
		return 0, nil
	}
	var hubs []int64
	var ids []string
	for _, r := range records {
		hubs, ids = append(hubs, r.HubID), append(ids, r.RecordID)
	}
	tag, err := db.pool.Exec(ctx, checkRecordsNow, hubs, ids)
	if err != nil {
		return 0, fmt.Errorf("make %d records due for a check: %w", len(records), err)
	}
	return int(tag.RowsAffected()), nil
}
