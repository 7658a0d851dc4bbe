package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/webhook"
)

const (
	address = "https://api.example.com/webhooks/hubspot"
	secret  = "app-secret"
	body    = `[{"eventId":1,"portalId":12345,"objectId":701,"subscriptionType":"contact.propertyChange","propertyName":"hs_email_optout"}]`
)

var now = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func newHandler(t *testing.T, pool *pgxpool.Pool, secrets func(context.Context) ([]string, error)) http.Handler {
	t.Helper()
	h, err := webhook.Handler(webhook.Config{
		DB: postgres.New(pool), URL: address, Clock: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler), Secrets: secrets,
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func two(context.Context) ([]string, error) { return []string{"", secret, "older-secret"}, nil }

// world has a contact with two subscriptions in the account, and one in another.
func newWorld(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := postgrestest.New(t)
	for _, sql := range []string{
		`INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit) VALUES ('main', 12345, 150, 1000), ('other', 6, 150, 1000)`,
		`INSERT INTO contacts (contact_key, email, email_key) VALUES ('k', 'a@example.com', 'a@example.com')`,
		`INSERT INTO contact_portal_records (contact_key, portal_id, hubspot_id) VALUES ('k', 'main', '701')`,
		`INSERT INTO contact_subscription_state (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state, check_at)
		 SELECT 'k', b, 'news', p, 1, gen_random_uuid(), 'subscribed', hubsync.now() + interval '20 hours'
		 FROM (VALUES ('acme', 'main'), ('bolt', 'main'), ('fjord', 'other')) x (b, p)`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

func due(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM contact_subscription_state WHERE check_at < hubsync.now()`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func sign(key, method, uri, content, stamp string) string {
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = fmt.Fprint(mac, method, uri, content, stamp) // a hash takes everything
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func post(h http.Handler, path, content, signature, stamp string) int {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(content))
	r.Header.Set("X-HubSpot-Signature-v3", signature)
	r.Header.Set("X-HubSpot-Request-Timestamp", stamp)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer.Code
}

func TestASignedEventMakesItsContactsSubscriptionsDue(t *testing.T) {
	t.Parallel()
	pool := newWorld(t)
	h := newHandler(t, pool, two)
	stamp := strconv.FormatInt(now.UnixMilli(), 10)
	for range 2 { // twice is once
		if code := post(h, webhook.Path, body, sign(secret, "POST", address, body, stamp), stamp); code != http.StatusNoContent {
			t.Fatal(code)
		}
		if n := due(t, pool); n != 2 {
			t.Errorf("%d due", n)
		}
	}
}

func TestAMergeTouchesAllItsRecords(t *testing.T) {
	t.Parallel()
	pool := newWorld(t)
	merge := `[{"portalId":12345,"subscriptionType":"contact.merge","primaryObjectId":9,"mergedObjectIds":[8,701],"newObjectId":702}]`
	stamp := strconv.FormatInt(now.UnixMilli(), 10)
	if code := post(newHandler(t, pool, two), webhook.Path+"?a=%2Fb", merge, sign(secret, "POST", address+"?a=/b", merge, stamp), stamp); code != http.StatusNoContent || due(t, pool) != 2 {
		t.Errorf("%d, %d due", code, due(t, pool))
	}
}

func TestWhatIsNotSignedIsRefused(t *testing.T) {
	t.Parallel()
	pool := newWorld(t)
	h := newHandler(t, pool, two)
	stamp := strconv.FormatInt(now.UnixMilli(), 10)
	good := sign(secret, "POST", address, body, stamp)
	old, early := strconv.FormatInt(now.Add(-5*time.Minute-time.Second).UnixMilli(), 10), strconv.FormatInt(now.Add(5*time.Minute+time.Second).UnixMilli(), 10)
	for name, tc := range map[string]struct{ content, signature, stamp string }{
		"no signature":         {body, "", stamp},
		"another key":          {body, sign("guess", "POST", address, body, stamp), stamp},
		"the empty key":        {body, sign("", "POST", address, body, stamp), stamp},
		"another body":         {body + " ", good, stamp},
		"another method":       {body, sign(secret, "PUT", address, body, stamp), stamp},
		"another address":      {body, sign(secret, "POST", "http://api.example.com/webhooks/hubspot", body, stamp), stamp},
		"another time":         {body, good, strconv.FormatInt(now.UnixMilli()+1, 10)},
		"too old":              {body, sign(secret, "POST", address, body, old), old},
		"from the future":      {body, sign(secret, "POST", address, body, early), early},
		"no time":              {body, sign(secret, "POST", address, body, ""), ""},
		"a time that is none":  {body, sign(secret, "POST", address, body, "soon"), "soon"},
		"not base64":           {body, "!!!", stamp},
		"a shortened one":      {body, good[:20], stamp},
		"signed, not our form": {`{"portalId":1}`, sign(secret, "POST", address, `{"portalId":1}`, stamp), stamp},
	} {
		want := http.StatusUnauthorized
		if name == "signed, not our form" {
			want = http.StatusBadRequest
		}
		if code := post(h, webhook.Path, tc.content, tc.signature, tc.stamp); code != want {
			t.Errorf("%s: %d", name, code)
		}
	}
	away := newHandler(t, pool, func(context.Context) ([]string, error) { return nil, errors.New("away") })
	if code := post(away, webhook.Path, body, good, stamp); code != http.StatusServiceUnavailable {
		t.Errorf("secrets away: %d", code)
	}
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, webhook.Path, nil))
	if r.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", r.Code)
	}
	if n := due(t, pool); n != 0 {
		t.Errorf("%d due after nothing but refusals", n)
	}
}
