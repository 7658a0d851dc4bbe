package relay_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/relay"
)

// scripted is a relay before a QStash that answers every batch as told; bodies are the
// requests that it got.
func (w *world) scripted(answer string, bodies *[]string) *relay.Relay {
	api := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, _ := io.ReadAll(in.Body) // a short body fails the test's comparison
		if bodies != nil {
			*bodies = append(*bodies, string(body))
		}
		_, _ = io.WriteString(out, answer) // the relay notices
	}))
	w.t.Cleanup(api.Close)
	return w.relay(api.URL, "https://worker.example.com/hubspot")
}

func (w *world) count(condition string) int {
	w.t.Helper()
	return query[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE `+condition)
}

// Without a witness a wrong base URL (404), destination or flow-control key would make
// the whole backlog dead, one halved batch after the other.
func TestAMistakeInTheConfigurationEndsNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusPreconditionFailed} {
		w := newWorld(t)
		w.accept("acme", "subscribed", outbox.LaneLive, 300)
		w.qstash.SetFaults(qstashtest.Faults{BatchStatus: status})
		if r := w.pass(); r.Dead != 0 || r.Retried != 300 {
			t.Errorf("%d: %+v", status, r)
		}
		if n := w.calls.Load(); n > 20 {
			t.Errorf("%d: %d calls to learn that nothing is accepted", status, n)
		}
		if n := w.count(`status = 'publish_retry' AND publish_attempts <= 1`); n != 300 {
			t.Errorf("%d: %d of 300 wait", status, n)
		}
		w.qstash.SetFaults(qstashtest.Faults{})
		w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now()`)
		if r := w.pass(); r.Published != 300 {
			t.Errorf("%d: after the mistake was mended: %+v", status, r)
		}
	}
}

