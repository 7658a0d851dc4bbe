package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/ops"
	"hubsync/shared/postgres/postgrestest"
)

// world is a console over a database of the test's own.
type world struct {
	*Console
	t    *testing.T
	pool *pgxpool.Pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := postgrestest.DSN(t)
	env := map[string]string{"DATABASE_URL": dsn, "HUBSYNC_ENV": "test"}
	o := ops.Open(t.Context(), ops.Environment{Getenv: func(name string) string { return env[name] }, Logger: slog.New(slog.DiscardHandler)})
	c, err := New(Config{Serve: o.Serve, By: "tester", What: "a test", Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Console: c, t: t, pool: postgrestest.Open(t, dsn)}
	w.exec(`INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit) VALUES ('main', 1, 150, 500000)`)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// dead adds an event that died, of a contact whose key is an address.
func (w *world) dead() string {
	w.t.Helper()
	request, event := uuid.NewString(), uuid.NewString()
	w.exec(`INSERT INTO contacts (contact_key, email, email_key) VALUES ('canary@example.com', 'canary@example.com', 'canary@example.com')`)
	w.exec(`INSERT INTO contact_aliases (alias_key, contact_key) VALUES ('canary@example.com', 'canary@example.com'), ('customer-1', 'canary@example.com')`)
	w.exec(`INSERT INTO subscription_requests (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash, sequence, consent_at)
		VALUES ($1, 'acme', 'canary@example.com', 'news', 'subscribed', 1, 'order-7', 'h', 1, now())`, request)
	w.exec(`INSERT INTO hubspot_outbox_events (id, request_id, event_type, payload, status, portal_id, brand_id, lane, sequence, mapping_version, completed_at, last_error_code)
		VALUES ($1, $2, 'subscription.desired-state.v1', '{}', 'dead', 'main', 'acme', 1, 1, 1, now(), 'hubspot_404')`, event, request)
	w.exec(`INSERT INTO contact_subscription_state (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state)
		VALUES ('canary@example.com', 'acme', 'news', 'main', 1, $1, 'subscribed')`, event)
	return event
}

// do sends a request as a browser on this machine would.
func (w *world) do(method, path, host string, form url.Values, header ...string) (int, string) {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(form.Encode()))
	r.Host = host
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if answer.Code == http.StatusSeeOther {
		return answer.Code, answer.Header().Get("Location")
	}
	if csp := answer.Header().Get("Content-Security-Policy"); csp != policy {
		w.t.Errorf("%s: policy %q", path, csp)
	}
	return answer.Code, string(body)
}

func (w *world) get(path string) (int, string) { return w.do("GET", path, "127.0.0.1:8789", nil) }

func (w *world) post(path string, form url.Values) (int, string) {
	form.Set("token", w.token)
	return w.do("POST", path, "localhost:8789", form)
}

var mark = regexp.MustCompile(`</?[a-z][^>]*>`)

func TestPagesShowWhatThereIsAndNoAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	event := w.dead()
	for path, want := range map[string]string{
		"/": "something waits for a person", "/live": "hubspot_404", "/events": "Contact key, request id or idempotency key", "/events?status=dead": event,
		"/events?q=customer-1": event, "/events?q=order-7": event, "/events?q=nobody": "Nothing was found", "/events?q=canary%40example.com": event,
		"/events/" + event: "mend the mapping", "/audit": "What operators changed",
	} {
		code, body := w.get(path)
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, does it say %q?\n%s", path, code, want, body)
		}
		if text := mark.ReplaceAllString(body, ""); strings.Contains(text, "canary@") || strings.Contains(body, "canary@example") {
			t.Errorf("%s shows an address", path)
		}
		if opened, closed := strings.Count(body, "<section"), strings.Count(body, "</section"); opened != closed {
			t.Errorf("%s: %d sections opened, %d closed", path, opened, closed)
		}
	}
	if code, location := w.get("/events?q=" + event); code != http.StatusSeeOther || location != "/events/"+event {
		t.Errorf("%d %s", code, location)
	}
	for path, want := range map[string]int{"/events/" + uuid.NewString(): 502, "/nowhere": 404, "/assets/style.css": 200, "/assets/live.js": 200, "/assets/health.html": 404, "/assets/..%2fconsole.go": 404} {
		if code, _ := w.get(path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

// What another site's page could send to this machine.
func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deed := func(token string) url.Values {
		return url.Values{"verb": {"pause"}, "portal": {"main"}, "reason": {"r"}, "token": {token}}
	}
	for name, tc := range map[string]struct {
		method, path, host string
		form               url.Values
		header             []string
		want               int
	}{
		"a name that was pointed here": {"GET", "/", "evil.example.com:8789", nil, nil, http.StatusMisdirectedRequest},
		"a suffix of ours":             {"GET", "/", "localhost.example.com", nil, nil, http.StatusMisdirectedRequest},
		"no host":                      {"GET", "/", "", nil, nil, http.StatusMisdirectedRequest},
		"the machine's other address":  {"GET", "/", "192.0.2.7:8789", nil, nil, http.StatusMisdirectedRequest},
		"no token":                     {"POST", "/do", "127.0.0.1:8789", deed(""), nil, http.StatusForbidden},
		"another token":                {"POST", "/do", "127.0.0.1:8789", deed("x"), nil, http.StatusForbidden},
		"the token from another site":  {"POST", "/do", "127.0.0.1:8789", deed(w.token), []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"a deed by GET":                {"GET", "/do?verb=pause&portal=main&reason=r&token=" + w.token, "127.0.0.1:8789", nil, nil, http.StatusMethodNotAllowed},
		"the token in the address":     {"POST", "/do?token=" + w.token, "127.0.0.1:8789", deed(""), nil, http.StatusForbidden},
	} {
		if code, body := w.do(tc.method, tc.path, tc.host, tc.form, tc.header...); code != tc.want {
			t.Errorf("%s: %d, want %d: %s", name, code, tc.want, body)
		}
	}
	if n := w.actions(); n != 0 {
		t.Errorf("%d deeds were done", n)
	}
	for _, host := range []string{"localhost", "[::1]:8789", "127.0.0.1"} {
		if code, _ := w.do("GET", "/", host, nil); code != http.StatusOK {
			t.Errorf("%s: %d", host, code)
		}
	}
}

func (w *world) actions() (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), `SELECT count(*) FROM operator_actions`).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// A deed is asked for, confirmed, and done once.
func TestDeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dead()
	pause := url.Values{"verb": {"pause"}, "portal": {"main"}, "reason": {`<b>"maintenance"</b>`}, "minutes": {"30"}, "optOuts": {"yes"}}
	code, body := w.post("/ask", pause)
	if code != http.StatusOK || !strings.Contains(body, "Pause portal main, opt-outs too?") || strings.Contains(body, "<b>") {
		t.Fatalf("%d %s", code, body)
	}
	if w.actions() != 0 {
		t.Error("a question did something")
	}
	if code, body = w.post("/do", pause); code != http.StatusOK || !strings.Contains(body, "portal main is paused") {
		t.Fatalf("%d %s", code, body)
	}
	if _, body = w.get("/"); !strings.Contains(body, "Resume portal main") || !strings.Contains(body, "opt-outs too: operator: &lt;b&gt;") {
		t.Errorf("health after it: %s", body)
	}
	if code, body = w.post("/do", url.Values{"verb": {"resume"}, "portal": {"main"}}); code != http.StatusOK || !strings.Contains(body, "goes on") {
		t.Errorf("%d %s", code, body)
	}
	if code, body = w.post("/ask", url.Values{"verb": {"replay"}, "code": {"hubspot_404"}}); code != http.StatusOK || !strings.Contains(body, "Replay 0 events") {
		t.Errorf("%d %s", code, body)
	}
	for _, bad := range []url.Values{
		{"verb": {"drop"}}, {"verb": {"pause"}, "portal": {"mian"}, "reason": {"r"}}, {"verb": {"pause"}, "portal": {"main"}},
		{"verb": {"pause"}, "portal": {"main"}, "reason": {"r"}, "minutes": {"soon"}}, {"verb": {"pause"}, "portal": {"main"}, "reason": {"r"}, "minutes": {"-5"}},
	} {
		if code, body = w.post("/do", bad); code != http.StatusBadGateway || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%v: %d %s", bad, code, body)
		}
	}
}

