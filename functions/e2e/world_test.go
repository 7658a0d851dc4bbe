package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/budget"
	"hubsync/shared/budget/redistest"
	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/lambdatest"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/pgbouncertest"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/routing"
)

const routes = `{"portals":[{"id":"main","hubId":1,"burst":{"limit":1000,"window":"10s"},"daily":500000}],
"brands":[{"id":"acme","portal":"main","businessUnitId":7,"products":[
 {"id":"news","subscriptionTypeId":5,"legalBasis":"NON_GDPR","targets":[{"kind":"CONTACT_PROPERTY","name":"news","subscribed":"true","unsubscribed":"false","required":true}]}]}]}`

const (
	envName    = "e2e"
	cronSecret = "e2e-cron-secret"
	// idleBound is IDLE_BOUND_SECONDS: a minute where it is deployed, a second where a
	// test waits for it.
	idleBound = time.Second
)

// bootstraps are built once.
var bootstraps string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "hubsync-e2e-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := lambdatest.Build(context.Background(), dir, "intake", "relay", "worker", "reconcile", "admin"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		bootstraps = dir
		return m.Run()
	}())
}

// world is hubsync as it is deployed, on this machine.
type world struct {
	t                  *testing.T
	pool               *pgxpool.Pool // the test's own road to the database, past the pooler
	hubspot            *hubspottest.Server
	qstash             *qstashtest.Server
	holes              map[string]*hole // the functions' roads, by what they lead to
	vars               map[string]string
	api, worker        *lambdatest.Front
	apiURL, workerURL  string
	functions          map[string]*lambdatest.Function
	log                *safeBuffer
	serial             int
	database, redisURL string

	workerTimeout     time.Duration
	intakeTimeout     time.Duration
	workerConcurrency int
}

// safeBuffer takes what the functions write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// change adapts a world before its functions are deployed.
type change func(*world)

func newWorld(t *testing.T, changes ...change) *world {
	t.Helper()
	w := &world{t: t, holes: map[string]*hole{}, functions: map[string]*lambdatest.Function{}, log: &safeBuffer{}}
	w.startDatabase()
	w.startRedis()
	w.hubspot = hubspottest.New(hubspottest.Options{Portals: []hubspottest.Portal{{
		ID: "main", Token: "t", BurstLimit: 1000, BusinessUnits: []int64{7}, Definitions: []hubspottest.Definition{{ID: 5, BusinessUnitID: 7}},
		Properties: []hubspottest.Property{{Name: "news", Type: "enumeration", Options: []string{"true", "false"}}, {Name: hubspot.ContactKeyProperty, HasUniqueValue: true}},
	}}})
	w.qstash = qstashtest.New(qstashtest.Options{})
	hubspotAPI, qstashAPI := httptest.NewServer(w.hubspot.Handler()), httptest.NewServer(w.qstash.Handler())
	t.Cleanup(func() { w.qstash.Close(); qstashAPI.Close(); hubspotAPI.Close() })
	w.api, w.worker = &lambdatest.Front{}, &lambdatest.Front{URL: true}
	api, worker := httptest.NewServer(w.api), httptest.NewServer(w.worker)
	t.Cleanup(func() { api.Close(); worker.Close() })
	w.apiURL, w.workerURL = api.URL, worker.URL
	w.vars = map[string]string{
		"HUBSYNC_ENV": envName, "DATABASE_URL": w.database, "REDIS_URL": w.redisURL, "CRON_SECRET": cronSecret, "IDLE_BOUND_SECONDS": "1",
		"QSTASH_URL": "http://" + w.hole("qstash", qstashAPI.URL), "QSTASH_TOKEN": qstashtest.DefaultToken,
		"QSTASH_CURRENT_SIGNING_KEY": qstashtest.DefaultCurrentKey, "QSTASH_NEXT_SIGNING_KEY": qstashtest.DefaultNextKey,
		"HUBSPOT_BASE_URL": "http://" + w.hole("hubspot", hubspotAPI.URL), "HUBSPOT_WORKER_URL": w.workerURL, "HUBSPOT_TOKEN_MAIN": "t",
		"UNDATED_WINDOW_SECONDS": "0",
	}
	for _, c := range changes {
		c(w)
	}
	w.deploy()
	return w
}

// startDatabase: functions → hole → PgBouncer → PostgreSQL.
func (w *world) startDatabase() {
	dsn := postgrestest.DSN(w.t)
	w.pool = postgrestest.Open(w.t, dsn)
	file, err := routing.Parse([]byte(routes))
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := postgres.New(w.pool).ApplyRoutes(w.t.Context(), file); err != nil {
		w.t.Fatal(err)
	}
	pooler, err := pgbouncertest.Start(w.t.Context(), dsn, pgbouncertest.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := pooler.Stop(); err != nil {
			w.t.Error(err)
		}
	})
	u, err := url.Parse(pooler.URL(w.pool.Config().ConnConfig.Database))
	if err != nil {
		w.t.Fatal(err)
	}
	u.Host = w.hole("postgres", "//"+pooler.Addr)
	w.database = u.String()
}

