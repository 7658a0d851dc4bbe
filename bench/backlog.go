package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// backlog is a heap of events that somebody made long ago.
type backlog struct {
	portal, brand string
	pending       int
	// settled events for each pending one, mixed among them.
	settledEach int
	// olderBy is how many seconds before the others these are due.
	olderBy int
}

// The requests of these events are left out, and with them the foreign keys: no query
// that is measured on a backlog reads them. One event in five is an opt-out, three are
// live, one is bulk; they are due one millisecond after another.
const fillBacklog = `
INSERT INTO hubspot_outbox_events
  (id, request_id, event_type, payload, status, next_attempt_at, created_at, completed_at, portal_id, brand_id, lane,
   sequence, mapping_version)
SELECT i.id, i.id, 'subscription.desired-state.v1', t.snapshot,
       CASE WHEN i.pending THEN 'pending' ELSE 'synced' END, i.due, i.due, CASE WHEN NOT i.pending THEN i.due END,
       $1::text, $2::text, CASE g.n / ($4::bigint + 1) % 5 WHEN 0 THEN 0 WHEN 4 THEN 2 ELSE 1 END, 1, 1
FROM (SELECT snapshot FROM brand_subscription_routes WHERE active LIMIT 1) t
CROSS JOIN generate_series(1::bigint, $3::bigint * ($4::bigint + 1)) AS g (n)
CROSS JOIN LATERAL (
  SELECT lpad(to_hex(extract(epoch FROM clock_timestamp())::bigint), 12, '0') || left(md5($1::text || $2::text), 8) || lpad(to_hex(g.n), 12, '0') AS hex,
         g.n % ($4::bigint + 1) = 0 AS pending,
         hubsync.now() - ($5::bigint + 7200) * interval '1 second' + g.n / ($4::bigint + 1) * interval '1 millisecond' AS due
) m
CROSS JOIN LATERAL (SELECT m.hex::uuid AS id, m.pending, m.due) i`

// fill makes backlogs and leaves the database as autovacuum would.
func (db *database) fill(ctx context.Context, backlogs ...backlog) error {
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return fmt.Errorf("fill %s: %w", db.name, err)
	}
	defer func() { _ = conn.Close(ctx) }() // what it did is done
	if _, err := conn.Exec(ctx, `SET session_replication_role = replica`); err != nil {
		return fmt.Errorf("fill %s: %w", db.name, err)
	}
	for _, f := range backlogs {
		if _, err := conn.Exec(ctx, fillBacklog, f.portal, f.brand, f.pending, f.settledEach, f.olderBy); err != nil {
			return fmt.Errorf("fill %s with %d events: %w", db.name, f.pending, err)
		}
	}
	_, err = conn.Exec(ctx, `VACUUM (ANALYZE) hubspot_outbox_events`)
	return err
}