func TestChartsAreDrawnFromTheLastLooks(t *testing.T) {
	t.Parallel()
	n := 0
	c, err := New(Config{Clock: time.Now, Serve: func(context.Context, ops.Request) ops.Response {
		if n++; n > mostSamples+20 {
			return ops.Response{Error: "the database is away"}
		}
		return ops.Response{Result: []byte(fmt.Sprintf(`{"ok":true,"portals":[{"id":"main","burstLimit":150,"windowUsed":%d,"lanes":[{"lane":"live","waiting":%d,"oldestSeconds":%d}]}]}`, n%150, n, n))}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range mostSamples + 21 {
		c.Sample(t.Context())
	}
	samples, problem := c.history.last()
	if len(samples) != mostSamples || problem == nil {
		t.Fatalf("%d samples, %v", len(samples), problem)
	}
	charts := chartsOf(samples, "main")
	if got := charts[0].Now; got != "optout 0s, live 200s, bulk 0s" {
		t.Error(got)
	}
	if got := charts[3].Now; got != "50 of 150" || !strings.Contains(string(charts[3].SVG()), `class="limit"`) || strings.Contains(string(charts[3].SVG()), "NaN") {
		t.Errorf("%s %s", got, charts[3].SVG())
	}
	answer := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/live", nil)
	r.Host = "localhost"
	c.ServeHTTP(answer, r)
	if answer.Code != http.StatusBadGateway || !strings.Contains(answer.Body.String(), "the database is away") || !strings.Contains(answer.Body.String(), "Portal main") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
