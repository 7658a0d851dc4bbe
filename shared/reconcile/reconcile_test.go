package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/reconcile"
)

func newWorld(t *testing.T) (*reconcile.Reconciler, *pgxpool.Pool) {
	t.Helper()
	pool := postgrestest.New(t)
	r, err := reconcile.New(reconcile.Config{DB: postgres.New(pool), Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit) VALUES ('main', 1, 150, 1000), ('paused', 2, 150, 1000)`,
		`UPDATE hubspot_portals SET paused_until = now() + interval '1 hour', pause_opt_outs = true WHERE id = 'paused'`,
	} {
		exec(t, pool, sql)
	}
	return r, pool
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// insert makes an event in a state whose deadline is some time from now.
func insert(t *testing.T, pool *pgxpool.Pool, portal, status string, deadline time.Duration) uuid.UUID {
	t.Helper()
	request, event := uuid.New(), uuid.New()
	exec(t, pool, `INSERT INTO subscription_requests (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash, sequence, consent_at)
		VALUES ($1::uuid, 'b', $1::text, 'p', 'subscribed', 1, $1::text, 'h', 1, now())`, request.String())
	exec(t, pool, `INSERT INTO contact_subscription_state (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state, fence, lease_expires_at, lease_event_id)
		VALUES ($1, 'b', 'p', $2, 1, $3::uuid, 'subscribed', 7, now() - interval '1 minute', $3::uuid)`, request.String(), portal, event.String())
	exec(t, pool, `INSERT INTO hubspot_outbox_events (id, request_id, event_type, payload, status, next_attempt_at, lease_expires_at, portal_id, brand_id, lane, sequence, mapping_version, fence, completed_at)
		VALUES ($1, $2, 'x', '{}', $3::text, now() + $4::interval, CASE WHEN $3::text = 'processing' THEN now() + $4::interval END, $5, 'b', 1, 1, 1, 7, CASE WHEN $3::text IN ('synced','dead') THEN now() END)`,
		event.String(), request.String(), status, deadline, portal)
	return event
}

func row(t *testing.T, pool *pgxpool.Pool, id uuid.UUID) string {
	t.Helper()
	var status, code string
	var generation int
	err := pool.QueryRow(t.Context(), `SELECT status, generation, coalesce(last_error_code, '') FROM hubspot_outbox_events WHERE id = $1`, id.String()).Scan(&status, &generation, &code)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(status, " ", generation, " ", code)
}

func TestTheSweepFindsWhatIsStuckAndNothingElse(t *testing.T) {
	t.Parallel()
	r, pool := newWorld(t)
	for _, tc := range []struct {
		portal, status string
		deadline       time.Duration
		want           string
	}{
		{"main", "queued", -time.Second, "process_retry 2 delivery_lost"},
		{"main", "processing", -time.Second, "process_retry 2 lease_expired"},
		{"main", "queued", time.Minute, "queued 1 "},
		{"main", "processing", time.Minute, "processing 1 "},
		{"main", "pending", -time.Hour, "pending 1 "}, // alarmed, never re-scheduled
		{"main", "publishing", -time.Hour, "publishing 1 "},
		{"main", "process_retry", -time.Hour, "process_retry 1 "},
		{"main", "synced", -time.Hour, "synced 1 "},
		{"main", "dead", -time.Hour, "dead 1 "},
		{"paused", "queued", -time.Hour, "queued 1 "},
	} {
		id := insert(t, pool, tc.portal, tc.status, tc.deadline)
		if _, err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := row(t, pool, id); got != tc.want {
			t.Errorf("%s of %s, due in %s: %q, want %q", tc.status, tc.portal, tc.deadline, got, tc.want)
		}
	}
	var runs, unfinished int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE finished_at IS NULL) FROM reconcile_runs WHERE kind = 'sweep'`).Scan(&runs, &unfinished); err != nil || runs != 10 || unfinished != 0 {
		t.Errorf("%d runs, %d unfinished, %v", runs, unfinished, err)
	}
}

// ✦ Only the holder of the fence releases a lease. A sweep that did would let the next
// claim take the lost worker's late call for nothing: no takeover, no uncertainty.
func TestStarTheSweepLeavesTheSubscriptionsLease(t *testing.T) {
	t.Parallel()
	r, pool := newWorld(t)
	id := insert(t, pool, "main", "processing", -time.Second)
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var leased bool
	var fence int
	if err := pool.QueryRow(t.Context(), `SELECT lease_expires_at IS NOT NULL AND lease_event_id = $1::uuid, fence FROM contact_subscription_state WHERE latest_event_id = $1::uuid`, id.String()).Scan(&leased, &fence); err != nil || !leased || fence != 7 {
		t.Errorf("leased %v, fence %d, %v", leased, fence, err)
	}
}

