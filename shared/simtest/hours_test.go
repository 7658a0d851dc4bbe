package simtest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/intake"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/reconcile"
	"hubsync/shared/relay"
	"hubsync/shared/webhook"
	"hubsync/shared/worker"
)

// hours is a world on a virtual clock: every stage, emulator and database reads it.
type hours struct {
	*world
	clock    *clock
	redis    *miniredis.Miniredis
	delivery *inProcess
	// transport carries the calls to HubSpot; a test may put its own faults there.
	transport *switched
	mail      *switched // carries QStash's deliveries
	checker   *reconcile.Checker
	lastTick  time.Time
	mu        sync.Mutex
	due       []func() // deliveries that QStash wants to make
}

const hoursWorker = "http://worker.example.com"

func newHours(t *testing.T) *hours {
	t.Helper()
	w := &world{t: t, pool: postgrestest.New(t), destination: hoursWorker}
	w.db = postgres.New(w.pool)
	w.apply("true")
	h := &hours{world: w, clock: &clock{now: time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)}, redis: miniredis.RunT(t)}
	h.sync()
	w.hubspot = hubspottest.New(hubspottest.Options{Now: h.clock.Now, Portals: []hubspottest.Portal{{
		ID: "main", Token: "t", BurstLimit: 1000, BusinessUnits: []int64{7}, Definitions: []hubspottest.Definition{{ID: 5, BusinessUnitID: 7}, {ID: 6, BusinessUnitID: 7}},
		Properties: []hubspottest.Property{{Name: "news", Type: "enumeration", Options: []string{"true", "false"}}, {Name: hubspot.ContactKeyProperty, HasUniqueValue: true}},
	}}})
	h.connect()
	w.intake = intake.New(intake.Config{DB: w.db, UndatedWindow: -1})
	return h
}

// connect makes the stages and the emulators between them, all in this process.
func (h *hours) connect() {
	h.t.Helper()
	check := func(err error) {
		if err != nil {
			h.t.Fatal(err)
		}
	}
	h.transport = &switched{}
	h.transport.set(&inProcess{handler: h.hubspot.Handler()})
	client, err := budget.Open("redis://" + h.redis.Addr())
	check(err)
	h.t.Cleanup(func() { _ = client.Close() })
	limiter := budget.NewLimiter(budget.Config{Redis: client, TrustEmpty: true, Clock: h.clock.Now, Random: rand.Float64})
	hs, err := hubspot.New(hubspot.Config{BaseURL: "http://hubspot.example.com", Clock: h.clock.Now, Token: token("t"),
		HTTPClient: &http.Client{Transport: h.transport}})
	check(err)
	clients := func(string) (*hubspot.Client, error) { return hs, nil }
	log := slog.New(slog.DiscardHandler)
	handler, err := worker.New(worker.Config{
		DB: h.db, Subject: hoursWorker, Env: "test", Clock: h.clock.Now, Random: rand.Float64, Logger: log, Budget: limiter, Client: clients, BudgetWait: time.Nanosecond,
		Verifier: qstash.NewVerifier(func(context.Context) (qstash.Keys, error) {
			return qstash.Keys{Current: qstashtest.DefaultCurrentKey}, nil
		}, h.clock.Now),
	})
	check(err)
	h.delivery, h.mail = &inProcess{handler: handler}, &switched{}
	h.mail.set(h.delivery)
	h.qstash = qstashtest.New(qstashtest.Options{Clock: h.clock, Go: h.later, Client: &http.Client{Transport: h.mail}})
	h.t.Cleanup(h.qstash.Close)
	h.client, err = qstash.New(qstash.Config{BaseURL: "http://qstash.example.com", Token: token(qstashtest.DefaultToken),
		HTTPClient: &http.Client{Transport: &inProcess{handler: h.qstash.Handler()}}})
	check(err)
	h.relay, err = relay.New(relay.Config{DB: h.db, Publisher: h.client, Destination: hoursWorker, Env: "test", Clock: h.clock.Now, Random: rand.Float64, Logger: log})
	check(err)
	h.sweep, err = reconcile.New(reconcile.Config{DB: h.db, Clock: h.clock.Now, Logger: log})
	check(err)
	h.checker, err = reconcile.NewChecker(h.sweep.Config, reconcile.CheckConfig{Budget: limiter, Client: clients, Env: "test", BudgetWait: time.Nanosecond})
	check(err)
}

// sync takes the virtual time to the database and Redis.
func (h *hours) sync() {
	postgrestest.SetClock(h.t, h.pool, h.clock.Now())
	h.redis.SetTime(h.clock.Now())
}

// later takes a delivery that is due: it is made when its turn comes, and not beside
// the test, whose virtual time would run away from it.
func (h *hours) later(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = append(h.due, f)
}

// calm makes the deliveries that are due, one after the other, until there is none.
func (h *hours) calm() {
	for {
		h.mu.Lock()
		if len(h.due) == 0 {
			h.mu.Unlock()
			return
		}
		f := h.due[0]
		h.due = h.due[1:]
		h.mu.Unlock()
		f()
	}
}

