// Command worker is the function behind the function URL that QStash delivers to.
package main

import (
	"context"
	"math/rand/v2"
	"time"

	"hubsync/functions/internal/clients"
	"hubsync/shared/hubspot"
	"hubsync/shared/lambdahttp"
	"hubsync/shared/worker"
)

func main() {
	s := clients.New()
	database := s.Reader.Database()
	verifier := clients.Verifier(s.Secret("QSTASH_CURRENT_SIGNING_KEY", true), s.Secret("QSTASH_NEXT_SIGNING_KEY", false))
	redisURL := s.Secret("REDIS_URL", true)
	hubspotURL := s.URL("HUBSPOT_BASE_URL", hubspot.DefaultBaseURL)
	subject, region := s.WorkerURL()
	cfg := worker.Config{
		Env: s.Env(), Subject: subject, Region: region, Clock: time.Now, Random: rand.Float64, Logger: s.Logger, Metrics: s.Meter(),
		Verifier: verifier,
	}
	scriptPrefix := s.RedisScriptPrefix()
	if err := s.Err(); err != nil {
		s.Fatal(err)
	}
	ctx := context.Background()
	db, err := s.Database(ctx, database)
	if err != nil {
		s.Fatal(err)
	}
	cfg.DB = db
	if cfg.Budget, err = s.Budget(ctx, redisURL, cfg.Env, scriptPrefix); err != nil {
		s.Fatal(err)
	}
	cfg.Client = s.HubSpot(db, cfg.Budget, hubspotURL)
	handler, err := worker.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Start(lambdahttp.Handler(db.Thawed(handler), s.Logger))
}