func TestTwoSweepsScheduleEachEventOnce(t *testing.T) {
	t.Parallel()
	r, pool := newWorld(t)
	for range 600 {
		insert(t, pool, "main", "queued", -time.Second)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 3 {
		wg.Go(func() {
			got, err := r.Run(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total += got.Scheduled
		})
	}
	wg.Wait()
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM hubspot_outbox_events WHERE generation = 2`).Scan(&n); err != nil || n != 600 || total != 600 {
		t.Errorf("%d in generation 2, %d scheduled, %v", n, total, err)
	}
}

func TestHandlerAuthorizes(t *testing.T) {
	t.Parallel()
	r, pool := newWorld(t)
	insert(t, pool, "main", "queued", -time.Second)
	secret := func(text string, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return text, err }
	}
	for name, tc := range map[string]struct {
		method, header string
		secret         func(context.Context) (string, error)
		status         int
	}{
		"no header":       {"GET", "", secret("s3cret", nil), 401},
		"wrong":           {"GET", "Bearer other", secret("s3cret", nil), 401},
		"a prefix":        {"GET", "Bearer s3cre", secret("s3cret", nil), 401},
		"no scheme":       {"GET", "s3cret", secret("s3cret", nil), 401},
		"lower case":      {"GET", "bearer s3cret", secret("s3cret", nil), 401},
		"empty secret":    {"GET", "Bearer ", secret("", nil), 401},
		"POST":            {"POST", "Bearer s3cret", secret("s3cret", nil), 405},
		"store away":      {"GET", "Bearer s3cret", secret("", errors.New("away")), 503},
		"the right one":   {"GET", "Bearer s3cret", secret("s3cret", nil), 200},
		"trailing spaces": {"GET", "Bearer s3cret ", secret("s3cret", nil), 401},
	} {
		request := httptest.NewRequest(tc.method, reconcile.Path, nil)
		if tc.header != "" {
			request.Header.Set("Authorization", tc.header)
		}
		answer := httptest.NewRecorder()
		r.Handler(tc.secret).ServeHTTP(answer, request)
		if answer.Code != tc.status {
			t.Errorf("%s: %d", name, answer.Code)
		}
		want := "application/problem+json"
		if tc.status == http.StatusOK {
			want = "application/json"
		}
		if got := answer.Header().Get("Content-Type"); got != want {
			t.Errorf("%s: content type %q", name, got)
		}
		if tc.status == http.StatusMethodNotAllowed && answer.Header().Get("Allow") != "GET" {
			t.Errorf("%s: Allow %q", name, answer.Header().Get("Allow"))
		}
		if tc.status == http.StatusOK && strings.TrimSpace(answer.Body.String()) != `{"checked":1,"scheduled":1}` {
			t.Errorf("%s: %s", name, answer.Body.String())
		}
	}
}

// A sweep that is cut off reports an error that nobody can mend; without the margin
// every run that meets its deadline would raise the alarm.
func TestASweepWithoutTimeLeavesTheRestToTheNext(t *testing.T) {
	t.Parallel()
	r, pool := newWorld(t)
	id := insert(t, pool, "main", "queued", -time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 1900*time.Millisecond)
	defer cancel()
	if got, err := r.Run(ctx); err != nil || got.Checked != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Run(t.Context()); err != nil || got.Scheduled != 1 || row(t, pool, id) != "process_retry 2 delivery_lost" {
		t.Errorf("%+v, %v, %s", got, err, row(t, pool, id))
	}
}

func readerOf(text string) *strings.Reader { return strings.NewReader(text) }

// TestARunMovesWhatWasSettledLongAgo: the newest event of a subscription stays.
func TestARunMovesWhatWasSettledLongAgo(t *testing.T) {
	t.Parallel()
	r, pool := newWorld(t)
	old, newest := insert(t, pool, "main", "synced", 0), insert(t, pool, "main", "synced", 0)
	exec(t, pool, `UPDATE contact_subscription_state SET lease_event_id = NULL`)
	exec(t, pool, `UPDATE contact_subscription_state SET latest_event_id = gen_random_uuid() WHERE latest_event_id = $1::uuid`, old.String())
	exec(t, pool, `UPDATE subscription_requests SET sync_status = 'synced', created_at = now() - interval '91 days'`)
	exec(t, pool, `UPDATE hubspot_outbox_events SET completed_at = now() - interval '91 days'`)
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left, moved string
	if err := pool.QueryRow(t.Context(), `SELECT (SELECT string_agg(id::text, ' ') FROM hubspot_outbox_events), (SELECT string_agg(id::text, ' ') FROM hubspot_outbox_events_history)`).Scan(&left, &moved); err != nil {
		t.Fatal(err)
	}
	if left != newest.String() || moved != old.String() {
		t.Errorf("left %s, moved %s; the old one is %s", left, moved, old)
	}
}
