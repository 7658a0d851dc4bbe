// Package postgrestest gives every test a database of its own on a real PostgreSQL:
// cloned from a migrated template, in exec mode as in production, dropped afterwards.
// Where there is no PostgreSQL the test fails and says what to install. With
// HUBSYNC_TEST_POOLER=1 the pools lead through PgBouncer in transaction mode (make
// pooled): what keeps a session's state between two transactions fails there.
package postgrestest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/local/pgserver"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/pgbouncertest"
)

// PoolerVariable is the variable that puts PgBouncer before every pool.
const PoolerVariable = "HUBSYNC_TEST_POOLER"

// maxConns is what the concurrency tests of one database need.
const maxConns = 40

// cluster is the server of this test process with its migrated template. It ends
// with the process: its supervisor notices.
var cluster struct {
	once     sync.Once
	dsn      func(database string) string
	template string
	pooler   *pgbouncertest.Server // nil: pools lead to the server itself
	err      error
	clone    sync.Mutex // a template is cloned by one at a time
}

// New returns a pool over a fresh, migrated database.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Open(t, DSN(t))
}

// DSN makes a fresh, migrated database and returns its URL.
func DSN(t testing.TB) string {
	t.Helper()
	cluster.once.Do(func() { cluster.err = start() })
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	name := "t_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	cluster.clone.Lock()
	err := administer(t.Context(), fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, cluster.template))
	cluster.clone.Unlock()
	if err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	t.Cleanup(func() {
		if err := administer(context.Background(), fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name)); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
	})
	return cluster.dsn(name)
}

// Open returns a pool over the database of a DSN, closed with the test.
func Open(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	if cluster.pooler != nil {
		target, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal("the test database's URL cannot be read")
		}
		dsn = cluster.pooler.URL(target.Database)
	}
	pool, err := postgres.Open(t.Context(), postgres.Config{URL: dsn, MaxConns: maxConns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// NewSessions has every later query of a pool run on a new session, so that what ALTER
// DATABASE … SET says holds.
func NewSessions(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pool.Reset()
	if cluster.pooler == nil {
		return
	}
	if err := cluster.pooler.Reconnect(t.Context(), pool.Config().ConnConfig.Database); err != nil {
		t.Fatal(err)
	}
}

func start() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := serve(ctx); err != nil {
		return err
	}
	cluster.template = fmt.Sprintf("template_%d_%d", os.Getpid(), time.Now().UnixNano())
	if err := administer(ctx, "CREATE DATABASE "+cluster.template); err != nil {
		return fmt.Errorf("make the template database: %w", err)
	}
	if _, _, err := postgres.Migrate(ctx, cluster.dsn(cluster.template)); err != nil {
		return err
	}
	if os.Getenv(PoolerVariable) != "1" {
		return nil
	}
	var err error
	cluster.pooler, err = pgbouncertest.Start(ctx, cluster.dsn("postgres"), pgbouncertest.Options{PoolSize: maxConns})
	return err
}

// serve uses the server of DATABASE_URL, or starts one.
func serve(ctx context.Context) error {
	if given := os.Getenv("DATABASE_URL"); given != "" {
		u, err := url.Parse(given)
		if err != nil {
			return fmt.Errorf("DATABASE_URL cannot be read")
		}
		cluster.dsn = func(database string) string {
			other := *u
			other.Path = "/" + database
			return other.String()
		}
		return nil
	}
	server, err := pgserver.Start(ctx, pgserver.Options{})
	if err != nil {
		return err
	}
	cluster.dsn = server.DSN
	return nil
}

func administer(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, cluster.dsn("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }() // the statement's error is what counts
	_, err = conn.Exec(ctx, statement)
	return err
}

const testClock = `
CREATE TABLE IF NOT EXISTS hubsync.test_clock (at timestamptz NOT NULL);
CREATE OR REPLACE FUNCTION hubsync.now() RETURNS timestamptz LANGUAGE sql STABLE
  AS $$ SELECT at FROM hubsync.test_clock $$;
CREATE OR REPLACE FUNCTION hubsync.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS $$ SELECT at FROM hubsync.test_clock $$;
DELETE FROM hubsync.test_clock;
INSERT INTO hubsync.test_clock VALUES (now())`

// SetClock stops the time of this test's database at t.
func SetClock(t testing.TB, pool *pgxpool.Pool, at time.Time) {
	t.Helper()
	for statement := range strings.SplitSeq(testClock, ";\n") {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatalf("set the database's clock: %v", err)
		}
	}
	moveClock(t, pool, `UPDATE hubsync.test_clock SET at = $1`, at)
}

// Advance moves the time that SetClock stopped.
func Advance(t testing.TB, pool *pgxpool.Pool, by time.Duration) {
	t.Helper()
	moveClock(t, pool, `UPDATE hubsync.test_clock SET at = at + $1::interval`, by)
}

func moveClock(t testing.TB, pool *pgxpool.Pool, statement string, value any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), statement, value); err != nil {
		t.Fatalf("move the database's clock: %v", err)
	}
}
