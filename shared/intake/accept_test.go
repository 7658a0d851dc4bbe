package intake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/postgres/postgrestest"
)

// together runs n calls that start at the same moment.
func together(n int, call func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			call(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// widen gives the world enough connections that n callers really race.
func (w *world) widen(n int32) {
	w.t.Helper()
	w.useCopyOfPool(func(c *pgxpool.Config) { c.MaxConns = n })
}

// useCopyOfPool lets the handler work over another pool of the same database.
func (w *world) useCopyOfPool(change func(*pgxpool.Config)) {
	w.t.Helper()
	config := w.pool.Config()
	change(config)
	pool, err := pgxpool.NewWithConfig(w.t.Context(), config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	w.handler = newHandler(pool, w.log)
}

func TestHotSubscriptionKeepsCommitOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.widen(16)
	const writers, each = 16, 12
	together(writers, func(writer int) {
		for i := range each {
			state := []string{"subscribed", "unsubscribed"}[(writer+i)%2]
			response := w.post(fmt.Sprintf("hot-%d-%d", writer, i), bodyOf(fmt.Sprintf("usr_%d", writer%3), "ann@example.com", "newsletter", state, ""))
			if response.Code != http.StatusAccepted {
				t.Errorf("writer %d: %d %s", writer, response.Code, response.Body)
			}
		}
	})
	if wrong := one[int](w, `SELECT count(*) FROM (
		SELECT sequence, row_number() OVER (ORDER BY created_at, sequence) AS place, lag(created_at) OVER (ORDER BY sequence) AS before, created_at
		FROM subscription_requests) r
		WHERE r.sequence IS DISTINCT FROM r.place OR r.before >= r.created_at`); wrong != 0 {
		t.Errorf("%d sequences are out of commit order", wrong)
	}
	if last := one[int](w, `SELECT latest_sequence FROM contact_subscription_state`); last != writers*each {
		t.Errorf("latest sequence %d, want %d", last, writers*each)
	}
	// The subscription shows the decision of its highest sequence.
	if agrees := one[bool](w, `SELECT s.desired_state = r.desired_state AND s.latest_event_id = e.id
		FROM contact_subscription_state s JOIN subscription_requests r ON r.sequence = s.latest_sequence
		JOIN hubspot_outbox_events e ON e.request_id = r.id`); !agrees {
		t.Error("the subscription does not show its latest decision")
	}
	if contacts := one[int](w, `SELECT count(*) FROM contacts`); contacts != 1 {
		t.Errorf("%d contacts for one address", contacts)
	}
}

func TestTwinsOfOneKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.widen(16)
	const rounds = 20
	for round := range rounds {
		var mu sync.Mutex
		codes := map[int]int{}
		ids := map[string]bool{}
		content := bodyOf(fmt.Sprintf("usr_%d", round%4), fmt.Sprintf("ann%d@example.com", round%4), "newsletter", "subscribed", "")
		together(16, func(int) {
			response := w.post(fmt.Sprintf("twin-%d", round), content)
			receipt := w.receipt(response)
			mu.Lock()
			defer mu.Unlock()
			codes[response.Code]++
			ids[receipt.RequestID] = true
		})
		if codes[202] != 1 || codes[200] != 15 || len(ids) != 1 {
			t.Fatalf("round %d: answers %v, %d ids", round, codes, len(ids))
		}
	}
	if got := w.counts(); got != fmt.Sprintf("4 4 %d %d %d", rounds, rounds, rounds) {
		t.Errorf("contacts, aliases, requests, events, sequences: %s", got)
	}
}

func TestManyKeysOfOneNewAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.widen(16)
	together(16, func(i int) {
		response := w.post(fmt.Sprintf("new-%d", i), bodyOf(fmt.Sprintf("usr_%d", i), "ann@example.com", []string{"newsletter", "events"}[i%2], "unsubscribed", ""))
		if response.Code != http.StatusAccepted {
			t.Errorf("%d: %d %s", i, response.Code, response.Body)
		}
	})
	if got := w.counts(); got != "1 16 16 16 16" {
		t.Errorf("contacts, aliases, requests, events, sequences: %s", got)
	}
}

func TestLateConsentIsSupersededAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	optOut := w.decide("usr_1", "ann@example.com", "newsletter", "unsubscribed", "2026-02-01T12:00:00Z")
	for occurredAt, want := range map[string]string{
		"2026-02-01T11:59:59Z":           "superseded",
		"2026-02-01T12:00:00Z":           "superseded", // a tie goes to the opt-out
		"2026-02-01T12:00:00.000001Z":    "pending",
		"2026-02-01T13:00:00.000+01:00":  "superseded",
		"2026-02-01T12:59:59.9999+01:00": "superseded",
	} {
		id := w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", occurredAt)
		state := w.request(id)
		if state.Status != want {
			t.Errorf("consent of %s: %+v", occurredAt, state)
		}
		if want == "superseded" && (state.Reason != "consent_older_than_opt_out" || state.Sequence != 0 ||
			len(state.Events) != 1 || state.Events[0].Status != "superseded" || state.Events[0].CompletedAt == nil || state.Events[0].NextAttemptAt != nil) {
			t.Errorf("consent of %s: %+v", occurredAt, state)
		}
	}
	if got := w.request(optOut); got.Sequence != 1 {
		t.Errorf("opt-out %+v", got)
	}
	// Only the one valid consent took a place, and undated ones are of now.
	if sequence := one[int](w, `SELECT latest_sequence FROM contact_subscription_state`); sequence != 2 {
		t.Errorf("sequence %d", sequence)
	}
	if state := w.request(w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")); state.Status != "pending" || state.Sequence != 3 {
		t.Errorf("undated consent: %+v", state)
	}
	// A replay of a superseded decision is still the same receipt.
	content := bodyOf("usr_1", "ann@example.com", "newsletter", "subscribed", "2020-01-01T00:00:00Z")
	if first, second := w.post("late", content), w.post("late", content); first.Code != 202 || second.Code != 200 {
		t.Errorf("%d, then %d", first.Code, second.Code)
	}
}

func TestConsentFromTheFutureCountsAsNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.decide("usr_1", "ann@example.com", "newsletter", "unsubscribed", "9999-12-31T23:59:59Z")
	if state := w.request(id); state.OccurredAt == nil || state.OccurredAt.Year() != 9999 {
		t.Errorf("the claim is not kept: %+v", state)
	}
	if state := w.request(w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")); state.Status != "pending" {
		t.Errorf("an opt-out from the future blocks a consent of now: %+v", state)
	}
}

func TestUnsubscribeAlwaysTakesEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "2026-02-01T12:00:00Z")
	state := w.request(w.decide("usr_1", "ann@example.com", "newsletter", "unsubscribed", "2001-01-01T00:00:00Z"))
	if state.Status != "pending" || state.Sequence != 2 {
		t.Errorf("%+v", state)
	}
	if lane := one[int](w, `SELECT e.lane FROM hubspot_outbox_events e WHERE e.request_id = $1::uuid`, state.RequestID); lane != 0 {
		t.Errorf("lane %d", lane)
	}
	// An older opt-out does not make the known one older.
	w.decide("usr_1", "ann@example.com", "newsletter", "unsubscribed", "2026-03-01T00:00:00Z")
	w.decide("usr_1", "ann@example.com", "newsletter", "unsubscribed", "2001-01-01T00:00:00Z")
	if state := w.request(w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "2026-02-15T00:00:00Z")); state.Status != "superseded" {
		t.Errorf("%+v", state)
	}
}

func TestUndatedConsentsRaceOptOuts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.widen(16)
	together(16, func(i int) {
		for j := range 8 {
			state := []string{"subscribed", "unsubscribed"}[(i+j)%2]
			response := w.post(fmt.Sprintf("race-%d-%d", i, j), bodyOf("usr_1", "ann@example.com", "newsletter", state, ""))
			if response.Code != http.StatusAccepted {
				t.Errorf("%d %s", response.Code, response.Body)
			}
		}
	})
	// An undated consent is dated under the lock, so none is older than the opt-out before it.
	if superseded := one[int](w, `SELECT count(*) FROM subscription_requests WHERE status_reason = 'consent_older_than_opt_out'`); superseded != 0 {
		t.Errorf("%d undated consents were superseded", superseded)
	}
	if wrong := one[int](w, `SELECT count(*) FROM subscription_requests a JOIN subscription_requests b
		ON b.sequence = a.sequence + 1 WHERE b.consent_at <= a.consent_at`); wrong != 0 {
		t.Errorf("%d consents are not in order", wrong)
	}
}

