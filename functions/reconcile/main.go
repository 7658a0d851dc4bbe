// Command reconcile is the function that a schedule starts every minute, and that an
// operator may ask over HTTP: it finds what is stuck, and looks at HubSpot.
package main

import (
	"context"
	"errors"
	"time"

	"hubsync/functions/internal/clients"
	"hubsync/shared/hubspot"
	"hubsync/shared/lambdahttp"
	"hubsync/shared/reconcile"
)

// result is what a scheduled run did.
type result struct {
	Sweep reconcile.Result      `json:"sweep"`
	Check reconcile.CheckResult `json:"check"`
}

func main() {
	s := clients.New()
	database, redisURL, cronSecret := s.Reader.Database(), s.Secret("REDIS_URL", true), s.Secret("CRON_SECRET", true)
	env, hubspotURL, scriptPrefix := s.Env(), s.URL("HUBSPOT_BASE_URL", hubspot.DefaultBaseURL), s.RedisScriptPrefix()
	if err := s.Err(); err != nil {
		s.Fatal(err)
	}
	ctx := context.Background()
	db, err := s.Database(ctx, database)
	if err != nil {
		s.Fatal(err)
	}
	limiter, err := s.Budget(ctx, redisURL, env, scriptPrefix)
	if err != nil {
		s.Fatal(err)
	}
	cfg := reconcile.Config{DB: db, Clock: time.Now, Logger: s.Logger, Metrics: s.Meter()}
	sweep, err := reconcile.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	check, err := reconcile.NewChecker(cfg, reconcile.CheckConfig{Budget: limiter, Client: s.HubSpot(db, limiter, hubspotURL), Env: env})
	if err != nil {
		s.Fatal(err)
	}
	s.Start(lambdahttp.Either(db.Thawed(sweep.Handler(cronSecret.Get)), func(ctx context.Context) (r result, err error) {
		db.Thaw(time.Now())
		r.Sweep, err = sweep.Run(ctx)
		// What is stuck and what differs are found apart: one's failure is not the other's.
		var checkErr error
		r.Check, checkErr = check.Run(ctx)
		return r, errors.Join(err, checkErr)
	}, s.Logger))
}