// startRedis starts an empty Redis and has a window pass in it: a limiter that finds
// nothing takes the last window for spent, and a test would wait for its end.
func (w *world) startRedis() {
	addr := redistest.Start(w.t)
	client, err := budget.Open("redis://" + addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { client.Close() })
	limiter := budget.NewLimiter(budget.Config{Redis: client, Prefix: "hubsync:" + envName + ":", TrustEmpty: true, Clock: time.Now, Random: rand.Float64})
	grant, err := limiter.Reserve(w.t.Context(), budget.Request{Portal: "main", Lane: 0, N: 1, ID: "first",
		Limits: budget.Limits{Burst: 1000, Window: 10 * time.Second, Daily: 500_000, Location: time.UTC}})
	if err != nil || !grant.Granted {
		w.t.Fatalf("%+v, %v", grant, err)
	}
	w.redisURL = "redis://" + w.hole("redis", "//"+addr)
}

func (w *world) hole(name, target string) (addr string) {
	u, err := url.Parse(target)
	if err != nil {
		w.t.Fatal(err)
	}
	w.holes[name] = dig(w.t, u.Host)
	return w.holes[name].addr
}

// lose makes every connection of the functions carry nothing any more.
func (w *world) lose() map[string]int {
	lost := map[string]int{}
	for name, h := range w.holes {
		lost[name] = h.lose()
	}
	return lost
}

// timeouts are what the template gives them, but for relay and reconcile: they work
// until shortly before their deadline, and a test does not wait for a minute.
var timeouts = map[string]time.Duration{
	"intake": 15 * time.Second, "worker": 70 * time.Second, "relay": 3700 * time.Millisecond, "reconcile": 10 * time.Second, "admin": 30 * time.Second,
}

func (w *world) deploy() {
	for name := range timeouts {
		w.deployOne(name)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			said := w.log.String()
			w.t.Logf("the functions' last words:\n%s", said[max(0, len(said)-4000):])
		}
	})
}

// deployOne deploys a function, or another version of it.
func (w *world) deployOne(name string) {
	cfg := lambdatest.Config{
		Name: name, Bootstrap: lambdatest.Bootstrap(bootstraps, name), Env: w.environment(), Timeout: timeouts[name], Concurrency: 12, Log: w.log,
	}
	switch name {
	case "worker":
		cfg.Timeout, cfg.Concurrency = cmp.Or(w.workerTimeout, cfg.Timeout), cmp.Or(w.workerConcurrency, cfg.Concurrency)
	case "intake":
		cfg.Timeout = cmp.Or(w.intakeTimeout, cfg.Timeout)
	}
	f, err := lambdatest.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(f.Close)
	w.functions[name] = f
	w.fronts()
}

// fronts points the API and the worker's URL to what is deployed.
func (w *world) fronts() {
	w.api.Deploy(w.functions["intake"])
	w.worker.Deploy(w.functions["worker"])
}

func (w *world) environment() []string {
	var env []string
	for name, value := range w.vars {
		env = append(env, name+"="+value)
	}
	return env
}

// post sends a decision, and again with the same key while it is throttled, as a caller
// would.
func (w *world) post(key, email, state string) (int, string) {
	w.t.Helper()
	code, answer := w.postOnce(key, email, state)
	for range 100 {
		if code != http.StatusServiceUnavailable {
			break
		}
		time.Sleep(20 * time.Millisecond)
		code, answer = w.postOnce(key, email, state)
	}
	return code, answer
}

func (w *world) postOnce(key, email, state string) (int, string) {
	w.t.Helper()
	body := fmt.Sprintf(`{"contactKey":%q,"email":%q,"productId":"news","desiredState":%q,"consent":{"explanation":"form"}}`, email, email, state)
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.apiURL+"/v1/brands/acme/subscriptions", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return w.do(r)
}

func (w *world) do(r *http.Request) (int, string) {
	w.t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Error(err)
	}
	return response.StatusCode, string(content)
}

// tick runs a timed function once.
func (w *world) tick(name string) lambdatest.Result {
	w.t.Helper()
	r, err := w.functions[name].Invoke(w.t.Context(), lambdatest.ScheduleEvent)
	if err != nil {
		w.t.Errorf("%s: %v", name, err)
	}
	return r
}

// settle relays and delivers until nothing is left.
func (w *world) settle() {
	w.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); {
		w.tick("relay")
		for !w.qstash.Idle() && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		if w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE completed_at IS NULL`) == "0" {
			return
		}
	}
	w.t.Fatalf("not settled: %s", w.text(`SELECT string_agg(status || ' ' || coalesce(last_error_code, ''), ', ') FROM hubspot_outbox_events WHERE completed_at IS NULL`))
}

func (w *world) text(sql string, args ...any) (s string) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// status is HubSpot's, of an address.
func (w *world) status(email string) string {
	view, _ := w.hubspot.Status("main", email, 5)
	return view.State
}

// strict asserts the figures of the issue as they stand; else they are printed, and
// asserted with slack, because the machine may be shared.
func strict() bool { return os.Getenv("HUBSYNC_STRICT") == "1" }

func slack(d time.Duration) time.Duration {
	if strict() {
		return d
	}
	return 4 * d
}
