// Command relay is the function that a schedule starts every minute: it publishes due
// events until shortly before its deadline.
package main

import (
	"context"
	"math/rand/v2"
	"time"

	"hubsync/functions/internal/clients"
	"hubsync/shared/lambdahttp"
	"hubsync/shared/qstash"
	"hubsync/shared/relay"
)

func main() {
	s := clients.New()
	database := s.Reader.Database()
	token := s.Secret("QSTASH_TOKEN", true)
	cfg := relay.Config{
		Env: s.Env(), Destination: s.URL("HUBSPOT_WORKER_URL", ""), Clock: time.Now, Random: rand.Float64, Logger: s.Logger, Metrics: s.Meter(),
		Parallelism: s.Int("QSTASH_PARALLELISM", 12, 1, 1000), Rate: s.Int("QSTASH_RATE", 150, 1, 100_000),
	}
	qstashURL := s.URL("QSTASH_URL", qstash.DefaultBaseURL)
	if err := s.Err(); err != nil {
		s.Fatal(err)
	}
	db, err := s.Database(context.Background(), database)
	if err != nil {
		s.Fatal(err)
	}
	cfg.DB = db
	httpClient, bearer := s.Bearer(db, "QSTASH_TOKEN", token)
	if cfg.Publisher, err = qstash.New(qstash.Config{BaseURL: qstashURL, Token: bearer, HTTPClient: httpClient}); err != nil {
		s.Fatal(err)
	}
	r, err := relay.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Start(lambdahttp.Timed(func(ctx context.Context) (relay.Result, error) {
		db.Thaw(time.Now())
		return r.Run(ctx)
	}, s.Logger))
}
