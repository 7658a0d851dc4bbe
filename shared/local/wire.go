package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"hubsync/shared/budget"
	"hubsync/shared/config"
	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/intake"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/reconcile"
	"hubsync/shared/relay"
	"hubsync/shared/routing"
	"hubsync/shared/worker"
)

// Reader reads a file's content.
func Reader(b []byte) io.Reader { return bytes.NewReader(b) }

// Portals derives the simulator's accounts from a routes file: what the routes name
// exists in HubSpot.
func Portals(f *routing.File, scale float64) []hubspottest.Portal {
	portals := make([]hubspottest.Portal, len(f.Portals))
	for i, p := range f.Portals {
		zone, err := time.LoadLocation(p.TimeZone)
		if err != nil {
			zone = time.UTC // the file was checked
		}
		portals[i] = hubspottest.Portal{
			ID: p.ID, HubID: p.HubID, Token: simulatorToken + p.ID, Plan: hubspottest.Plan(p.Plan), TimeZone: zone,
			BurstLimit: int(float64(p.Burst.Limit) * scale), BurstWindow: p.Burst.WindowDuration(), DailyLimit: int(float64(p.Daily) * scale),
			Properties: []hubspottest.Property{{Name: hubspot.ContactKeyProperty, Type: "string", HasUniqueValue: true}},
		}
		for _, b := range f.Brands {
			if b.Portal == p.ID {
				addBrand(&portals[i], b)
			}
		}
	}
	return portals
}

func addBrand(p *hubspottest.Portal, b routing.Brand) {
	if b.BusinessUnitID != 0 {
		p.BusinessUnits = append(p.BusinessUnits, b.BusinessUnitID)
	}
	for _, product := range b.Products {
		p.Definitions = append(p.Definitions, hubspottest.Definition{
			ID: product.SubscriptionTypeID, Name: b.ID + " " + product.ID, BusinessUnitID: b.BusinessUnitID,
		})
		for _, t := range product.Targets {
			switch t.Kind {
			case routing.ContactProperty:
				addProperty(p, t)
			case routing.BrandAssignment:
				p.BusinessUnits = append(p.BusinessUnits, t.BusinessUnitID)
			case routing.ManualSegment:
				p.Lists = append(p.Lists, hubspottest.List{ID: t.ListID, ProcessingType: "MANUAL"})
			}
		}
	}
}

// addProperty makes a property that takes the target's values; one with several entries
// takes those of every subscription that shares it.
func addProperty(p *hubspottest.Portal, t routing.Target) {
	made := hubspottest.Property{Name: t.Name, Type: "enumeration", Multi: t.Multi}
	switch {
	case t.Subscribed == routing.ConsentDate || t.Unsubscribed == routing.ConsentDate:
		made.Type = "date"
	case t.Subscribed == routing.ConsentTime || t.Unsubscribed == routing.ConsentTime:
		made.Type = "datetime"
	case t.Multi:
		made.Options = []string{t.Subscribed}
	default:
		made.Options = []string{t.Subscribed, t.Unsubscribed}
	}
	for i, held := range p.Properties {
		if held.Name == t.Name {
			p.Properties[i].Options = append(held.Options, made.Options...)
			return
		}
	}
	p.Properties = append(p.Properties, made)
}