// run lets virtual time pass in steps: the relay works at each, sweep and check every
// minute, and QStash's own timers fire when they are due.
func (h *hours) pass(d, step time.Duration, each func()) {
	h.t.Helper()
	for end := h.clock.Now().Add(d); h.clock.Now().Before(end); {
		if each != nil {
			each()
		}
		h.world.pass()
		h.calm()
		if h.clock.Now().Sub(h.lastTick) >= time.Minute {
			h.lastTick = h.clock.Now()
			h.run()
			_, _ = h.checker.Run(h.t.Context()) // HubSpot may be away: the next run goes on
		}
		until := h.clock.Now().Add(step)
		for f := h.clock.next(until); f != nil; f = h.clock.next(until) {
			h.sync()
			f()
			h.calm()
		}
		h.sync()
	}
}

// traffic sends decisions: one in three is an opt-out. A person decides once.
func (h *hours) traffic(n int) {
	for range n {
		state := "subscribed"
		if h.serial%3 == 0 {
			state = "unsubscribed"
		}
		h.decide(fmt.Sprintf("p%d@example.com", h.serial), []string{"news", "plain"}[h.serial%2], state, h.clock.Now().Add(-time.Second))
	}
}

func (h *hours) open() string {
	return h.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE completed_at IS NULL`)
}

// calls counts HubSpot's calls in a time, and the writes by their state, in order.
func (h *hours) calls(from, to time.Time) (calls int, states []string) {
	for _, c := range h.hubspot.Ledger() {
		if c.At.Before(from) || !c.At.Before(to) {
			continue
		}
		calls++
		for _, write := range c.Writes {
			states = append(states, write.State)
		}
	}
	return calls, states
}

// Four hours without HubSpot: nothing dies, no dead-letter queue grows, no storm of
// retries; on return opt-outs drain first, and the rate ramps up.
func TestFourHoursOfOutage(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	h.pass(2*time.Minute, 15*time.Second, func() { h.traffic(2) })
	from := h.clock.Now()
	h.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Status: 503})
	h.pass(4*time.Hour, time.Minute, func() { h.traffic(4) })
	back := h.clock.Now()
	if n, _ := h.calls(from, back); n == 0 || n > 500 {
		t.Errorf("%d calls in four hours of outage: a probe a minute is 240", n)
	}
	if got := h.text(`SELECT count(*) FILTER (WHERE status = 'dead') || ' dead, ' || max(process_attempts) || ' counted' FROM hubspot_outbox_events`); got != "0 dead, 0 counted" {
		t.Error(got)
	}
	if stats := h.qstash.Stats(); stats.Dead != 0 {
		t.Errorf("dead-letter queue: %+v", stats)
	}
	waiting := h.open()
	h.hubspot.SetFaults()
	h.pass(20*time.Minute, 2*time.Second, nil)
	if open := h.open(); open != "0" || waiting == "0" {
		t.Errorf("%s of %s are still open 20 minutes after", open, waiting)
	}
	calls, states := h.calls(back, h.clock.Now())
	first := h.hubspot.Ledger()[len(h.hubspot.Ledger())-calls].At
	if first.Sub(back) > 90*time.Second {
		t.Errorf("the first call came %s after HubSpot was back", first.Sub(back))
	}
	optOuts, before := 0, 0
	for i, s := range states {
		if s == "UNSUBSCRIBED" && optOuts < 288 { // nine in ten of 320
			optOuts++
			before = i + 1 - optOuts // subscribes until then
		}
	}
	if optOuts < 288 || before > len(states)/5 {
		t.Errorf("%d subscribes of %d writes came before nine in ten of the opt-outs (%d)", before, len(states), optOuts)
	}
	early, _ := h.calls(first, first.Add(4*time.Second))
	if early > 24 {
		t.Errorf("%d calls in the first 4 s: the rate does not ramp", early)
	}
	t.Logf("waiting %s, %d calls after, first after %s, %d in the first 4 s", waiting, calls, first.Sub(back), early)
}

// Four hours of a pause: opt-outs go on, the rest is kept, also what was published.
func TestFourHoursOfPause(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	h.traffic(6)
	h.world.pass() // published, and not delivered yet: the clock stands
	pause := postgres.Pause{PortalID: "main", Lane: postgres.EveryLane, Until: h.clock.Now().Add(4 * time.Hour), Reason: "a migration in HubSpot"}
	if err := h.db.SetPause(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	h.calm()
	from := h.clock.Now()
	h.pass(4*time.Hour, time.Minute, func() { h.traffic(3) })
	_, states := h.calls(from.Add(5*time.Second), h.clock.Now())
	for _, s := range states {
		if s == "SUBSCRIBED" {
			t.Fatal("a subscribe was written in the pause")
		}
	}
	if len(states) < 200 {
		t.Errorf("%d opt-outs went on", len(states))
	}
	if n := h.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE lane = 0 AND completed_at IS NULL AND created_at < hubsync.now() - interval '2 minutes'`); n != "0" {
		t.Errorf("%s opt-outs wait", n)
	}
	if got := h.text(`SELECT count(*) FILTER (WHERE status = 'dead') || ' ' || max(process_attempts) FROM hubspot_outbox_events`); got != "0 0" {
		t.Error(got)
	}
	h.pass(10*time.Minute, 5*time.Second, nil)
	if open := h.open(); open != "0" {
		t.Errorf("%s are open after the pause", open)
	}
	for i := range h.serial {
		want := map[bool]string{true: "UNSUBSCRIBED", false: "SUBSCRIBED"}[i%3 == 0]
		if got := h.shown(fmt.Sprintf("p%d@example.com", i), []int64{5, 6}[i%2]); got != want {
			t.Fatalf("p%d: %s, must be %s", i, got, want)
		}
	}
}

