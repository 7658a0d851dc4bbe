package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hubsync/shared/casetest"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestReaderNamesEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	r := NewReader(environment(map[string]string{
		"HUBSYNC_ENV": "Prod!", "QSTASH_URL": "qstash", "QSTASH_TOKEN": "a", "QSTASH_TOKEN_SECRET_ARN": "arn:b",
		"RELAY_BATCH": "many", "HUBSPOT_TOKEN_MAIN_SECRET_ARN": "b", "DB_IAM_AUTH": "true",
	}), nil)
	r.Env()
	r.URL("QSTASH_URL", "")
	r.URL("HUBSPOT_WORKER_URL", "")
	r.Secret("QSTASH_TOKEN", true)
	r.Secret("CRON_SECRET", true)
	r.Int("RELAY_BATCH", 1000, 1, 5000)
	r.HubSpotToken("main")
	r.Database()
	err := r.Err()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"HUBSYNC_ENV", "QSTASH_URL is not an absolute", "HUBSPOT_WORKER_URL is not set", "QSTASH_TOKEN and QSTASH_TOKEN_SECRET_ARN are both set",
		"neither CRON_SECRET nor CRON_SECRET_SECRET_ARN", "RELAY_BATCH", "HUBSPOT_TOKEN_MAIN_SECRET_ARN does not begin", "PGHOST", "PGDATABASE", "PGUSER", "AWS_REGION",
	} {
		casetest.Add()
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
}

func TestReaderAcceptsAGoodEnvironment(t *testing.T) {
	t.Parallel()
	r := NewReader(environment(map[string]string{
		"HUBSYNC_ENV": "prod", "QSTASH_URL": "https://qstash.example.com", "DATABASE_URL": "postgres://db.example.com/x",
		"HUBSPOT_TOKEN_EU_1": "t",
	}), nil)
	token := r.HubSpotToken("eu-1")
	r.Env()
	r.Database()
	if r.URL("QSTASH_URL", "") != "https://qstash.example.com" || r.Int("N", 7, 1, 9) != 7 {
		t.Error("values are not as given")
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := token.Get(t.Context()); err != nil || got != "t" {
		t.Errorf("token %q, %v", got, err)
	}
}

func TestSecretNeverShowsItself(t *testing.T) {
	t.Parallel()
	s := Secret("canary-4711")
	encoded, err := json.Marshal(map[string]Secret{"token": s})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", s, "value", Plain("canary-4711"))
	shown := fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s) + string(encoded) + log.String() + fmt.Sprintf("%+v %#v", Plain("canary-4711"), Plain("canary-4711"))
	if strings.Contains(shown, "canary") || strings.Contains(shown, "63616e617279") {
		t.Errorf("the secret shows: %s", shown)
	}
	if s.Reveal() != "canary-4711" {
		t.Error("Reveal does not return it")
	}
}

func TestStoreKeepsRefetchesAndSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	now, fetches, answer, failing := time.Unix(0, 0), 0, "one", false
	store := NewStore(func(context.Context, string) (string, error) {
		fetches++
		if failing {
			return "", errors.New("away")
		}
		return answer, nil
	}, func() time.Time { return now })
	get := func(want string, wantFetches int) {
		t.Helper()
		if got, err := store.Get(t.Context(), "arn:x"); err != nil || got != want || fetches != wantFetches {
			t.Errorf("got %q, %v after %d fetches; want %q after %d", got, err, fetches, want, wantFetches)
		}
	}
	get("one", 1)
	answer = "two"
	now = now.Add(secretTTL - time.Second)
	get("one", 1)
	if !store.Refused("arn:x") { // by the service: it was rotated
		t.Error("a refused secret is not fetched again")
	}
	get("two", 2)
	if store.Refused("arn:x") || store.Refused("arn:y") {
		t.Error("a secret that was fetched a moment ago, or never, is fetched again")
	}
	get("two", 2)
	failing, now = true, now.Add(secretTTL)
	get("two", 3)
	if !store.Refused("arn:x") {
		t.Error("a refused secret is not fetched again")
	}
	get("two", 4) // an outage of the store and a false signature cost nothing
	if _, err := store.Get(t.Context(), "arn:y"); err == nil {
		t.Error("a secret that was never held is no secret")
	}
}