func TestARefusedEventIsDeadOnlyBesideAnAcceptedOneOfItsPortal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := w.accept("acme", "subscribed", outbox.LaneLive, 1)[0]
	w.qstash.SetFaults(qstashtest.Faults{RefuseBatchContaining: bad.String()})
	if r := w.pass(); r.Dead != 0 || w.status(bad) != "publish_retry" {
		t.Errorf("alone: %+v, %s", r, w.status(bad))
	}
	again := func(brand string) relay.Result {
		w.accept(brand, "subscribed", outbox.LaneLive, 1)
		w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE id = $1`, bad.String())
		return w.pass()
	}
	// Another portal is no witness: the flow-control key has the portal in it.
	if r := again("bolt"); r.Published != 1 || w.status(bad) != "publish_retry" {
		t.Errorf("beside another portal's: %+v, %s", r, w.status(bad))
	}
	if r := again("acme"); r.Published != 1 || r.Dead != 1 || w.status(bad) != "dead" {
		t.Errorf("beside one of its portal: %+v, %s", r, w.status(bad))
	}
}

// Without the halt every further batch of the pass would meet the same limit or outage,
// each with a timeout of its own, until the claim's lease is over.
func TestALimitOrAnOutageStopsThePass(t *testing.T) {
	t.Parallel()
	for _, f := range []qstashtest.Faults{{BatchStatus: 429}, {BatchStatus: 503}, {BatchStatus: 401}, {LoseReply: 1}} {
		w := newWorld(t)
		w.accept("acme", "subscribed", outbox.LaneLive, 250)
		w.exec(`UPDATE hubspot_outbox_events SET travels_alone = true`) // three batches
		w.qstash.SetFaults(f)
		if r := w.pass(); r.Retried != 250 || w.calls.Load() != 1 {
			t.Errorf("%+v: %+v in %d calls", f, r, w.calls.Load())
		}
		burnt := 100
		if f.BatchStatus == http.StatusUnauthorized {
			burnt = 0
		}
		if n := w.count(`publish_attempts = 1 AND status = 'publish_retry'`); n != burnt {
			t.Errorf("%+v: %d attempts are counted, %d were made", f, n, burnt)
		}
		if n := w.count(`next_attempt_at > now() + interval '61 seconds'`); n != 0 {
			t.Errorf("%+v: %d wait for more than a minute", f, n)
		}
	}
}

// An item's error with a status that passes is no refusal of the item.
func TestAnItemsPassingErrorIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	events := w.accept("acme", "subscribed", outbox.LaneLive, 2)
	w.exec(`UPDATE hubspot_outbox_events SET travels_alone = true`)
	w.Relay = w.scripted(`[{"messageId":"m1"},{"error":"later","status":503}]`, nil)
	if r := w.pass(); r.Published != 1 || r.Retried != 1 || r.Dead != 0 {
		t.Errorf("%+v, %s, %s", r, w.status(events[0]), w.status(events[1]))
	}
	// An answer that is too short says nothing about the rest.
	w.accept("acme", "subscribed", outbox.LaneLive, 2)
	w.exec(`UPDATE hubspot_outbox_events SET travels_alone = true, next_attempt_at = now() + CASE status WHEN 'pending' THEN '0' ELSE '1 hour' END::interval`)
	w.Relay = w.scripted(`[{"messageId":"m1"}]`, nil)
	if r := w.pass(); r.Published != 1 || r.Retried != 1 || r.Dead != 0 {
		t.Errorf("a short answer: %+v", r)
	}
}

func TestAMessageCarriesReferencesAndTheSeedsOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept("acme", "unsubscribed", outbox.LaneLive, 1)[0]
	w.exec(`UPDATE hubspot_outbox_events SET generation = 3, traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'`)
	var bodies []string
	w.Relay = w.scripted(`[{"messageId":"m1"}]`, &bodies)
	w.pass()
	if len(bodies) != 1 {
		t.Fatalf("%d calls", len(bodies))
	}
	var items []struct {
		Destination string
		Body        string
		Headers     map[string]string
	}
	if err := json.Unmarshal([]byte(bodies[0]), &items); err != nil || len(items) != 1 {
		t.Fatalf("%v: %s", err, bodies[0])
	}
	if items[0].Destination != "https://worker.example.com/hubspot" || items[0].Body != `{"eventIds":["`+id.String()+`"]}` {
		t.Errorf("%+v", items[0])
	}
	for name, want := range map[string]string{
		"upstash-deduplication-id":         id.String() + "_r3",
		"upstash-flow-control-key":         "hubsync-test-main-optout",
		"upstash-flow-control-value":       "parallelism=12, rate=150, period=10s",
		"upstash-retries":                  "5",
		"upstash-retry-delay":              "min(60000, 1000 * pow(2, retried))",
		"upstash-timeout":                  "75s",
		"upstash-failure-callback":         "https://worker.example.com/hubspot/failed",
		"upstash-failure-callback-retries": "2",
		"upstash-forward-traceparent":      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		if got := items[0].Headers[name]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if at, ok := items[0].Headers["upstash-not-before"]; ok { // a wrong clock would make it a wrong time
		t.Errorf("a message carries an absolute time: %s", at)
	}
	if strings.Contains(bodies[0], "example.com\"") || strings.Contains(bodies[0], "@") {
		t.Errorf("a message holds more than references: %s", bodies[0])
	}
}

// Without the outer limit a probe takes one event of every portal.
func TestAProbeIsOneEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 2)
	w.accept("bolt", "subscribed", outbox.LaneLive, 2)
	w.exec(`INSERT INTO service_breakers (service, open_until, reason) VALUES ('qstash', now() - interval '1 second', 'test')`)
	if r := w.pass(); r.Claimed != 1 || r.Published != 1 {
		t.Errorf("%+v", r)
	}
	if r := w.pass(); r.Claimed != 3 {
		t.Errorf("the breaker is closed, and it claimed %+v", r)
	}
}

func TestTheBreakerOpensForLongerEachTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	postgrestest.SetClock(t, w.pool, time.Now())
	for i, want := range []time.Duration{30, 60, 120, 240, 300, 300} {
		w.open()
		w.open() // another relay, refused at the same moment: it counts once
		if got := query[float64](w, `SELECT extract(epoch FROM open_until - hubsync.now())::float8 FROM service_breakers`); time.Duration(got) != want {
			t.Errorf("opening %d: for %v s, want %d s", i+1, got, want)
		}
		postgrestest.Advance(t, w.pool, 301*time.Second)
	}
	if err := w.db.CloseBreaker(t.Context(), postgres.QStashBreaker); err != nil {
		t.Fatal(err)
	}
	w.open()
	if got := query[float64](w, `SELECT extract(epoch FROM open_until - hubsync.now())::float8 FROM service_breakers`); got != 30 {
		t.Errorf("after a success: for %v s", got)
	}
}

func (w *world) open() {
	w.t.Helper()
	if err := w.db.OpenBreaker(w.t.Context(), postgres.QStashBreaker, 30*time.Second, 5*time.Minute, "test"); err != nil {
		w.t.Fatal(err)
	}
}

// One busy portal beside idle ones must not crawl at its share of the batch.
func TestAClaimOffersWhatOnePortalLeavesToTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 200)
	w.accept("bolt", "subscribed", outbox.LaneLive, 45)
	routes := []postgres.Route{{PortalID: "main", Lane: outbox.LaneLive, Room: 150, Brands: []string{"acme"}}, {PortalID: "other", Lane: outbox.LaneLive, Room: 1000, Brands: []string{"bolt"}}}
	for _, tc := range []struct {
		limit       int
		main, other int
	}{{80, 40, 40}, {80, 75, 5}, {1000, 85, 0}} {
		events, err := w.db.ClaimPublishable(t.Context(), routes, tc.limit, uuid.New(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, e := range events {
			got[e.PortalID]++
		}
		if got["main"] != tc.main || got["other"] != tc.other {
			t.Errorf("limit %d: %v, want %d and %d", tc.limit, got, tc.main, tc.other)
		}
	}
}

// Forty brands share an account: the backlog of one must not stand before the single
// decision of another.
func TestBrandsShareAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 300)
	late := w.accept("apex", "subscribed", outbox.LaneLive, 1)[0]
	w.BatchSize = 100
	if r := w.pass(); r.Claimed != 100 || w.status(late) != "queued" {
		t.Errorf("%+v, the single decision: %s", r, w.status(late))
	}
	if n := w.count(`status = 'queued' AND brand_id = 'acme'`); n != 99 {
		t.Errorf("%d of the backlog: what one brand leaves belongs to the other", n)
	}
}

func TestLessRoomThanBrands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("apex", "subscribed", outbox.LaneLive, 5)
	w.accept("acme", "subscribed", outbox.LaneLive, 5)
	routes := []postgres.Route{{PortalID: "main", Lane: outbox.LaneLive, Room: 1, Brands: []string{"apex", "acme"}}}
	events, err := w.db.ClaimPublishable(t.Context(), routes, 100, uuid.New(), time.Minute)
	if err != nil || len(events) != 1 || events[0].BrandID != "apex" {
		t.Errorf("%v, %+v", err, events)
	}
}

