package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/routing"
	"hubsync/shared/worker"
)

const (
	subject = "https://worker.example.com"
	newsID  = int64(2239644020) // above 2^31
	routes  = `{"portals":[{"id":"main","hubId":1,"burst":{"limit":1000,"window":"10s"},"daily":500000,"timeZone":"Europe/Berlin"}],
"brands":[{"id":"acme","portal":"main","businessUnitId":7,"products":[
 {"id":"news","subscriptionTypeId":2239644020,"legalBasis":"CONSENT_WITH_NOTICE","targets":[
  {"kind":"CONTACT_PROPERTY","name":"news","subscribed":"true","unsubscribed":"false","required":true},
  {"kind":"BRAND_ASSIGNMENT","businessUnitId":7,"required":true},{"kind":"MANUAL_SEGMENT","listId":"604","required":false}]},
 {"id":"tips","subscriptionTypeId":8,"legalBasis":"NON_GDPR","targets":[
  {"kind":"CONTACT_PROPERTY","name":"tips","subscribed":"true","unsubscribed":"false","required":true},
  {"kind":"CONTACT_PROPERTY","name":"tips_since","subscribed":"$consentDate","unsubscribed":"","required":true},
  {"kind":"CONTACT_PROPERTY","name":"topics","subscribed":"tips","multi":true,"required":true},{"kind":"MANUAL_SEGMENT","listId":"605","required":true}]},
 {"id":"hints","subscriptionTypeId":9,"legalBasis":"NON_GDPR","targets":[
  {"kind":"CONTACT_PROPERTY","name":"topics","subscribed":"tips","multi":true,"required":true},{"kind":"MANUAL_SEGMENT","listId":"605","required":true}]},
 {"id":"plain","subscriptionTypeId":6,"legalBasis":"NON_GDPR"}]}]}`
)

// world is a worker between a database, a Redis and a HubSpot of its own.
type world struct {
	t       *testing.T
	pool    *pgxpool.Pool
	db      *postgres.DB
	hubspot *hubspottest.Server
	redis   *miniredis.Miniredis
	limiter *budget.Limiter
	handler http.Handler
	config  worker.Config
	serial  int
	logs    strings.Builder
}

func newWorld(t *testing.T, change ...func(*hubspottest.Portal, *worker.Config)) *world {
	t.Helper()
	w := &world{t: t, pool: postgrestest.New(t), redis: miniredis.RunT(t)}
	w.db = postgres.New(w.pool)
	file, err := routing.Parse([]byte(routes))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.ApplyRoutes(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	portal := hubspottest.Portal{
		ID: "main", Token: "t", BurstLimit: 1000, BusinessUnits: []int64{7, 8},
		Definitions: []hubspottest.Definition{{ID: newsID, BusinessUnitID: 7}, {ID: 6, BusinessUnitID: 7}, {ID: 8, BusinessUnitID: 7}, {ID: 9, BusinessUnitID: 7}},
		Properties: []hubspottest.Property{{Name: "news", Type: "enumeration", Options: []string{"true", "false"}}, {Name: hubspot.ContactKeyProperty, HasUniqueValue: true},
			{Name: "tips", Type: "bool"}, {Name: "tips_since", Type: "date"}, {Name: "topics", Type: "enumeration", Options: []string{"tips", "other"}}},
		Lists: []hubspottest.List{{ID: "604", ProcessingType: "MANUAL"}, {ID: "605", ProcessingType: "SNAPSHOT"}},
	}
	w.config = worker.Config{DB: w.db, Subject: subject, Env: "test", Clock: time.Now, Random: rand.Float64,
		Logger: slog.New(slog.NewTextHandler(&w.logs, nil)), CallTimeout: 2 * time.Second, BudgetWait: 50 * time.Millisecond}
	for _, c := range change {
		c(&portal, &w.config)
	}
	w.hubspot = hubspottest.New(hubspottest.Options{Portals: []hubspottest.Portal{portal}})
	w.connect()
	return w
}

// connect starts the simulator's socket and the worker.
func (w *world) connect() {
	api := httptest.NewServer(w.hubspot.Handler())
	client, err := budget.Open("redis://" + w.redis.Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { api.Close(); _ = client.Close() })
	w.limiter = budget.NewLimiter(budget.Config{Redis: client, TrustEmpty: true, Clock: time.Now, Random: rand.Float64})
	hs, err := hubspot.New(hubspot.Config{BaseURL: api.URL, Clock: time.Now, Token: func(context.Context) (string, error) { return "t", nil }})
	if err != nil {
		w.t.Fatal(err)
	}
	w.config.Budget, w.config.Client = w.limiter, func(string) (*hubspot.Client, error) { return hs, nil }
	w.config.Verifier = qstash.NewVerifier(func(context.Context) (qstash.Keys, error) {
		return qstash.Keys{Current: qstashtest.DefaultCurrentKey}, nil
	}, time.Now)
	if w.handler, err = worker.New(w.config); err != nil {
		w.t.Fatal(err)
	}
}

// reconnect makes a worker anew, as a process that starts.
func (w *world) reconnect() {
	w.t.Helper()
	var err error
	if w.handler, err = worker.New(w.config); err != nil {
		w.t.Fatal(err)
	}
}

// decision says what to accept; the zero value of the rest is filled in.
type decision struct {
	state, email, product string
	consent               time.Time
}

func (w *world) accept(d decision) uuid.UUID {
	w.t.Helper()
	w.serial++
	if d.email == "" {
		d.email = fmt.Sprintf("p%d@example.com", w.serial)
	}
	if d.product == "" {
		d.product = "news"
	}
	key := strings.ToLower(d.email)
	row := postgres.Decision{RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: "acme", ProductID: d.product,
		ContactKey: "key-" + strings.ReplaceAll(key, "@", "-"), Email: d.email, EmailKey: key, DesiredState: outbox.DesiredState(d.state),
		IdempotencyKey: fmt.Sprint(w.serial), RequestHash: "h", Source: "api", Lane: outbox.LaneLive, Consent: `{"explanation":"form v3"}`}
	if !d.consent.IsZero() {
		row.OccurredAt = &d.consent
	}
	if _, err := w.db.Accept(w.t.Context(), row); err != nil {
		w.t.Fatal(err)
	}
	return row.EventID
}

// deliver signs and delivers a message, as often as QStash would.
func (w *world) deliver(ids ...uuid.UUID) *httptest.ResponseRecorder { return w.retry(0, ids...) }

func (w *world) retry(retried int, ids ...uuid.UUID) *httptest.ResponseRecorder {
	w.t.Helper()
	body, err := outbox.EncodeMessage(ids)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.post("/", string(body), subject, "Upstash-Retried", fmt.Sprint(retried))
}

func (w *world) post(path, body, sub string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	token, err := qstashtest.Sign(qstashtest.DefaultCurrentKey, sub, []byte(body), "1", time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)).WithContext(w.t.Context())
	r.Header.Set("Upstash-Signature", token)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	return answer
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) text(sql string, args ...any) string {
	w.t.Helper()
	var s *string
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&s); err != nil {
		w.t.Fatal(err)
	}
	if s == nil {
		return "null"
	}
	return *s
}