// startStages starts intake, worker, and the timers of relay and reconcile: the same
// values that the Lambda functions make.
func (w *World) startStages(ctx context.Context) error {
	w.limiter = budget.NewLimiter(budget.Config{
		Redis: w.client, Prefix: "hubsync:" + w.env + ":", TrustEmpty: true, Clock: time.Now, Random: rand.Float64,
	})
	w.hubspots = w.clients()
	api := http.NewServeMux()
	reconciler, err := reconcile.New(reconcile.Config{DB: w.database("reconcile"), Clock: time.Now, Logger: w.opts.Logger})
	if err != nil {
		return err
	}
	api.Handle(reconcile.Path, reconciler.Handler(constant(cronSecret)))
	handler := intake.New(intake.Config{DB: w.database("intake"), Clock: time.Now, Logger: w.opts.Logger})
	w.APIURL, err = w.serve(ctx, "--api-addr", w.opts.APIAddr, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// No mux in front of intake: it would redirect paths that intake answers itself.
		if r.URL.Path == reconcile.Path {
			api.ServeHTTP(rw, r)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	if err != nil {
		return err
	}
	if err := w.startWorker(ctx); err != nil {
		return err
	}
	return w.startTimers(ctx, reconciler)
}

func constant(text string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, nil }
}

// lateHandler lets a server listen before its handler, which needs the address, exists.
type lateHandler struct {
	ready chan struct{}
	h     http.Handler
}

func (l *lateHandler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	<-l.ready
	l.h.ServeHTTP(rw, r)
}

func (w *World) startWorker(ctx context.Context) error {
	late := &lateHandler{ready: make(chan struct{})}
	url, err := w.serve(ctx, "", "", late)
	if err != nil {
		return err
	}
	w.WorkerURL = url
	keys := func(context.Context) (qstash.Keys, error) {
		return qstash.NewKeys(qstashtest.DefaultCurrentKey, qstashtest.DefaultNextKey)
	}
	late.h, err = worker.New(worker.Config{
		DB: w.database("worker"), Verifier: qstash.NewVerifier(keys, time.Now), Subject: url, Budget: w.limiter,
		Client: w.hubspots, Env: w.env, RateScale: w.opts.RateScale, Clock: time.Now, Random: rand.Float64, Logger: w.opts.Logger,
	})
	if err != nil {
		return err
	}
	close(late.ready)
	return nil
}

// clients makes a HubSpot client per portal, once.
func (w *World) clients() func(string) (*hubspot.Client, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	var mu sync.Mutex
	made := map[string]*hubspot.Client{}
	return func(id string) (*hubspot.Client, error) {
		mu.Lock()
		defer mu.Unlock()
		if c := made[id]; c != nil {
			return c, nil
		}
		for _, p := range w.opts.Routes.Portals {
			if p.ID != id {
				continue
			}
			c, err := hubspot.New(hubspot.Config{
				Portal: id, BaseURL: w.HubSpotURL, Version: p.APIVersion, Token: func(context.Context) (string, error) { return w.token(id), nil }, Clock: time.Now,
				HTTPClient: &http.Client{Transport: transport}, OnResponse: worker.Feedback(w.limiter, id, w.opts.Logger),
			})
			made[id] = c
			return c, err
		}
		return nil, fmt.Errorf("portal %s is not in the routes file", id)
	}
}

func (w *World) token(portal string) string {
	if text, ok := w.tokens.Load(portal); ok {
		return text.(string)
	}
	return simulatorToken + portal
}

// UseToken gives hubsync another token of a portal, as an operator does in the secret
// store.
func (w *World) UseToken(portal, token string) { w.tokens.Store(portal, token) }

// startTimers runs relay and sweep in place of EventBridge Scheduler.
func (w *World) startTimers(ctx context.Context, reconciler *reconcile.Reconciler) error {
	publisher, err := qstash.New(qstash.Config{BaseURL: w.QStashURL, Token: constant(qstashtest.DefaultToken)})
	if err != nil {
		return err
	}
	r, err := relay.New(relay.Config{
		DB: w.database("relay"), Publisher: publisher, Destination: w.WorkerURL, Env: w.env, RateScale: w.opts.RateScale,
		Clock: time.Now, Random: rand.Float64, Logger: w.opts.Logger,
	})
	if err != nil {
		return err
	}
	checker, err := reconcile.NewChecker(reconciler.Config, reconcile.CheckConfig{
		Budget: w.limiter, Client: w.hubspots, Env: w.env, RateScale: w.opts.RateScale,
	})
	if err != nil {
		return err
	}
	ctx, w.stopWork = context.WithCancel(context.WithoutCancel(ctx))
	w.workDone = make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = r.Run(ctx) }) // logs its own failures and ends with the context
	wg.Go(func() { every(ctx, sweepEvery, func() { _, _ = reconciler.Run(ctx) }) })
	wg.Go(func() { every(ctx, checkEvery, func() { _, _ = checker.Run(ctx) }) })
	go func() { wg.Wait(); close(w.workDone) }()
	return nil
}

func every(ctx context.Context, period time.Duration, f func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// Variables are what another program needs to work with this world.
func (w *World) Variables() [][2]string {
	v := [][2]string{
		{"HUBSYNC_ENV", w.env}, {"DATABASE_URL", w.DatabaseURL}, {"REDIS_URL", w.RedisURL}, {"QSTASH_URL", w.QStashURL},
		{"QSTASH_TOKEN", qstashtest.DefaultToken}, {"QSTASH_CURRENT_SIGNING_KEY", qstashtest.DefaultCurrentKey},
		{"QSTASH_NEXT_SIGNING_KEY", qstashtest.DefaultNextKey}, {"HUBSPOT_BASE_URL", w.HubSpotURL},
		{"HUBSPOT_WORKER_URL", w.WorkerURL}, {"CRON_SECRET", cronSecret},
	}
	for _, p := range w.opts.Routes.Portals {
		v = append(v, [2]string{config.HubSpotTokenName(p.ID), w.token(p.ID)})
	}
	return v
}

// OpenEvents counts the events that are not settled.
func (w *World) OpenEvents(ctx context.Context) (int, error) {
	var n int
	err := w.pool.QueryRow(ctx, `SELECT count(*) FROM hubspot_outbox_events WHERE completed_at IS NULL`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count open events: %w", err)
	}
	return n, nil
}