// A pause is a row: what it stops stays where it is, and the rest goes on.
func TestPausesOfBrandsAndLanes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pause  postgres.Pause
		queued string
	}{
		"nothing":               {postgres.Pause{}, "acme 0, acme 1, apex 0, apex 1, bolt 1"},
		"a brand":               {postgres.Pause{BrandID: "acme", Lane: postgres.EveryLane}, "acme 0, apex 0, apex 1, bolt 1"},
		"a brand, opt-outs too": {postgres.Pause{BrandID: "acme", Lane: postgres.EveryLane, OptOuts: true}, "apex 0, apex 1, bolt 1"},
		"a portal's lane":       {postgres.Pause{PortalID: "main", Lane: outbox.LaneLive}, "acme 0, apex 0, bolt 1"},
		"a lane everywhere":     {postgres.Pause{Lane: outbox.LaneLive}, "acme 0, apex 0"},
		"everything":            {postgres.Pause{Lane: postgres.EveryLane, OptOuts: true}, ""},
	} {
		w := newWorld(t)
		for _, brand := range []string{"acme", "apex", "bolt"} {
			w.accept(brand, "subscribed", outbox.LaneLive, 1)
		}
		w.accept("acme", "unsubscribed", outbox.LaneLive, 1)
		w.accept("apex", "unsubscribed", outbox.LaneLive, 1)
		if tc.pause.Until = time.Now().Add(time.Hour); name != "nothing" {
			if err := w.db.SetPause(t.Context(), tc.pause); err != nil {
				t.Fatal(err)
			}
		}
		w.pass()
		if got := query[string](w, `SELECT coalesce(string_agg(brand_id || ' ' || lane, ', ' ORDER BY brand_id, lane), '') FROM hubspot_outbox_events WHERE status = 'queued'`); got != tc.queued {
			t.Errorf("%s: queued %s", name, got)
		}
		if _, err := w.db.ClearPause(t.Context(), tc.pause.PortalID, tc.pause.BrandID, tc.pause.Lane); err != nil {
			t.Fatal(err)
		}
		w.pass()
		if n := w.count(`status = 'queued'`); n != 5 {
			t.Errorf("%s: %d of 5 after it", name, n)
		}
	}
}

// While HubSpot is away nothing is published; while it recovers, only what its breaker
// has room for.
func TestARecoveringPortalGetsLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 50)
	name := postgres.PortalBreaker("main")
	if err := w.db.OpenBreaker(t.Context(), name, time.Hour, time.Hour, "test"); err != nil {
		t.Fatal(err)
	}
	if r := w.pass(); r.Claimed != 0 {
		t.Errorf("away: %+v", r)
	}
	w.exec(`UPDATE service_breakers SET open_until = now()`)
	widen := func() {
		if err := w.db.WidenBreaker(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{1, 1, 2, 4} {
		if r := w.pass(); r.Claimed != want {
			t.Errorf("after %d successes: %+v, want %d", i, r, want)
		}
		if r := w.pass(); r.Claimed != 0 {
			t.Errorf("after %d successes, once more: %+v", i, r)
		}
		widen()
	}
	for range 14 {
		widen()
	}
	if b, err := w.db.Breaker(t.Context(), name); err != nil || b.Exists {
		t.Errorf("after many successes: %+v, %v", b, err)
	}
	if r := w.pass(); r.Claimed == 0 {
		t.Errorf("closed: %+v", r)
	}
}

// With nothing getting through, passes at full speed would rewrite the whole backlog
// every few seconds.
func TestRunPausesWhileNothingGetsThroughAndStopsInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneLive, 60)
	w.BatchSize, w.Poll = 2, 400*time.Millisecond
	w.qstash.SetFaults(qstashtest.Faults{BatchStatus: 503})
	run := func() relay.Result {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // two seconds above the margin
		defer cancel()
		r, err := w.Run(ctx)
		if err != nil || ctx.Err() != nil {
			t.Errorf("%v; the context: %v", err, ctx.Err())
		}
		return r
	}
	if r := run(); r.Passes == 0 || r.Passes > 7 || r.Published != 0 {
		t.Errorf("an outage: %+v", r)
	}
	w.qstash.SetFaults(qstashtest.Faults{})
	w.BatchSize = 10
	if r := run(); r.Published < 20 {
		t.Errorf("after it: %+v", r)
	}
}

// Opt-outs of every portal are claimed before anything else.
func TestOptOutsAreClaimedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accept("acme", "subscribed", outbox.LaneBulk, 30)
	w.accept("bolt", "subscribed", outbox.LaneLive, 30)
	w.accept("acme", "unsubscribed", outbox.LaneLive, 3)
	w.accept("bolt", "unsubscribed", outbox.LaneBulk, 3)
	w.BatchSize = 10
	w.pass()
	if lanes := query[string](w, `SELECT string_agg(lane || '×' || n, ' ' ORDER BY lane)
		FROM (SELECT lane, count(*) n FROM hubspot_outbox_events WHERE status = 'queued' GROUP BY lane) x`); lanes != "0×6 1×4" {
		t.Errorf("queued: %s", lanes)
	}
}
