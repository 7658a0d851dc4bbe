package simtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/intake"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/reconcile"
	"hubsync/shared/relay"
	"hubsync/shared/routing"
	"hubsync/shared/worker"
)

const routesTemplate = `{"portals":[{"id":"main","hubId":1,"burst":{"limit":1000,"window":"10s"},"daily":500000}],
"brands":[{"id":"acme","portal":"main","businessUnitId":7,"products":[
 {"id":"news","subscriptionTypeId":5,"legalBasis":"NON_GDPR","targets":[{"kind":"CONTACT_PROPERTY","name":"news","subscribed":"%s","unsubscribed":"false","required":true}]},
 {"id":"plain","subscriptionTypeId":6,"legalBasis":"NON_GDPR"}]}]}`

// world is all of hubsync, with the timers in the test's hand: nothing is relayed or
// swept until the test says so.
type world struct {
	t       *testing.T
	pool    *pgxpool.Pool
	db      *postgres.DB
	hubspot *hubspottest.Server
	qstash  *qstashtest.Server
	intake  http.Handler
	relay   *relay.Relay
	sweep   *reconcile.Reconciler
	client  *qstash.Client
	// worker's address, as published to
	destination string
	// gate holds deliveries while it is closed.
	gate   chan struct{}
	serial int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pool: postgrestest.New(t)}
	w.db = postgres.New(w.pool)
	w.apply("true")
	w.hubspot = hubspottest.New(hubspottest.Options{Portals: []hubspottest.Portal{{
		ID: "main", Token: "t", BurstLimit: 1000, BusinessUnits: []int64{7}, Definitions: []hubspottest.Definition{{ID: 5, BusinessUnitID: 7}, {ID: 6, BusinessUnitID: 7}},
		Properties: []hubspottest.Property{{Name: "news", Type: "enumeration", Options: []string{"true", "false"}}, {Name: hubspot.ContactKeyProperty, HasUniqueValue: true}},
	}}})
	w.qstash = qstashtest.New(qstashtest.Options{})
	hubspotAPI, qstashAPI := httptest.NewServer(w.hubspot.Handler()), httptest.NewServer(w.qstash.Handler())
	w.gate = make(chan struct{})
	close(w.gate)
	late := &http.ServeMux{}
	workerAPI := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		<-w.gate
		late.ServeHTTP(rw, r)
	}))
	w.destination = workerAPI.URL
	late.Handle("/", w.newWorker(hubspotAPI.URL))
	t.Cleanup(func() { w.qstash.Close(); hubspotAPI.Close(); qstashAPI.Close(); workerAPI.Close() })
	w.timers(qstashAPI.URL)
	w.intake = intake.New(intake.Config{DB: w.db, UndatedWindow: -1})
	return w
}

// apply makes a mapping active whose property has this value for a subscriber.
func (w *world) apply(value string) {
	w.t.Helper()
	file, err := routing.Parse([]byte(fmt.Sprintf(routesTemplate, value)))
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.db.ApplyRoutes(w.t.Context(), file); err != nil {
		w.t.Fatal(err)
	}
}

func token(text string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, nil }
}

func (w *world) newWorker(hubspotURL string) http.Handler {
	w.t.Helper()
	client, err := budget.Open("redis://" + miniredis.RunT(w.t).Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	hs, err := hubspot.New(hubspot.Config{BaseURL: hubspotURL, Clock: time.Now, Token: token("t")})
	if err != nil {
		w.t.Fatal(err)
	}
	h, err := worker.New(worker.Config{
		DB: w.db, Subject: w.destination, Env: "test", Clock: time.Now, Random: rand.Float64, Logger: slog.New(slog.DiscardHandler),
		Budget: budget.NewLimiter(budget.Config{Redis: client, TrustEmpty: true, Clock: time.Now, Random: rand.Float64}),
		Client: func(string) (*hubspot.Client, error) { return hs, nil }, CallTimeout: 2 * time.Second,
		Verifier: qstash.NewVerifier(func(context.Context) (qstash.Keys, error) {
			return qstash.Keys{Current: qstashtest.DefaultCurrentKey}, nil
		}, time.Now),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) timers(qstashURL string) {
	var err error
	if w.client, err = qstash.New(qstash.Config{BaseURL: qstashURL, Token: token(qstashtest.DefaultToken), Timeout: 2 * time.Second}); err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if w.relay, err = relay.New(relay.Config{DB: w.db, Publisher: w.client, Destination: w.destination, Env: "test", Clock: time.Now,
		Random: rand.Float64, Logger: log, RetryDelay: "50"}); err != nil {
		w.t.Fatal(err)
	}
	if w.sweep, err = reconcile.New(reconcile.Config{DB: w.db, Clock: time.Now, Logger: log}); err != nil {
		w.t.Fatal(err)
	}
}

// decide sends a decision through intake and returns its event.
func (w *world) decide(email, product, state string, at time.Time) uuid.UUID {
	w.t.Helper()
	w.serial++
	body := fmt.Sprintf(`{"contactKey":%q,"email":%q,"productId":%q,"desiredState":%q,"occurredAt":%q}`, email, email, product, state, at.Format(time.RFC3339Nano))
	r := httptest.NewRequest(http.MethodPost, "/v1/brands/acme/subscriptions", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", fmt.Sprint("key-", w.serial))
	answer := httptest.NewRecorder()
	w.intake.ServeHTTP(answer, r)
	if answer.Code != http.StatusAccepted {
		content, _ := io.ReadAll(answer.Body)
		w.t.Fatalf("%d %s", answer.Code, content)
	}
	return uuid.MustParse(w.text(`SELECT e.id::text FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id WHERE r.idempotency_key = $1`, fmt.Sprint("key-", w.serial)))
}

func (w *world) pass() relay.Result {
	w.t.Helper()
	r, err := w.relay.Pass(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) run() reconcile.Result {
	w.t.Helper()
	r, err := w.sweep.Run(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// idle waits until QStash has nothing left.
func (w *world) idle() {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if w.qstash.Idle() {
			return
		}
	}
	w.t.Fatalf("QStash is not idle: %+v", w.qstash.Stats())
}

// settle relays and delivers, with every wait over, until nothing is left.
func (w *world) settle() {
	w.t.Helper()
	for range 40 {
		w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE status IN ('publish_retry', 'process_retry')`)
		w.pass()
		w.idle()
		if w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE completed_at IS NULL`) == "0" {
			return
		}
	}
	w.t.Fatalf("not settled: %s", w.text(`SELECT string_agg(status || ' ' || coalesce(last_error_code, ''), ', ') FROM hubspot_outbox_events WHERE completed_at IS NULL`))
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) text(sql string, args ...any) string {
	w.t.Helper()
	var s string
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) status(id uuid.UUID) string {
	return w.text(`SELECT status FROM hubspot_outbox_events WHERE id = $1`, id.String())
}

func (w *world) shown(email string, subscription int64) string {
	s, ok := w.hubspot.Status("main", email, subscription)
	if !ok {
		return "nothing"
	}
	return s.State
}

// writes counts the preferences that were written for an address.
func (w *world) writes(email string) (n int) {
	for _, c := range w.hubspot.Ledger() {
		for _, write := range c.Writes {
			if write.Email == email {
				n++
			}
		}
	}
	return n
}

func (w *world) expect(what string, got, want any) {
	w.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%s: %v, want %v", what, got, want)
	}
}