func TestWideOptOutsCoverSubscriptionsThatDoNotExistYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_1", "ann@example.com", "events", "subscribed", "")
	w.exec(`UPDATE contacts SET opted_out_at = '2026-02-01T12:00:00Z'`)
	w.exec(`INSERT INTO contact_brand_opt_outs VALUES ('usr_1', 'acme', '2026-02-02T12:00:00Z')`)
	for occurredAt, want := range map[string]string{"2026-02-01T13:00:00Z": "superseded", "2026-02-02T12:00:00Z": "superseded"} {
		if state := w.request(w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", occurredAt)); state.Status != want || state.Sequence != 0 {
			t.Errorf("%s: %+v", occurredAt, state)
		}
	}
	if state := w.request(w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "2026-02-02T12:00:01Z")); state.Status != "pending" || state.Sequence != 1 {
		t.Errorf("%+v", state)
	}
}

func TestSharedKeyIsListedAndNothingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	w.decide("usr_2", "bo@example.com", "newsletter", "subscribed", "")
	w.decide("usr_1", "bo@example.com", "newsletter", "unsubscribed", "")
	w.decide("usr_1", "BO@example.com", "events", "unsubscribed", "")
	if got := one[string](w, `SELECT contact_key || ' ' || kind || ' ' || detail || ' ' || seen_count FROM contact_conflicts`); got != "usr_2 shared_key usr_1 2" {
		t.Errorf("listed: %s", got)
	}
	if named := one[string](w, `SELECT contact_key FROM contact_aliases WHERE alias_key = 'usr_1'`); named != "usr_1" {
		t.Errorf("the key names %s now", named)
	}
	// The opt-outs are the person's whose address it is.
	if states := one[string](w, `SELECT string_agg(contact_key || ' ' || product_id || ' ' || desired_state, ', ' ORDER BY contact_key, product_id) FROM contact_subscription_state`); states !=
		"usr_1 newsletter subscribed, usr_2 events unsubscribed, usr_2 newsletter unsubscribed" {
		t.Errorf("states: %s", states)
	}
}

// What still waits when a newer decision comes is never published.
func TestANewerDecisionOvertakesWhatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []string
	for i, state := range []string{"subscribed", "unsubscribed", "subscribed"} {
		ids = append(ids, w.decide("usr_1", "ann@example.com", "newsletter", state, fmt.Sprintf("2026-02-0%dT12:00:00Z", i+1)))
		if i == 0 { // a relay holds it
			w.exec(`UPDATE hubspot_outbox_events SET status = 'publishing'`)
		}
	}
	other := w.decide("usr_1", "ann@example.com", "events", "subscribed", "")
	if got := one[string](w, `SELECT string_agg(e.status || ' ' || r.sync_status || ' ' || coalesce((e.superseded_by = s.latest_event_id)::text, '-'), ', ' ORDER BY r.sequence)
		FROM subscription_requests r JOIN hubspot_outbox_events e ON e.request_id = r.id
		JOIN contact_subscription_state s ON s.contact_key = r.contact_key AND s.product_id = r.product_id
		WHERE r.product_id = 'newsletter'`); got != "publishing pending -, superseded superseded true, pending pending -" {
		t.Errorf("events: %s", got)
	}
	if state := w.request(ids[1]); state.Reason != "newer_decision" {
		t.Errorf("%+v", state)
	}
	if state := w.request(other); state.Status != "pending" {
		t.Errorf("another subscription: %+v", state)
	}
}

func TestAddressChangeIssuesEverythingAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "2026-02-01T12:00:00Z")
	second := w.decide("usr_1", "ann@example.com", "events", "unsubscribed", "")
	w.exec(`UPDATE hubspot_outbox_events SET status = 'synced', completed_at = now()`)
	w.exec(`UPDATE subscription_requests SET sync_status = 'synced'`)
	w.decide("usr_1", "ann@new.example.com", "newsletter", "subscribed", "")
	if got := one[string](w, `SELECT email || ' ' || email_key || ' ' || array_to_string(previous_email_keys, ',') FROM contacts`); got !=
		"ann@new.example.com ann@new.example.com ann@example.com" {
		t.Errorf("contact: %s", got)
	}
	if state := w.request(first); state.Status != "superseded" || len(state.Events) != 2 || state.Events[1].Status != "superseded" {
		t.Errorf("the decision that came with the change overtakes what it issued: %+v", state)
	}
	for _, id := range []string{second} {
		if state := w.request(id); state.Status != "pending" || len(state.Events) != 2 || state.Events[0].Status != "synced" || state.Events[1].Status != "pending" {
			t.Errorf("%+v", state)
		}
	}
	if got := one[string](w, `SELECT string_agg(product_id || ' ' || latest_sequence, ', ' ORDER BY product_id) FROM contact_subscription_state`); got != "events 2, newsletter 3" {
		t.Errorf("sequences: %s", got)
	}
	// A change to an address that another contact has is no change: the address decides.
	w.decide("usr_9", "zoe@example.com", "events", "subscribed", "")
	w.decide("usr_1", "zoe@example.com", "newsletter", "unsubscribed", "")
	if got := one[string](w, `SELECT contact_key FROM contact_subscription_state WHERE product_id = 'newsletter' AND desired_state = 'unsubscribed'`); got != "usr_9" {
		t.Errorf("the opt-out went to %s", got)
	}
}

func TestAddressChangesRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// A request whose address moved away while it waited starts again instead of
	// raising its lock; the short timeout keeps the test short if two ever deadlock.
	w.setting("deadlock_timeout", "= '20ms'")
	w.useCopyOfPool(func(c *pgxpool.Config) { c.MaxConns = 16 })
	w.decide("usr_1", "start@example.com", "newsletter", "subscribed", "")
	w.decide("usr_2", "other@example.com", "newsletter", "subscribed", "")
	together(16, func(i int) {
		for j := range 4 {
			address := fmt.Sprintf("ann%d@example.com", (i+j)%5)
			response := w.post(fmt.Sprintf("move-%d-%d", i, j), bodyOf(fmt.Sprintf("usr_%d", 1+i%2), address, []string{"newsletter", "events"}[j%2], "unsubscribed", ""))
			if response.Code != http.StatusAccepted && response.Code != http.StatusConflict {
				t.Errorf("%d %s", response.Code, response.Body)
			}
		}
	})
	if twins := one[int](w, `SELECT count(*) - count(DISTINCT email_key) FROM contacts`); twins != 0 {
		t.Errorf("%d addresses have two contacts", twins)
	}
	if gaps := one[int](w, `SELECT count(*) FROM contact_subscription_state s
		WHERE s.latest_sequence <> (SELECT count(*) FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id
			WHERE r.contact_key = s.contact_key AND r.brand_id = s.brand_id AND r.product_id = s.product_id)`); gaps != 0 {
		t.Errorf("%d subscriptions have gaps in their sequence", gaps)
	}
}

// setting sets a parameter of the sessions where a deployment does: outside them.
func (w *world) setting(parameter, value string) {
	w.t.Helper()
	w.exec(`ALTER DATABASE ` + w.pool.Config().ConnConfig.Database + ` SET ` + parameter + ` ` + value)
	postgrestest.NewSessions(w.t, w.pool)
}

