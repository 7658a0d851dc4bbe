package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// manyEvents inserts events without their requests, which nothing here reads.
const manyEvents = `
INSERT INTO hubspot_outbox_events
  (id, request_id, event_type, payload, status, completed_at, portal_id, brand_id, lane, sequence, mapping_version)
SELECT i.id, i.id, 'subscription.desired-state.v1', '{}', $1::text, CASE WHEN $1::text = 'synced' THEN hubsync.now() END, 'main', 'acme', 1, 1, 1
FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, $2::integer)) i`

// A session keeps the plans of the function that it made while the queue was empty.
// They must not walk over the backlog that an outage makes later.
func TestIntakeDoesNotWalkTheBacklog(t *testing.T) {
	t.Parallel()
	config := intakeWorld(t).Config()
	config.MaxConns, config.MinConns = 1, 0
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const backlog, decisions = 2000, 20
	run(`SET session_replication_role = replica`) // no foreign keys for what is made up
	run(manyEvents, "synced", 5000)
	run(`SET session_replication_role = origin`)
	run(`ANALYZE`)
	db := postgres.New(pool)
	decide := func(phase string) {
		t.Helper()
		for i := range decisions {
			d := someDecision(fmt.Sprintf("%s-%d", phase, i))
			d.DesiredState = outbox.Unsubscribed
			if r, err := db.Accept(t.Context(), d); err != nil || r.Outcome != postgres.DecisionAccepted {
				t.Fatalf("decision %d: %+v, %v", i, r, err)
			}
		}
	}
	read := func() (n int) {
		t.Helper()
		run(`SELECT pg_stat_force_next_flush()`)
		run(`SELECT 1`)
		err := pool.QueryRow(t.Context(), `SELECT sum(idx_tup_read) + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'hubspot_outbox_events')
			FROM pg_stat_user_indexes WHERE relname = 'hubspot_outbox_events'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	decide("while the queue is empty")
	run(`SET session_replication_role = replica`)
	run(manyEvents, "pending", backlog)
	run(`SET session_replication_role = origin`)
	before := read()
	decide("behind a backlog")
	if rows := read() - before; rows > decisions*20 {
		t.Errorf("%d decisions read %d rows of the outbox, whose backlog is %d", decisions, rows, backlog)
	}
}
