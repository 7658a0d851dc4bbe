package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/relay"
	"hubsync/shared/routing"
)

const routes = `{"portals":[
 {"id":"main","hubId":1,"burst":{"limit":150,"window":"10s"},"daily":500000},
 {"id":"other","hubId":2,"burst":{"limit":150,"window":"10s"},"daily":500000}],
"brands":[
 {"id":"acme","portal":"main","products":[{"id":"news","subscriptionTypeId":5,"legalBasis":"NON_GDPR"}]},
 {"id":"apex","portal":"main","products":[{"id":"news","subscriptionTypeId":6,"legalBasis":"NON_GDPR"}]},
 {"id":"bolt","portal":"other","products":[{"id":"news","subscriptionTypeId":5,"legalBasis":"NON_GDPR"}]}]}`

// world is a relay between a database of its own and an emulator whose deliveries go
// nowhere.
type world struct {
	*relay.Relay
	t      *testing.T
	pool   *pgxpool.Pool
	db     *postgres.DB
	qstash *qstashtest.Server
	calls  atomic.Int64 // that reached QStash
	serial int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pool: postgrestest.New(t), qstash: qstashtest.New(qstashtest.Options{})}
	w.db = postgres.New(w.pool)
	file, err := routing.Parse([]byte(routes))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.ApplyRoutes(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	emulator := w.qstash.Handler()
	api := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		w.calls.Add(1)
		emulator.ServeHTTP(answer, request)
	}))
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(func() { w.qstash.Close(); api.Close(); sink.Close() })
	w.Relay = w.relay(api.URL, sink.URL)
	return w
}

