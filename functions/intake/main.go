// Command intake is the function behind API Gateway: it accepts decisions.
package main

import (
	"context"
	"net/http"
	"time"

	"hubsync/functions/internal/clients"
	"hubsync/shared/intake"
	"hubsync/shared/lambdahttp"
)

func main() {
	s := clients.New()
	database := s.Reader.Database()
	window := s.Int("UNDATED_WINDOW_SECONDS", 60, 0, 3600)
	brandClaim := s.Text("JWT_BRAND_CLAIM", "") // set where callers bring a token
	if err := s.Err(); err != nil {
		s.Fatal(err)
	}
	db, err := s.Database(context.Background(), database)
	if err != nil {
		s.Fatal(err)
	}
	cfg := intake.Config{DB: db, Clock: time.Now, Logger: s.Logger, UndatedWindow: time.Duration(window) * time.Second}
	if window == 0 {
		cfg.UndatedWindow = -1
	}
	if brandClaim != "" {
		cfg.Brands = func(r *http.Request) string { return lambdahttp.Claim(r.Context(), brandClaim) }
	}
	s.Start(lambdahttp.Handler(db.Thawed(intake.New(cfg)), s.Logger))
}