// dying is a worker that dies after its claim whenever a message holds one event.
type dying struct {
	*inProcess
	world  *hours
	poison string
	deaths int
}

// RoundTrip claims as the worker would, and is never heard of again.
func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(body), d.poison) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return d.inProcess.RoundTrip(r)
	}
	ids, err := outbox.DecodeMessage(body)
	if err != nil {
		return nil, err
	}
	d.deaths++
	_, err = d.world.db.ClaimEvents(d.world.t.Context(), ids, postgres.ClaimOptions{
		Lease: outbox.WorkerLease, Late: outbox.LateWindow, CheckDelay: time.Minute, MaxAttempts: outbox.MaxAttempts,
	})
	return nil, errors.Join(errors.New("the process is gone"), err)
}

// A worker that dies on one event of a hundred: the other 99 are synced within two
// re-drives, and the one is dead after its cap.
func TestOneEventThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	for range 100 {
		h.decide(fmt.Sprintf("p%d@example.com", h.serial), "plain", "unsubscribed", h.clock.Now())
	}
	killer := &dying{inProcess: h.delivery, world: h, poison: h.text(`SELECT id::text FROM hubspot_outbox_events ORDER BY id OFFSET 50 LIMIT 1`)}
	h.mail.set(killer)
	h.pass(10*time.Minute, 5*time.Second, nil)
	if got := h.text(`SELECT count(*) || ' synced, re-driven at most twice: ' || (max(generation) <= 3)::text FROM hubspot_outbox_events WHERE status = 'synced'`); got != "99 synced, re-driven at most twice: true" {
		t.Error(got)
	}
	for i := 0; i < 24 && h.open() != "0"; i++ {
		h.pass(30*time.Minute, 30*time.Second, nil)
	}
	if got := h.text(`SELECT status || ' ' || coalesce(last_error_code, '-') || ' ' || process_attempts FROM hubspot_outbox_events WHERE id = $1`, killer.poison); got != "dead worker_lost 8" {
		t.Error(got)
	}
	t.Logf("%d workers died", killer.deaths)
}

// Without the notification an opt-out made inside HubSpot waits for its audit; with it,
// it is a decision here within five minutes, before every audit that is due already.
func TestAnOptOutInsideHubSpotArrivesWithItsNotification(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	h.traffic(240)
	h.pass(5*time.Minute, 5*time.Second, nil)
	h.exec(`UPDATE contact_subscription_state SET check_at = hubsync.now() - interval '1 hour'`) // every audit is due
	const email = "p4@example.com"
	record, ok := h.hubspot.Contact("main", email)
	if !ok || h.shown(email, 5) != "SUBSCRIBED" {
		t.Fatalf("p4 is not subscribed: %+v", record)
	}
	h.hubspot.SetStatus("main", email, 5, "UNSUBSCRIBED", h.clock.Now())
	id, err := strconv.ParseInt(record.ID, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	hook, err := webhook.Handler(webhook.Config{DB: h.db, URL: "https://api.example.com" + webhook.Path, Clock: h.clock.Now, Logger: slog.New(slog.DiscardHandler),
		Secrets: func(context.Context) ([]string, error) { return []string{"s"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`[{"portalId":1,"objectId":%d,"subscriptionType":"contact.propertyChange","propertyName":"hs_email_optout_5","propertyValue":"true"}]`, id)
	stamp := strconv.FormatInt(h.clock.Now().UnixMilli(), 10)
	mac := hmac.New(sha256.New, []byte("s"))
	_, _ = io.WriteString(mac, "POSThttps://api.example.com"+webhook.Path+body+stamp) // a hash takes everything
	r := httptest.NewRequest(http.MethodPost, webhook.Path, strings.NewReader(body))
	r.Header.Set("X-HubSpot-Signature-v3", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	r.Header.Set("X-HubSpot-Request-Timestamp", stamp)
	answer := httptest.NewRecorder()
	hook.ServeHTTP(answer, r)
	if answer.Code != http.StatusNoContent {
		t.Fatal(answer.Code)
	}
	h.pass(5*time.Minute, 10*time.Second, nil)
	if got := h.text(`SELECT desired_state || ' ' || latest_sequence || ' ' || applied_sequence FROM contact_subscription_state WHERE contact_key = $1 AND product_id = 'news'`, email); got != "unsubscribed 2 2" {
		t.Errorf("five minutes later: %s", got)
	}
}
