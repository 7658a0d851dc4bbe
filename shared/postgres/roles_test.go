package postgres_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
)

// TestRolesMayDoWhatTheirStatementsNeedAndNoMore is of what a role must not do; that its
// function's own statements work is shown by the local world under roles.
func TestRolesMayDoWhatTheirStatementsNeedAndNoMore(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	for range 2 { // twice is once
		if err := postgres.GrantRoles(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
	}
	const denied = "42501"
	for role, statements := range map[string]map[string]bool{
		"hubsync_intake": {
			"SELECT email FROM contacts": true, "DELETE FROM contacts": false, "UPDATE hubspot_portals SET daily_limit = 1": false,
			"SELECT * FROM hubspot_operation_receipts": false, "UPDATE brand_subscription_routes SET active = false": false,
		},
		"hubsync_relay": {
			"SELECT count(*) FROM hubspot_outbox_events": true, "SELECT email FROM contacts": false, "SELECT 1 FROM contact_aliases": false,
			"SELECT consent FROM subscription_requests": false, "SELECT id FROM subscription_requests": true, "SELECT 1 FROM contact_subscription_state": false,
			"INSERT INTO hubspot_outbox_events (id) VALUES (gen_random_uuid())": false, "DELETE FROM hubspot_outbox_events": false,
		},
		"hubsync_worker": {
			"SELECT email FROM contacts": true, "UPDATE contacts SET email = ''": false, "SELECT 1 FROM reconcile_runs": false,
			"DELETE FROM contact_subscription_state": false, "UPDATE hubspot_operation_receipts SET outcome = ''": false,
		},
		"hubsync_reconcile": {
			"SELECT email FROM contacts": true, "UPDATE contacts SET email = ''": false, "DELETE FROM subscription_requests": false, "DELETE FROM drift_listings": false,
		},
	} {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		// Not through the pooler of make pooled: that one logs in as a user of its own.
		pool, err := postgres.Open(t.Context(), postgres.Config{URL: u.String(), MaxConns: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		for s, allowed := range statements {
			var pe *pgconn.PgError
			_, err := pool.Exec(t.Context(), s)
			if refused := errors.As(err, &pe) && pe.Code == denied; refused == allowed || (allowed && err != nil) {
				t.Errorf("%s: %s: allowed should be %v: %v", role, s, allowed, err)
			}
		}
		for _, s := range []string{"CREATE TABLE mine (x int)", "CREATE TABLE hubsync.mine (x int)", "DROP TABLE contacts", "CREATE ROLE friend", "SELECT 1 FROM goose_db_version"} {
			if _, err := pool.Exec(t.Context(), s); err == nil {
				t.Errorf("%s may %s", role, s)
			}
		}
		var timeout string
		if err := pool.QueryRow(t.Context(), "SHOW statement_timeout").Scan(&timeout); err != nil || timeout == "0" {
			t.Errorf("%s: statement_timeout %s, %v", role, timeout, err)
		}
	}
}

// TestEveryTableSaysWhoMayTouchIt: a migration that adds a table adds a line to roles.go.
func TestEveryTableSaysWhoMayTouchIt(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	rows, err := pool.Query(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = 'public'`)
	if err != nil {
		t.Fatal(err)
	}
	named := postgres.ForOperators()
	for _, r := range postgres.Roles {
		if !strings.HasPrefix(r.Name, "hubsync_") {
			t.Errorf("role %s", r.Name)
		}
		for table := range r.Grants {
			named = append(named, table)
		}
	}
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(named, table) {
			t.Errorf("table %s: say in shared/postgres/roles.go which functions may touch it, or that only operators do", table)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