// event is an event's row in short: status, counted attempts, code.
func (w *world) event(id uuid.UUID) string {
	w.t.Helper()
	return w.text(`SELECT status || ' ' || process_attempts || ' ' || coalesce(last_error_code, '-') FROM hubspot_outbox_events WHERE id = $1`, id.String())
}

func (w *world) status(email string, subscription int64) string {
	s, ok := w.hubspot.Status("main", email, subscription)
	if !ok {
		return "nothing"
	}
	return s.State
}

func (w *world) expect(what string, got, want any) {
	w.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// uncertain reports whether a subscription is uncertain.
func (w *world) uncertain(event uuid.UUID) bool {
	return w.text(`SELECT (s.uncertain_until > now())::text FROM contact_subscription_state s JOIN subscription_requests r USING (contact_key, brand_id, product_id)
		JOIN hubspot_outbox_events e ON e.request_id = r.id WHERE e.id = $1`, event.String()) == "true"
}

// due makes an event that waits due now.
func (w *world) due(id uuid.UUID) {
	w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE id = $1`, id.String())
}

// lose makes the claim of an event look like one whose worker died: its leases are over.
func (w *world) lose(id uuid.UUID) {
	w.exec(`UPDATE hubspot_outbox_events SET lease_expires_at = now() - interval '1 second', next_attempt_at = now() - interval '1 second' WHERE id = $1`, id.String())
	w.exec(`UPDATE contact_subscription_state SET lease_expires_at = now() - interval '1 second' WHERE lease_event_id = $1`, id.String())
}

// claim claims as a worker that will never be heard of again.
func (w *world) claim(ids ...uuid.UUID) []postgres.Claim {
	w.t.Helper()
	claims, err := w.db.ClaimEvents(w.t.Context(), ids, postgres.ClaimOptions{Lease: time.Minute, Late: 10 * time.Minute, CheckDelay: 30 * time.Second, MaxAttempts: outbox.MaxAttempts})
	if err != nil {
		w.t.Fatal(err)
	}
	return claims
}

var settle = postgres.SettleOptions{Late: 10 * time.Minute, CheckDelay: 30 * time.Second, Audit: time.Hour}

func failureBody(source string, messageID string) string {
	body, err := json.Marshal(map[string]any{"status": 500, "sourceMessageId": messageID, "sourceBody": []byte(source)})
	if err != nil {
		panic(err)
	}
	return string(body)
}
