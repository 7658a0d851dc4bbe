package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/intake"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/reconcile"
	"hubsync/shared/relay"
	"hubsync/shared/routing"
	"hubsync/shared/worker"
)

// routes are those of every world: a required property, a bare preference, a shared list
// and a brand; the second portal's plan has no batches.
const routes = `{"portals":[{"id":"main","hubId":1,"burst":{"limit":%[2]d,"window":"10s"},"daily":50000},
 {"id":"other","hubId":2,"burst":{"limit":40,"window":"10s"},"daily":50000,"plan":"professional"}],
"brands":[{"id":"acme","portal":"main","businessUnitId":7,"products":[
  {"id":"news","subscriptionTypeId":5,"legalBasis":"NON_GDPR","targets":[{"kind":"CONTACT_PROPERTY","name":"news","subscribed":"%[1]s","unsubscribed":"false","required":true}]},
  {"id":"plain","subscriptionTypeId":6,"legalBasis":"NON_GDPR"}]},
 {"id":"bolt","portal":"main","businessUnitId":9,"products":[{"id":"tips","subscriptionTypeId":8,"legalBasis":"NON_GDPR",
   "targets":[{"kind":"BRAND_ASSIGNMENT","businessUnitId":9,"required":true},{"kind":"MANUAL_SEGMENT","listId":"41","required":false}]}]},
 {"id":"coda","portal":"other","businessUnitId":17,"products":[{"id":"digest","subscriptionTypeId":15,"legalBasis":"NON_GDPR"}]}]}`

const (
	environment = "sim"
	workerURL   = "https://worker.example.com/"
	burstLimit  = 60
)

var tokens = map[string]string{"main": "token-main", "other": "token-other"}

// world is one run of a plan.
type world struct {
	*scheduler
	plan    plan
	d       *database
	db      *postgres.DB
	hubspot *hubspottest.Server
	qstash  *qstashtest.Server
	redis   *redisServer
	ledger  ledger
	log     bytes.Buffer // of the stages
	jitter  *rand.Rand   // what the product draws
	ids     *rand.Rand
	faults  []*fault
	fired   map[string]int
	// poisoned and away are troubles that last: of an address, of a portal.
	poisoned, away *fault
	calm           bool // faults and traffic are over

	relay, sweep, check timetable
	redisAway           time.Time
	relayGap            time.Duration

	intake  http.Handler
	workers []http.Handler // processes that wait
	logger  *slog.Logger
	relayer *relay.Relay
	sweeper *reconcile.Reconciler
	checker *reconcile.Checker
	keys    qstash.Keys // that the worker has
}

func newWorld(d *database, r *redisServer, p plan, keep bool) *world {
	w := &world{
		scheduler: newScheduler(p.seed, start, keep), plan: p, d: d, redis: r, fired: map[string]int{},
		jitter: rand.New(rand.NewPCG(p.seed, 2)), ids: rand.New(rand.NewPCG(p.seed, 3)), ledger: newLedger(),
		keys: qstash.Keys{Current: qstashtest.DefaultCurrentKey, Next: qstashtest.DefaultNextKey},
	}
	d.hooks = nil
	d.clear()
	r.serve(w.scheduler, func() bool { return w.now.Before(w.redisAway) })
	d.hooks = &hooks{s: w.scheduler, executed: w.executed}
	w.meet = w.atPoint
	w.db = postgres.New(d.stage)
	w.applyRoutes("true")
	w.startEmulators()
	w.startStages()
	return w
}

func (w *world) applyRoutes(value string) {
	file, err := routing.Parse([]byte(fmt.Sprintf(routes, value, burstLimit)))
	if err != nil {
		w.d.t.Fatal(err)
	}
	if _, err := w.db.ApplyRoutes(w.d.t.Context(), file); err != nil {
		w.d.t.Fatal(err)
	}
}

func (w *world) startEmulators() {
	property := func(name string, options ...string) hubspottest.Property {
		return hubspottest.Property{Name: name, Type: "enumeration", Options: options}
	}
	key := hubspottest.Property{Name: hubspot.ContactKeyProperty, Type: "string", HasUniqueValue: true}
	w.hubspot = hubspottest.New(hubspottest.Options{Now: w.clockOf("hubspot"), Seed: w.plan.seed, Portals: []hubspottest.Portal{
		{ID: "main", HubID: 1, Token: tokens["main"], BurstLimit: burstLimit, BusinessUnits: []int64{7, 9}, Properties: []hubspottest.Property{property("news", "true", "yes", "false"), key},
			Definitions: []hubspottest.Definition{{ID: 5, BusinessUnitID: 7}, {ID: 6, BusinessUnitID: 7}, {ID: 8, BusinessUnitID: 9}},
			Lists:       []hubspottest.List{{ID: "41", ProcessingType: "MANUAL"}}, NoChangeTakesText: w.plan.seed%2 == 0},
		{ID: "other", HubID: 2, Token: tokens["other"], BurstLimit: 40, Plan: hubspottest.Professional, BusinessUnits: []int64{17},
			Definitions: []hubspottest.Definition{{ID: 15, BusinessUnitID: 17}}, Properties: []hubspottest.Property{key}},
	}})
	w.qstash = qstashtest.New(qstashtest.Options{
		Clock: w.scheduler, Seed: w.plan.seed, Client: &http.Client{Transport: deliveries{w}},
		Go: func(f func()) { w.spawn("delivery", f) },
	})
}

