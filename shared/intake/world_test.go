package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/routing"
)

// testRoutes: two brands in one portal; acme has two products.
const testRoutes = `
portals:
  - {id: main, hubId: 1, burst: {limit: 150, window: 10s}, daily: 500000}
brands:
  - id: acme
    portal: main
    products:
      - {id: newsletter, subscriptionTypeId: 2239644020, legalBasis: CONSENT_WITH_NOTICE}
      - {id: events, subscriptionTypeId: 2239644021, legalBasis: CONSENT_WITH_NOTICE}
  - id: other
    portal: main
    products:
      - {id: newsletter, subscriptionTypeId: 2239644022, legalBasis: CONSENT_WITH_NOTICE}
`

// world is intake over a database of its own.
type world struct {
	t       *testing.T
	pool    *pgxpool.Pool
	handler http.Handler
	log     *lockedBuffer
	keys    int
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	file, err := routing.Parse([]byte(testRoutes))
	if err != nil {
		t.Fatal(err)
	}
	return newWorldWith(t, file)
}

func newWorldWith(t *testing.T, file *routing.File) *world {
	t.Helper()
	w := &world{t: t, pool: postgrestest.New(t), log: &lockedBuffer{}}
	w.handler = newHandler(w.pool, w.log)
	addRoutes(t, w.pool, file)
	return w
}

// newHandler has no window for undated subscribes, so that the tests of order need no
// dates; the window has a test of its own.
func newHandler(pool *pgxpool.Pool, log *lockedBuffer) http.Handler {
	return New(Config{UndatedWindow: -1, DB: postgres.New(pool), Clock: time.Now, Logger: slog.New(slog.NewJSONHandler(log, nil)), BaseURL: "https://api.example.com/"})
}

// addRoutes activates every brand of a file as version 1.
func addRoutes(t *testing.T, pool *pgxpool.Pool, file *routing.File) {
	t.Helper()
	do := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range file.Portals {
		do(`INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit) VALUES ($1, $2, $3, $4)`, p.ID, p.HubID, p.Burst.Limit, p.Daily)
	}
	for _, b := range file.Brands {
		do(`INSERT INTO brands (id, name) VALUES ($1, $2)`, b.ID, b.Name)
		do(`INSERT INTO brand_target_mappings (brand_id, version, status, portal_id, content_hash) VALUES ($1, 1, 'active', $2, 'x')`, b.ID, b.Portal)
		for _, p := range b.Products {
			snapshot, err := json.Marshal(b.Snapshot(p, 1))
			if err != nil {
				t.Fatal(err)
			}
			do(`INSERT INTO subscription_products (id) VALUES ($1) ON CONFLICT DO NOTHING`, p.ID)
			do(`INSERT INTO brand_subscription_routes (brand_id, version, product_id, portal_id, subscription_type_id, legal_basis, snapshot, active)
				VALUES ($1, 1, $2, $3, $4, $5, $6, true)`, b.ID, p.ID, b.Portal, p.SubscriptionTypeID, p.LegalBasis, string(snapshot))
		}
	}
}

// call sends one request straight to the handler; headers are name, value, ….
func (w *world) call(method, target, content string, headers ...string) *httptest.ResponseRecorder {
	return serve(w.handler, method, target, content, headers...)
}

func serve(handler http.Handler, method, target, content string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(content))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

const acmePath = "/v1/brands/acme/subscriptions"

// post sends a body to acme under a key.
func (w *world) post(key, content string) *httptest.ResponseRecorder {
	return w.call("POST", acmePath, content, "Content-Type", "application/json", keyHeader, key)
}

// decide posts a decision that must be accepted, under a new key, and returns its request id.
func (w *world) decide(contactKey, email, productID, state, occurredAt string) string {
	w.t.Helper()
	w.keys++
	response := w.post(fmt.Sprintf("decide-%d", w.keys), bodyOf(contactKey, email, productID, state, occurredAt))
	if response.Code != http.StatusAccepted {
		w.t.Fatalf("decision %d: %d %s", w.keys, response.Code, response.Body)
	}
	return w.receipt(response).RequestID
}

func bodyOf(contactKey, email, productID, state, occurredAt string) string {
	members := map[string]string{"contactKey": contactKey, "email": email, "productId": productID, "desiredState": state}
	if occurredAt != "" {
		members["occurredAt"] = occurredAt
	}
	content, err := json.Marshal(members)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(content)
}

type receiptView struct {
	RequestID string
	Status    string
	StatusURL string
	Replayed  bool
}

func (w *world) receipt(response *httptest.ResponseRecorder) receiptView {
	w.t.Helper()
	return decodeAnswer[receiptView](w.t, response)
}

type requestView struct {
	RequestID, BrandID, ProductID, DesiredState, Status, Reason string
	AcceptedAt                                                  time.Time
	OccurredAt                                                  *time.Time
	Sequence                                                    int64
	Events                                                      []struct {
		Status                     string
		Attempts                   int
		NextAttemptAt, CompletedAt *time.Time
	}
}

// request reads a request of acme over HTTP.
func (w *world) request(id string) requestView {
	w.t.Helper()
	response := w.call("GET", "/v1/brands/acme/subscription-requests/"+id, "")
	if response.Code != http.StatusOK {
		w.t.Fatalf("request %s: %d %s", id, response.Code, response.Body)
	}
	return decodeAnswer[requestView](w.t, response)
}

func decodeAnswer[T any](t *testing.T, response *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(response.Body.Bytes(), &v); err != nil {
		t.Fatalf("%d %s: %v", response.Code, response.Body, err)
	}
	return v
}

// one reads one value.
func one[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}
