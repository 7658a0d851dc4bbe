// Command intake is the function behind API Gateway: it accepts decisions.
package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"hubsync/functions/internal/clients"
	"hubsync/shared/config"
	"hubsync/shared/intake"
	"hubsync/shared/lambdahttp"
	"hubsync/shared/webhook"
)

func main() {
	s := clients.New()
	database := s.Reader.Database()
	window := s.Int("UNDATED_WINDOW_SECONDS", 60, 0, 3600)
	brandClaim := s.Text("JWT_BRAND_CLAIM", "") // set where callers bring a token
	hookSecrets, hookURL := s.Secret("HUBSPOT_WEBHOOK_SECRET", false), ""
	if hookSecrets.Set() {
		hookURL = s.URL("HUBSPOT_WEBHOOK_URL", "")
	}
	if err := s.Err(); err != nil {
		s.Fatal(err)
	}
	db, err := s.Database(context.Background(), database)
	if err != nil {
		s.Fatal(err)
	}
	cfg := intake.Config{DB: db, Clock: time.Now, Logger: s.Logger, Metrics: s.Meter(), UndatedWindow: time.Duration(window) * time.Second}
	if window == 0 {
		cfg.UndatedWindow = -1
	}
	if brandClaim != "" {
		cfg.Brands = func(r *http.Request) string { return lambdahttp.Claim(r.Context(), brandClaim) }
	}
	handler := intake.New(cfg)
	if hookSecrets.Set() {
		if handler, err = withWebhook(handler, webhook.Config{
			DB: db, URL: hookURL, Clock: time.Now, Logger: s.Logger, Secrets: list(hookSecrets),
		}); err != nil {
			s.Fatal(err)
		}
	}
	s.Start(lambdahttp.Handler(db.Thawed(handler), s.Logger))
}

// withWebhook serves HubSpot's notifications beside the API.
func withWebhook(api http.Handler, cfg webhook.Config) (http.Handler, error) {
	hook, err := webhook.Handler(cfg)
	if err != nil {
		return nil, fmt.Errorf("HUBSPOT_WEBHOOK_SECRET needs HUBSPOT_WEBHOOK_URL, the public address that HubSpot signs: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == webhook.Path {
			hook.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}), nil
}

// list reads the secrets of several apps, or of one while it is rotated, separated by
// commas.
func list(v config.Value) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		text, err := v.Get(ctx)
		if err != nil {
			return nil, err
		}
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }), nil
	}
}
