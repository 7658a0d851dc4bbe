package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"hubsync/migrations"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
)

func TestTheCheckOfStatesIsTheTable(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	var definition string
	err := pool.QueryRow(t.Context(), `SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'hubspot_outbox_events'::regclass
		AND pg_get_constraintdef(oid) LIKE '%publish_retry%'`).Scan(&definition)
	if err != nil {
		t.Fatal(err)
	}
	var inSQL []outbox.Status
	for _, m := range regexp.MustCompile(`'([a-z_]+)'`).FindAllStringSubmatch(definition, -1) {
		inSQL = append(inSQL, outbox.Status(m[1]))
	}
	want := slices.Clone(outbox.Statuses)
	slices.Sort(inSQL)
	slices.Sort(want)
	if !slices.Equal(inSQL, want) {
		t.Errorf("CHECK %v, table %v", inSQL, want)
	}
}

func TestMigrateTwiceIsOnce(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	files, err := migrations.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	newest := files[len(files)-1].Name()
	from, to, err := postgres.Migrate(t.Context(), dsn)
	if err != nil || from != to || fmt.Sprintf("%05d", to) != newest[:5] {
		t.Errorf("version %d → %d, the newest is %s, %v", from, to, newest, err)
	}
	if _, _, err := postgres.Migrate(t.Context(), "nonsense"); err == nil {
		t.Error("a nonsense URL is accepted")
	}
}

// The clock must stay an expression that the planner inlines, or an index condition on
// it becomes a filter.
func TestNowIsInlined(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	var plan string
	if err := pool.QueryRow(t.Context(), `EXPLAIN (VERBOSE, COSTS OFF) SELECT hubsync.now()`).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `EXPLAIN (VERBOSE, COSTS OFF) SELECT hubsync.now()`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan += line
	}
	if regexp.MustCompile(`hubsync\.now`).MatchString(plan) {
		t.Errorf("plan: %s", plan)
	}
}

func TestOpenRefusesTLSThatVerifiesNothing(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"postgres://u@db.example.com/x?sslmode=verify-full": true,
		"postgres://u@db.example.com/x?sslmode=verify-ca":   true,
		"postgres://u@db.example.com/x?sslmode=disable":     true,
		"postgres://u@127.0.0.1/x":                          true,
		"postgres://u@/x?host=/run/postgresql":              true,
		"postgres://u@db.example.com/x":                     false,
		"postgres://u@db.example.com/x?sslmode=require":     false,
		"postgres://u@db.example.com/x?sslmode=prefer":      false,
		"postgres://u@192.0.2.7/x?sslmode=allow":            false,
	} {
		pool, err := postgres.Open(context.Background(), postgres.Config{URL: url, RequireTLS: true})
		if pool != nil {
			pool.Close()
		}
		if ok != (err == nil) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestOpenRefusesWhatWouldPin(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"postgres://u:secret@db.example.com:5432/x?sslmode=verify-full":     true,
		"postgres://u:secret@db.example.com/x?options=-c%20search_path%3Dx": false,
		"postgres://u:secret@db.example.com/x?statement_timeout=5s":         false,
		"host=db.example.com user=u password=secret":                        false,
		"postgres://u:secret@db.example.com:port/x":                         false,
		"": false,
	} {
		pool, err := postgres.Open(context.Background(), postgres.Config{URL: url})
		if pool != nil {
			pool.Close()
		}
		if ok != (err == nil) {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && regexp.MustCompile("secret").MatchString(err.Error()) {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
