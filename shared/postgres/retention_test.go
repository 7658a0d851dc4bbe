package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
)

// kept is a database at a time that the test moves.
type kept struct {
	t    *testing.T
	pool *pgxpool.Pool
	db   *postgres.DB
}

func newKept(t *testing.T) *kept {
	t.Helper()
	pool := intakeWorld(t)
	postgrestest.SetClock(t, pool, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return &kept{t, pool, postgres.New(pool)}
}

// decide stores an opt-out of a person under a key and returns its outcome and request.
func (k *kept) decide(person, key, hash string) postgres.DecisionReceipt {
	k.t.Helper()
	receipt, err := k.db.Accept(k.t.Context(), postgres.Decision{
		RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: "acme", ProductID: "newsletter",
		ContactKey: person, Email: person + "@example.com", EmailKey: person + "@example.com", DesiredState: outbox.Unsubscribed,
		IdempotencyKey: key, RequestHash: hash, Source: "api", Lane: outbox.LaneLive,
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return receipt
}

// settle does what a worker would: everything open was applied, with a receipt.
func (k *kept) settle() {
	k.t.Helper()
	k.exec(`INSERT INTO hubspot_operation_receipts (id, event_id, operation, desired_hash, outcome)
		SELECT gen_random_uuid(), id, 'preference', 'h', 'done' FROM hubspot_outbox_events WHERE completed_at IS NULL`)
	k.exec(`UPDATE subscription_requests r SET sync_status = 'synced' FROM hubspot_outbox_events e WHERE e.request_id = r.id AND e.completed_at IS NULL`)
	k.exec(`UPDATE contact_subscription_state SET applied_sequence = latest_sequence, applied_state = desired_state`)
	k.exec(`UPDATE hubspot_outbox_events SET status = 'synced', completed_at = hubsync.now() WHERE completed_at IS NULL`)
}

func (k *kept) exec(sql string) {
	k.t.Helper()
	if _, err := k.pool.Exec(k.t.Context(), sql); err != nil {
		k.t.Fatal(err)
	}
}

// move walks once over everything and returns how many requests moved.
func (k *kept) move() int {
	k.t.Helper()
	total := 0
	for {
		lookedAt, moved, err := k.db.MoveSettled(k.t.Context(), 7)
		if err != nil {
			k.t.Fatal(err)
		}
		if total += moved; lookedAt < 7 {
			return total
		}
	}
}

func (k *kept) count(table string) int {
	k.t.Helper()
	var n int
	if err := k.pool.QueryRow(k.t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		k.t.Fatal(err)
	}
	return n
}

const day = 24 * time.Hour

// TestAKeyOutlivesItsRequest: a request that moved is still answered and still evidence;
// its key is honoured, then refused, and never makes a second decision.
func TestAKeyOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	first := k.decide("ann", "key-1", "hash-1")
	k.settle()
	k.decide("ann", "key-2", "hash-2")
	k.settle()
	if n := k.move(); n != 0 {
		t.Fatalf("%d requests moved at once", n)
	}
	postgrestest.Advance(t, k.pool, 91*day)
	if n := k.move(); n != 1 {
		t.Fatalf("%d requests moved, want the first alone: the second is the newest", n)
	}
	if k.count("subscription_requests") != 1 || k.count("hubspot_outbox_events") != 1 || k.count("hubspot_operation_receipts") != 1 {
		t.Error("the hot tables hold more than the newest decision")
	}

	again := k.decide("ann", "key-1", "hash-1")
	if again.Outcome != postgres.DecisionReplayed || again.RequestID != first.RequestID || again.RequestHash != "hash-1" || again.Sequence != 1 || !again.AcceptedAt.Equal(first.AcceptedAt) {
		t.Errorf("the moved key answers %+v, first %+v", again, first)
	}
	if other := k.decide("ann", "key-1", "hash-x"); other.Outcome != postgres.DecisionReplayed || other.RequestHash != "hash-1" {
		t.Errorf("the moved key with another body: %+v", other)
	}
	state, found, err := k.db.RequestState(t.Context(), "acme", first.RequestID)
	if err != nil || !found || state.Status != "synced" || len(state.Events) != 1 || state.Events[0].Status != "synced" {
		t.Errorf("the moved request: %+v, %v, %v", state, found, err)
	}
	k.mustBeEvidence("ann", 2)

	postgrestest.Advance(t, k.pool, 310*day)
	if late := k.decide("ann", "key-1", "hash-1"); late.Outcome != postgres.DecisionExpired {
		t.Errorf("after 401 days the key answers %+v", late)
	}
	if n := k.count("every_request"); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// mustBeEvidence checks that a contact's decisions, events and receipts are all found.
func (k *kept) mustBeEvidence(contact string, want int) {
	k.t.Helper()
	requests, err := k.db.Requests(k.t.Context(), contact)
	if err != nil || len(requests) != want {
		k.t.Errorf("%d decisions, want %d, %v", len(requests), want, err)
	}
	events, err := k.db.ContactEvents(k.t.Context(), contact)
	if err != nil || len(events) != want {
		k.t.Errorf("%d events, want %d, %v", len(events), want, err)
	}
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	receipts, err := k.db.Receipts(k.t.Context(), ids)
	if err != nil || len(receipts) != want {
		k.t.Errorf("%d receipts, want %d, %v", len(receipts), want, err)
	}
}

// TestWhatIsStillNeededStays: each of these requests is old, and each has a reason.
func TestWhatIsStillNeededStays(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"not settled":              `UPDATE hubspot_outbox_events SET status = 'pending', completed_at = NULL`,
		"pending again":            `UPDATE subscription_requests SET sync_status = 'pending'`,
		"settled lately":           `UPDATE hubspot_outbox_events SET completed_at = hubsync.now() - interval '1 day'`,
		"accepted lately":          `UPDATE subscription_requests SET created_at = hubsync.now() - interval '1 day'`,
		"our last own opt-out":     `UPDATE contact_subscription_state SET own_opt_out_event_id = (SELECT id FROM hubspot_outbox_events WHERE sequence = 1)`,
		"the lease is its event's": `UPDATE contact_subscription_state SET lease_event_id = (SELECT id FROM hubspot_outbox_events WHERE sequence = 1)`,
		"an unsubscribe-all":       `UPDATE subscription_requests SET source = 'unsubscribe_all'`,
		"kept for longer":          `UPDATE retention SET history_after = '200 days'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKept(t)
			k.decide("ann", "key-1", "h")
			k.settle()
			k.decide("ann", "key-2", "h")
			k.settle()
			postgrestest.Advance(t, k.pool, 91*day)
			k.exec(change)
			if n := k.move(); n != 0 {
				t.Errorf("%d requests moved", n)
			}
		})
	}
}

// TestALockedSubscriptionIsLeftForTheNextRound: the move waits for nobody.
func TestALockedSubscriptionIsLeftForTheNextRound(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	for _, person := range []string{"ann", "bea"} {
		k.decide(person, person+"-1", "h")
		k.settle()
		k.decide(person, person+"-2", "h")
		k.settle()
	}
	postgrestest.Advance(t, k.pool, 91*day)
	tx, err := k.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM contact_subscription_state WHERE contact_key = 'ann' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if n := k.move(); n != 1 {
		t.Errorf("%d requests moved beside a lock, want bea's", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := k.move(); n != 1 {
		t.Errorf("%d requests moved in the next round, want ann's", n)
	}
}

// TestNinetyDaysStayFlat: with a retention of 14 days, the hot tables and the pages that a
// claim and a decision read are on day 90 what they were on day 30.
func TestNinetyDaysStayFlat(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.exec(`UPDATE retention SET history_after = '14 days'`)
	const people, perDay = 20, 10
	var hot, pages []int
	for d := range 90 {
		for i := range perDay {
			k.decide(fmt.Sprintf("p%d", (d*perDay+i*7)%people), fmt.Sprintf("key-%d-%d", d, i), "h")
		}
		if d%10 == 9 {
			pages = append(pages, k.claimPages())
		}
		k.settle()
		postgrestest.Advance(t, k.pool, day)
		k.move()
		if d%10 == 9 {
			k.exec(`VACUUM ANALYZE subscription_requests`) // as autovacuum does in a real day
			k.exec(`VACUUM ANALYZE hubspot_outbox_events`)
			hot = append(hot, k.count("subscription_requests")+k.count("hubspot_outbox_events")+k.count("hubspot_operation_receipts"))
		}
	}
	t.Logf("rows in the hot tables every ten days: %v; pages that a claim reads: %v", hot, pages)
	if day30, day90 := hot[2], hot[8]; day90 > day30*11/10 {
		t.Errorf("hot rows %v", hot)
	}
	if day30, day90 := pages[2], pages[8]; day90 > day30*11/10+2 {
		t.Errorf("pages that a claim reads %v", pages)
	}
	if all := k.count("every_request"); all != 90*perDay || k.count("subscription_requests_history")+k.count("subscription_requests") != all {
		t.Errorf("%d requests in all, want %d", all, 90*perDay)
	}
	if n := k.count("settled_keys"); n != k.count("subscription_requests_history") {
		t.Errorf("%d keys of the requests that moved", n)
	}
}

// claimPages is how many pages the relay's look for due events reads.
func (k *kept) claimPages() int {
	k.t.Helper()
	rows, err := k.pool.Query(k.t.Context(), `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) SELECT id FROM hubspot_outbox_events
		WHERE portal_id = 'main' AND lane = 0 AND brand_id = 'acme' AND status IN ('pending', 'publishing', 'publish_retry', 'process_retry')
		  AND next_attempt_at <= hubsync.now() ORDER BY next_attempt_at LIMIT 100`)
	if err != nil {
		k.t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		k.t.Fatal(err)
	}
	hit := regexp.MustCompile(`Buffers: shared hit=(\d+)`).FindStringSubmatch(strings.Join(plan, "\n"))
	if hit == nil {
		k.t.Fatalf("no count of pages in the plan:\n%s", strings.Join(plan, "\n"))
	}
	pages, err := strconv.Atoi(hit[1])
	if err != nil {
		k.t.Fatal(err)
	}
	return pages
}

// TestHistoryHasTheColumnsOfItsTable: a migration that adds a column adds it to both, and
// to the view over both.
func TestHistoryHasTheColumnsOfItsTable(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	for table, view := range map[string]string{
		"subscription_requests": "every_request", "hubspot_outbox_events": "every_event", "hubspot_operation_receipts": "every_receipt",
	} {
		want := k.columns(table)
		if got := k.columns(table + "_history"); len(got) == 0 || !slices.Equal(got[1:], want) {
			t.Errorf("%s_history has %q, want moved_at and %q", table, got, want)
		}
		got := k.columns(view)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", view, got, want)
		}
	}
}

func (k *kept) columns(table string) []string {
	k.t.Helper()
	var names []string
	err := k.pool.QueryRow(k.t.Context(), `SELECT array_agg(attname::text || ' ' || atttypid::regtype ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped`, table).Scan(&names)
	if err != nil {
		k.t.Fatal(err)
	}
	return names
}