func TestBusyContactIsAnsweredWith409(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	before := w.counts()
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM contacts FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	content := bodyOf("usr_1", "ann@example.com", "newsletter", "unsubscribed", "")
	for parameter, value := range map[string]string{"lock_timeout": "100ms", "statement_timeout": "150ms"} {
		w.setting(parameter, "= '"+value+"'")
		response := w.post("busy", content)
		w.setting(parameter, "TO DEFAULT")
		checkProblem(t, response, 409, "busy")
		if wait := response.Header().Get("Retry-After"); wait != "1" {
			t.Errorf("%s: Retry-After %q", parameter, wait)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := w.counts(); after != before {
		t.Errorf("%s → %s", before, after)
	}
	if response := w.post("busy", content); response.Code != http.StatusAccepted {
		t.Errorf("the same key again: %d %s", response.Code, response.Body)
	}
}

func TestDatabaseAwayIsAnsweredWith503(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	if response := w.call("GET", "/healthz", ""); response.Code != 200 || !strings.Contains(response.Body.String(), `"ok"`) {
		t.Errorf("healthz: %d %s", response.Code, response.Body)
	}
	config := w.pool.Config()
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Fallbacks = "127.0.0.1", 1, nil
	config.MinConns = 0
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w.handler = newHandler(pool, w.log)
	content := bodyOf("canary", "canary@example.com", "newsletter", "unsubscribed", "")
	for _, response := range []interface {
		Result() *http.Response
	}{
		w.post("away", content),
		w.call("GET", "/healthz", ""),
		w.call("GET", "/v1/brands/acme/subscription-requests/"+id, ""),
		w.call("GET", "/v1/brands/acme/contacts/usr_1/subscriptions", ""),
	} {
		result := response.Result()
		if result.StatusCode != 503 || result.Header.Get("Retry-After") == "" || result.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d, %v", result.StatusCode, result.Header)
		}
	}
	if log := w.log.String(); strings.Contains(log, "canary") || !strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("log: %s", log)
	}
	// A server that is shut down in the middle of a request is away, too.
	w.handler = newHandler(w.pool, w.log)
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM contacts FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int)
	go func() {
		answered <- w.post("killed", bodyOf("usr_1", "ann@example.com", "events", "unsubscribed", "")).Code
	}()
	w.killWaiting()
	if code := <-answered; code != 503 {
		t.Errorf("killed in flight: %d", code)
	}
	if n := one[int](w, `SELECT count(*) FROM subscription_requests WHERE idempotency_key IN ('away', 'killed')`); n != 0 {
		t.Errorf("%d requests are stored that were answered with 503", n)
	}
	_ = tx.Rollback(t.Context()) // it holds the contact
	if code := w.post("killed", bodyOf("usr_1", "ann@example.com", "events", "unsubscribed", "")).Code; code != 202 {
		t.Errorf("the same key again: %d", code)
	}
}

// killWaiting ends the session that waits for a lock. It asks outside of any
// transaction: inside one, pg_stat_activity stands still.
func (w *world) killWaiting() {
	w.t.Helper()
	for range 500 {
		if one[int](w, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatal("no session waited")
}

// What is stored of the evidence is what was given.
func TestEvidenceIsStoredAsGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	response := w.post("evidence", strings.Replace(valid, `"7"`, `"7\ud83d\ude00 \"x\" \\u0041"`, 1))
	id := w.receipt(response).RequestID
	got := one[string](w, `SELECT concat_ws(' | ', consent->>'legalBasis', consent->>'explanation', consent->>'source', consent->>'wordingVersion',
		source, idempotency_key, to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), (consent_at = occurred_at)::text)
		FROM subscription_requests WHERE id = $1::uuid`, id)
	want := `CONSENT_WITH_NOTICE | form v3 | https://example.com/news | 7😀 "x" \u0041 | api | evidence | 2026-02-01 09:30 | true`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if email := one[string](w, `SELECT email || ' ' || email_key FROM contacts`); email != "Ann@Example.com ann@example.com" {
		t.Errorf("contact %s", email)
	}
	if payload := one[string](w, `SELECT payload::text FROM hubspot_outbox_events`); strings.Contains(strings.ToLower(payload), "ann@") || !strings.Contains(payload, "2239644020") {
		t.Errorf("payload %s", payload)
	}
	if ids := one[[]string](w, `SELECT array_agg(substr(id::text, 15, 1)) FROM (SELECT id FROM subscription_requests UNION ALL SELECT id FROM hubspot_outbox_events) i`); !slices.Equal(ids, []string{"7", "7"}) {
		t.Errorf("ids are not UUIDv7: %v", ids)
	}
}

// The clock of the database is the only one that dates a decision.
func TestDecisionsAreDatedByTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	postgrestest.SetClock(t, w.pool, at)
	if state := w.request(w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")); !state.AcceptedAt.Equal(at) {
		t.Errorf("accepted at %s", state.AcceptedAt)
	}
}
