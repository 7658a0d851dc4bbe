package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
)

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

const outboxRows = `
INSERT INTO hubspot_outbox_events (id, request_id, event_type, payload, status, portal_id, brand_id, lane, sequence, mapping_version, revision, completed_at, created_at)
SELECT gen_random_uuid(), (SELECT id FROM subscription_requests LIMIT 1), $1::text, '{}', $1::text, $2, 'acme', $3::smallint, 1, 1, g,
       CASE WHEN $1::text = 'synced' THEN now() END, now() - interval '1 hour'
FROM generate_series(1, $4::integer) g`

func newOutbox(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := postgrestest.New(t)
	execute(t, pool, `INSERT INTO brands (id, name) VALUES ('acme', 'Acme')`)
	execute(t, pool, `INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit) VALUES ('main', 1, 150, 1000)`)
	execute(t, pool, `INSERT INTO subscription_requests (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash, sequence, consent_at)
		VALUES (gen_random_uuid(), 'acme', 'k', 'p', 'subscribed', 1, 'i', 'h', 1, now())`)
	return pool
}

// The hot statements read the partial indexes only. A condition that an index does not
// imply (an OR, another list of states) would walk over the settled rows or sort.
func TestRelayAndSweepReadTheirPartialIndexes(t *testing.T) {
	t.Parallel()
	pool := newOutbox(t)
	for status, n := range map[string]int{"synced": 20_000, "pending": 2_000, "publishing": 100, "queued": 100, "processing": 100} {
		execute(t, pool, outboxRows, status, "main", 1, n)
	}
	execute(t, pool, `ANALYZE hubspot_outbox_events, hubspot_portals, brands`) // as ApplyRoutes does
	for _, tc := range []struct {
		name, sql, index string
		args             []any
	}{
		{"claim", postgres.ClaimPublishableSQL, "hubspot_outbox_events_due",
			[]any{[]string{"main"}, []string{"acme"}, []int64{100}, int16(1), 100, uuid.NewString(), time.Minute}},
		{"routes", postgres.SelectRoutesSQL, "hubspot_outbox_events_in_flight", []any{1.0, 60.0, 100.0}},
		{"sweep", postgres.SweepStuckSQL, "hubspot_outbox_events_in_flight", []any{250}},
		{"oldest pending", postgres.OldestWaitingSQL, "hubspot_outbox_events_due", nil},
		{"gauges", postgres.SelectOldestSQL, "hubspot_outbox_events_due", nil},
	} {
		plan := explain(t, pool, tc.sql, tc.args...)
		if !strings.Contains(plan, tc.index) || strings.Contains(plan, "Seq Scan on hubspot_outbox_events") || strings.Contains(plan, "Sort Key: d.") || strings.Contains(plan, "JIT") {
			t.Errorf("%s:\n%s", tc.name, plan)
		}
	}
}

func explain(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "EXPLAIN "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return plan.String()
}

// Without the exceptions an import of a million contacts, or a pause, would raise an
// alarm that nobody can mend.
func TestOnlyWhatTheRelayShouldHaveTakenCountsAsOld(t *testing.T) {
	t.Parallel()
	pool := newOutbox(t)
	db := postgres.New(pool)
	old := func(want bool, when string) {
		t.Helper()
		age, err := db.OldestPending(t.Context())
		if err != nil || (age >= time.Hour) != want {
			t.Errorf("%s: %s, %v", when, age, err)
		}
	}
	old(false, "nothing waits")
	execute(t, pool, outboxRows, "pending", "main", 1, 3)
	old(true, "nobody takes it")
	execute(t, pool, outboxRows, "queued", "main", 1, 1)
	old(false, "a backlog behind queued ones")
	execute(t, pool, `DELETE FROM hubspot_outbox_events WHERE status = 'queued'`)
	execute(t, pool, `UPDATE hubspot_portals SET paused_until = now() + interval '1 hour'`)
	old(false, "paused")
	execute(t, pool, `UPDATE hubspot_outbox_events SET lane = 0`)
	old(true, "opt-outs go on in a pause")
	execute(t, pool, `UPDATE hubspot_portals SET pause_opt_outs = true`)
	old(false, "opt-outs paused too")
}
