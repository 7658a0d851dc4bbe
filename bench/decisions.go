package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/intake"
	"hubsync/shared/postgres"
)

// fillPeople makes people who once subscribed, which has long reached HubSpot.
const fillPeople = `
WITH people AS MATERIALIZED (
  SELECT lpad(to_hex(n), 32, '0')::uuid AS id, 'customer-' || n AS key, 'person-' || n || '@example.com' AS email,
         hubsync.now() - interval '30 days' AS at
  FROM generate_series(1::bigint, $1::bigint) AS g (n)
), c AS (
  INSERT INTO contacts (contact_key, email, email_key) SELECT key, email, email FROM people
), a AS (
  INSERT INTO contact_aliases (alias_key, contact_key) SELECT key, key FROM people
), s AS (
  INSERT INTO contact_subscription_state
    (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state, applied_sequence, applied_state, updated_at)
  SELECT key, 'acme', 'newsletter', 'main', 1, id, 'subscribed', 1, 'subscribed', at FROM people
), r AS (
  INSERT INTO subscription_requests
    (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash, sync_status, created_at, sequence, consent_at)
  SELECT id, 'acme', key, 'newsletter', 'subscribed', 1, 'old-' || key, 'x', 'synced', at, 1, at FROM people
)
INSERT INTO hubspot_outbox_events
  (id, request_id, event_type, payload, status, next_attempt_at, created_at, completed_at, portal_id, brand_id, lane, sequence, mapping_version)
SELECT p.id, p.id, 'subscription.desired-state.v1', t.snapshot, 'synced', at, at, at, 'main', 'acme', 1, 1, 1
FROM people p CROSS JOIN (SELECT snapshot FROM brand_subscription_routes WHERE active LIMIT 1) t`

// knownARound is more decisions than a round of any machine takes, in a second.
const knownARound = 8_000

// newIntake is the real handler; every decision is a newcomer's, the most work there is.
func newIntake(ctx context.Context, b *bench, clients int, mode pgx.QueryExecMode) (func(context.Context, int) (int, error), func(), error) {
	return ourIntake(ctx, b, clients, mode, 0)
}

// knownIntake is the real handler; every decision is another known person's.
func knownIntake(ctx context.Context, b *bench, clients int, mode pgx.QueryExecMode) (func(context.Context, int) (int, error), func(), error) {
	return ourIntake(ctx, b, clients, mode, knownPeople(b))
}

// knownPeople is how many people all rounds of a contender need.
func knownPeople(b *bench) int {
	return int(max(b.form.round.Seconds(), leastSeconds) * float64(b.form.rounds) * knownARound)
}

// peopleDatabase knows so many people.
func peopleDatabase(ctx context.Context, b *bench, known int) (*database, error) {
	routes, err := parseRoutes(oneRoute)
	if err != nil {
		return nil, err
	}
	db, err := b.pg.hubsync(ctx, routes)
	if err != nil {
		return nil, err
	}
	return db, db.people(ctx, known)
}

// people fills a database on a connection of its own: the foreign keys' plans of one
// that saw the tables empty would walk over them at every row.
func (db *database) people(ctx context.Context, n int) error {
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return fmt.Errorf("fill %d people: %w", n, err)
	}
	defer func() { _ = conn.Close(ctx) }() // what it did is done
	if _, err := conn.Exec(ctx, fillPeople, n); err != nil {
		return fmt.Errorf("fill %d people: %w", n, err)
	}
	_, err = conn.Exec(ctx, `VACUUM (ANALYZE)`)
	return err
}

// ourIntake is the handler over a database of its own that knows so many people.
func ourIntake(ctx context.Context, b *bench, clients int, mode pgx.QueryExecMode, known int) (func(context.Context, int) (int, error), func(), error) {
	db, err := peopleDatabase(ctx, b, known)
	if err != nil {
		return nil, nil, err
	}
	pool, err := db.pool(ctx, clients, mode)
	if err != nil {
		return nil, nil, err
	}
	handler := intake.New(intake.Config{DB: postgres.New(pool)})
	var n atomic.Int64
	op := func(ctx context.Context, _ int) (int, error) {
		return 1, decide(ctx, handler, n.Add(1))
	}
	return op, pool.Close, nil
}

// decide sends one person's subscribe.
func decide(ctx context.Context, handler http.Handler, person int64) error {
	return decideAs(ctx, handler, person, "key-"+strconv.FormatInt(person, 10))
}

func decideAs(ctx context.Context, handler http.Handler, person int64, key string) error {
	id := strconv.FormatInt(person, 10)
	body := `{"contactKey":"customer-` + id + `","email":"person-` + id + `@example.com","productId":"newsletter",` +
		`"desiredState":"subscribed","occurredAt":"2026-01-02T03:04:05Z","consent":{"legalBasis":"CONSENT_WITH_NOTICE","explanation":"footer form"}}`
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/brands/acme/subscriptions", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	if answer.Code != http.StatusAccepted {
		return fmt.Errorf("intake answered %d: %s", answer.Code, answer.Body)
	}
	return nil
}