// clockOf is the clock of a stage.
func (w *world) clockOf(stage string) func() time.Time {
	skew := w.plan.skews[stage]
	return func() time.Time { return w.now.Add(skew) }
}

// newID makes UUIDv7s of virtual time and the seed.
func (w *world) newID() uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(w.now.UnixMilli())<<16|uint64(w.ids.Uint32()&0xfff))
	binary.BigEndian.PutUint64(id[8:], w.ids.Uint64())
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

func (w *world) startStages() {
	w.logger = slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.intake = intake.New(intake.Config{DB: w.db, Clock: w.clockOf("intake"), NewID: w.newID, Logger: w.logger})
	publisher, err := qstash.New(qstash.Config{
		BaseURL: "https://qstash.example.net", Token: text(qstashtest.DefaultToken), HTTPClient: &http.Client{Transport: publishing{w}},
	})
	w.must(err)
	w.relayer, err = relay.New(relay.Config{
		DB: w.db, Publisher: publisher, Destination: workerURL, Env: environment, Clock: w.clockOf("relay"), Random: w.jitter.Float64,
		NewID: w.newID, Logger: w.logger,
	})
	w.must(err)
	common := reconcile.Config{DB: w.db, Clock: w.clockOf("check"), NewID: w.newID, Logger: w.logger}
	w.sweeper, err = reconcile.New(common)
	w.must(err)
	limiter := w.newLimiter("check")
	w.checker, err = reconcile.NewChecker(common, reconcile.CheckConfig{Budget: limiter, Client: w.hubspotClients("check", limiter), Env: environment})
	w.must(err)
}

// newLimiter makes a process's budget; what it remembers dies with the process.
func (w *world) newLimiter(stage string) *budget.Limiter {
	return budget.NewLimiter(budget.Config{
		Redis: w.redis.client, Prefix: "hubsync:sim:", Clock: w.clockOf(stage), Random: w.jitter.Float64,
		Sleep: func(_ context.Context, d time.Duration) error { w.sleep(d); return nil },
	})
}

// workerProcess is one instance of the worker's function: it takes one delivery at a time.
func (w *world) workerProcess() http.Handler {
	if n := len(w.workers); n > 0 {
		h := w.workers[n-1]
		w.workers = w.workers[:n-1]
		return h
	}
	limiter := w.newLimiter("worker")
	h, err := worker.New(worker.Config{
		DB: w.db, Subject: workerURL, Env: environment, Budget: limiter, Client: w.hubspotClients("worker", limiter), Clock: w.clockOf("worker"),
		Random: w.jitter.Float64, NewID: w.newID, Logger: w.logger, Singles: 1,
		Verifier: qstash.NewVerifier(func(context.Context) (qstash.Keys, error) { return w.keys, nil }, w.clockOf("worker")),
	})
	w.must(err)
	return h
}

func text(t string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return t, nil }
}

func (w *world) hubspotClients(stage string, limiter *budget.Limiter) func(string) (*hubspot.Client, error) {
	clients := map[string]*hubspot.Client{}
	for portal, token := range tokens {
		c, err := hubspot.New(hubspot.Config{
			Portal: portal, BaseURL: "https://hubspot.example.net", Token: text(token), Clock: w.clockOf(stage),
			HTTPClient: &http.Client{Transport: hubspotCalls{w, portal}}, OnResponse: worker.Feedback(limiter, portal, w.logger),
		})
		w.must(err)
		clients[portal] = c
	}
	return func(portal string) (*hubspot.Client, error) { return clients[portal], nil }
}

func (w *world) must(err error) {
	if err != nil {
		w.d.t.Fatal(err)
	}
}

// close ends everything of this world.
func (w *world) close() {
	w.halt()
	w.d.hooks = nil
}

// problems of a run are written down, not raised: a shrinker wants to go on.
func (w *world) violate(invariant, format string, args ...any) {
	w.ledger.violations = append(w.ledger.violations, invariant+": "+fmt.Sprintf(format, args...))
}