func (w *world) relay(api, sink string) *relay.Relay {
	publisher, err := qstash.New(qstash.Config{BaseURL: api, Timeout: 2 * time.Second, Token: func(context.Context) (string, error) { return qstashtest.DefaultToken, nil }})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := relay.New(relay.Config{DB: w.db, Publisher: publisher, Destination: sink, Env: "test", Clock: time.Now,
		Random: rand.Float64, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// accept stores decisions of different people, and returns their events.
func (w *world) accept(brand, state string, lane outbox.Lane, n int) []uuid.UUID {
	w.t.Helper()
	var events []uuid.UUID
	for range n {
		w.serial++
		d := postgres.Decision{
			RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: brand, ProductID: "news",
			ContactKey: fmt.Sprint("k", w.serial), Email: fmt.Sprint(w.serial, "@example.com"), EmailKey: fmt.Sprint(w.serial, "@example.com"),
			DesiredState: outbox.DesiredState(state), IdempotencyKey: fmt.Sprint(w.serial), RequestHash: "h", Source: "api", Lane: lane,
		}
		if _, err := w.db.Accept(w.t.Context(), d); err != nil {
			w.t.Fatal(err)
		}
		events = append(events, d.EventID)
	}
	return events
}

func (w *world) pass() relay.Result {
	w.t.Helper()
	r, err := w.Pass(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func query[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status(id uuid.UUID) string {
	return query[string](w, `SELECT status FROM hubspot_outbox_events WHERE id = $1`, id.String())
}

func TestABacklogTravelsInFullMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 230)
	w.accept("bolt", "unsubscribed", outbox.LaneLive, 3)
	alone := w.accept("acme", "subscribed", outbox.LaneLive, 1)[0]
	w.exec(`UPDATE hubspot_outbox_events SET travels_alone = true WHERE id = $1`, alone.String())
	r := w.pass()
	// 231 live events of main, one of them alone, in 3 + 1 messages; 3 opt-outs of other in 1.
	if r.Claimed != 234 || r.Published != 234 || r.Messages != 5 {
		t.Errorf("%+v", r)
	}
	if n := query[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE status = 'queued' AND lease_expires_at IS NULL
		AND claim_token IS NULL AND qstash_message_id IS NOT NULL AND next_attempt_at > now() + interval '9 minutes'`); n != 234 {
		t.Errorf("%d queued with a deadline", n)
	}
	if lanes := query[string](w, `SELECT string_agg(DISTINCT lane::text, ',') FROM hubspot_outbox_events WHERE brand_id = 'bolt'`); lanes != "0" {
		t.Errorf("an unsubscribe is in lane %s", lanes)
	}
	if again := w.pass(); again.Claimed != 0 {
		t.Errorf("claimed twice: %+v", again)
	}
}

// Without SKIP LOCKED and the token two relays would publish the same event.
func TestTwoRelaysShareNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 600)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 4 {
				if _, err := w.Pass(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := query[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE status = 'queued' AND publish_attempts = 1`); n != 600 {
		t.Errorf("%d of 600 published exactly once", n)
	}
}

// `id IN (SELECT … LIMIT n FOR UPDATE SKIP LOCKED)` claims more than n under a nested
// loop; the claim here takes its limit whatever the plan.
func TestAClaimTakesItsLimitUnderANestedLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 200)
	w.exec(`ALTER DATABASE ` + query[string](w, `SELECT current_database()`) + ` SET enable_hashjoin = off`)
	w.exec(`ALTER DATABASE ` + query[string](w, `SELECT current_database()`) + ` SET enable_mergejoin = off`)
	postgrestest.NewSessions(t, w.pool)
	if off := query[string](w, `SHOW enable_hashjoin`); off != "off" {
		t.Fatal("the nested loop is not forced")
	}
	routes := []postgres.Route{{PortalID: "main", Lane: outbox.LaneLive, Room: 1000, Brands: []string{"acme"}}}
	for _, limit := range []int{1, 10, 33} {
		events, err := w.db.ClaimPublishable(t.Context(), routes, limit, uuid.New(), time.Minute)
		if err != nil || len(events) != limit {
			t.Errorf("limit %d: %d events, %v", limit, len(events), err)
		}
	}
	if n := query[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE status = 'publishing'`); n != 44 {
		t.Errorf("%d rows are publishing, 44 were returned", n)
	}
}

func TestAnExpiredPublishingLeaseIsClaimedAgainAndTheOldMarkIsVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept("acme", "subscribed", outbox.LaneLive, 1)[0]
	start := time.Now().Add(time.Hour)
	postgrestest.SetClock(t, w.pool, start)
	routes := []postgres.Route{{PortalID: "main", Lane: outbox.LaneLive, Room: 10, Brands: []string{"acme"}}}
	claim := func() (uuid.UUID, int) {
		token := uuid.New()
		events, err := w.db.ClaimPublishable(t.Context(), routes, 10, token, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return token, len(events)
	}
	dead, n := claim()
	if n != 1 {
		t.Fatal("not claimed")
	}
	postgrestest.Advance(t, w.pool, 119*time.Second)
	if _, n = claim(); n != 0 {
		t.Error("claimed under a living lease")
	}
	postgrestest.Advance(t, w.pool, 2*time.Second)
	living, n := claim()
	if n != 1 {
		t.Error("an expired lease was not claimed")
	}
	mark := []postgres.Published{{EventID: id, MessageID: "m"}}
	if n, err := w.db.MarkPublished(t.Context(), dead, mark, time.Minute); err != nil || n != 0 {
		t.Errorf("a mark under a lost claim: %d rows, %v", n, err)
	}
	if n, err := w.db.MarkPublished(t.Context(), living, mark, time.Minute); err != nil || n != 1 {
		t.Errorf("the holder's mark: %d rows, %v", n, err)
	}
	if n, err := w.db.MarkPublished(t.Context(), living, mark, time.Minute); err != nil || n != 0 || w.status(id) != "queued" {
		t.Errorf("the same mark again: %d rows, %v, %s", n, err, w.status(id))
	}
	for _, status := range []string{"processing", "synced", "superseded"} {
		w.exec(`UPDATE hubspot_outbox_events SET status = $2, claim_token = $3, completed_at = CASE WHEN $2 = 'processing' THEN NULL ELSE now() END WHERE id = $1`, id.String(), status, living.String())
		if n, err := w.db.MarkPublished(t.Context(), living, mark, time.Minute); err != nil || n != 0 || w.status(id) != status {
			t.Errorf("a late mark moved %s back: %d rows, %v", status, n, err)
		}
	}
	if n, err := w.db.MarkPublished(t.Context(), living, nil, time.Minute); err != nil || n != 0 {
		t.Errorf("nothing to mark: %d, %v", n, err)
	}
}

func TestAPausedPortalWaitsButItsOptOutsGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	live, optOut := w.accept("acme", "subscribed", outbox.LaneLive, 1)[0], w.accept("acme", "unsubscribed", outbox.LaneLive, 1)[0]
	if err := w.db.PausePortal(t.Context(), "main", time.Now().Add(time.Hour), "test", false); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if w.status(live) != "pending" || w.status(optOut) != "queued" {
		t.Errorf("live %s, opt-out %s", w.status(live), w.status(optOut))
	}
	optOut = w.accept("acme", "unsubscribed", outbox.LaneLive, 1)[0]
	if err := w.db.PausePortal(t.Context(), "main", time.Now().Add(time.Hour), "test", true); err != nil {
		t.Fatal(err)
	}
	if w.pass(); w.status(optOut) != "pending" {
		t.Errorf("told to wait, the opt-out is %s", w.status(optOut))
	}
	if err := w.db.ResumePortal(t.Context(), "main"); err != nil {
		t.Fatal(err)
	}
	if w.pass(); w.status(optOut) != "queued" || w.status(live) != "queued" {
		t.Errorf("after the pause: live %s, opt-out %s", w.status(live), w.status(optOut))
	}
}

func TestNoMoreIsQueuedThanTheBudgetServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`UPDATE hubspot_portals SET burst_limit = 1 WHERE id = 'main'`) // 6 calls a minute: the least, 100 events
	w.accept("acme", "subscribed", outbox.LaneLive, 130)
	w.accept("bolt", "subscribed", outbox.LaneLive, 20)
	for range 3 {
		w.pass()
	}
	if n := query[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE status = 'queued' AND brand_id = 'acme'`); n != 100 {
		t.Errorf("%d queued", n)
	}
	if n := query[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE status = 'queued' AND brand_id = 'bolt'`); n != 20 {
		t.Errorf("the other portal has %d queued", n)
	}
}

func TestARefusedBatchIsHalvedUntilTheBadEventIsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	events := w.accept("acme", "subscribed", outbox.LaneLive, 250)
	bad := events[137]
	w.qstash.SetFaults(qstashtest.Faults{RefuseBatchContaining: bad.String()})
	r := w.pass()
	if r.Dead != 1 || r.Published != 249 || w.status(bad) != "dead" {
		t.Errorf("%+v, the bad one is %s", r, w.status(bad))
	}
	if code := query[string](w, `SELECT last_error_code FROM hubspot_outbox_events WHERE id = $1`, bad.String()); code != "publish_config" {
		t.Errorf("code %s", code)
	}
	if s := query[string](w, `SELECT sync_status FROM subscription_requests r JOIN hubspot_outbox_events e ON e.request_id = r.id WHERE e.id = $1`, bad.String()); s != "dead" {
		t.Errorf("its request is %s", s)
	}
}

func TestAnItemsErrorFailsOnlyItsEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	events := w.accept("acme", "subscribed", outbox.LaneLive, 5)
	w.qstash.SetFaults(qstashtest.Faults{ItemErrorContains: events[2].String()})
	if r := w.pass(); r.Published != 4 || r.Dead != 1 || w.status(events[2]) != "dead" {
		t.Errorf("%+v", r)
	}
}

func TestARefusedTokenOpensTheBreakerAndBurnsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 120)
	w.qstash.SetFaults(qstashtest.Faults{BatchStatus: http.StatusUnauthorized})
	if r := w.pass(); r.Published != 0 {
		t.Errorf("%+v", r)
	}
	if n := query[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE publish_attempts = 0 AND status = 'publish_retry' AND next_attempt_at <= now()`); n != 120 {
		t.Errorf("%d of 120 unburnt and due", n)
	}
	if r := w.pass(); r.Claimed != 0 {
		t.Errorf("the breaker is open, and it claimed %d", r.Claimed)
	}
	w.exec(`UPDATE service_breakers SET open_until = now() - interval '1 second'`)
	if r := w.pass(); r.Claimed != 1 { // a probe
		t.Errorf("probed with %d", r.Claimed)
	}
	w.qstash.SetFaults(qstashtest.Faults{})
	w.exec(`UPDATE service_breakers SET open_until = now() - interval '1 second'`)
	w.pass()
	if r := w.pass(); r.Published != 119 {
		t.Errorf("after the token was mended: %+v", r)
	}
}

func TestALostReplyIsATwinAndAnOutageWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept("acme", "subscribed", outbox.LaneLive, 1)[0]
	w.qstash.SetFaults(qstashtest.Faults{LoseReply: 1})
	if w.pass(); w.status(id) != "publish_retry" {
		t.Fatalf("after a lost reply: %s", w.status(id))
	}
	w.qstash.SetFaults(qstashtest.Faults{})
	w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now()`)
	if r := w.pass(); r.Deduplicated != 1 || w.status(id) != "queued" {
		t.Errorf("%+v, %s: the same generation must be recognised as a twin", r, w.status(id))
	}
	for _, f := range []qstashtest.Faults{{BatchStatus: 503}, {BatchStatus: 429}, {BatchStatus: 429, DailyLimit: true}} {
		id = w.accept("acme", "subscribed", outbox.LaneLive, 1)[0]
		w.qstash.SetFaults(f)
		w.pass()
		if w.status(id) != "publish_retry" {
			t.Errorf("%+v: %s", f, w.status(id))
		}
	}
}

// A deliberate re-send must not be swallowed by a deduplication window of 90 days.
func TestANewGenerationIsSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept("acme", "subscribed", outbox.LaneLive, 1)[0]
	w.pass()
	w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() - interval '1 second' WHERE id = $1`, id.String())
	if n, err := w.db.SweepStuck(t.Context(), 250); err != nil || n != 1 {
		t.Fatalf("swept %d, %v", n, err)
	}
	if r := w.pass(); r.Published != 1 || r.Deduplicated != 0 {
		t.Errorf("%+v", r)
	}
}
