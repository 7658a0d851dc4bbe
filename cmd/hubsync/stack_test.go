package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hubsync/shared/lambdatest"
	"hubsync/shared/postgres/postgrestest"
)

// deployAdmin runs the unmodified bootstrap of the admin function, behind Lambda's Invoke
// API; AWS' client is pointed at it.
func deployAdmin(t *testing.T, env ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := lambdatest.Build(t.Context(), dir, "admin"); err != nil {
		t.Fatal(err)
	}
	f, err := lambdatest.New(lambdatest.Config{Name: "prod-admin", Bootstrap: lambdatest.Bootstrap(dir, "admin"), Env: env, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/2015-03-31/functions/prod-admin/invocations" {
			w.Header().Set("X-Amzn-Errortype", "ResourceNotFoundException")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		payload, _ := io.ReadAll(r.Body)
		result, err := f.Invoke(r.Context(), payload)
		if err != nil {
			w.Header().Set("X-Amz-Function-Error", "Unhandled")
			_, _ = w.Write([]byte(`{}`))
			return
		}
		_, _ = w.Write(result.Payload)
	}))
	t.Cleanup(api.Close)
	t.Setenv("AWS_ENDPOINT_URL_LAMBDA", api.URL)
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
}

// The same verbs, through the admin function: by its name, and with its answer.
func TestStackIsAskedThroughItsAdminFunction(t *testing.T) {
	dsn := postgrestest.DSN(t)
	pool := postgrestest.Open(t, dsn)
	if _, err := pool.Exec(t.Context(), `INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit) VALUES ('main', 1, 150, 500000)`); err != nil {
		t.Fatal(err)
	}
	deployAdmin(t, "HUBSYNC_ENV=prod", "DATABASE_URL="+dsn)
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status", "--stack", "prod"}, 0, "portal main: 0 confirmed a minute"},
		{[]string{"status", "--stack", "prod", "--json"}, 0, `"burstLimit": 150`},
		{[]string{"budget", "set", "main", "--burst", "20", "--stack", "prod", "--yes"}, 0, "burst 150 → 20"},
		{[]string{"budget", "set", "nowhere", "--burst", "20", "--stack", "prod", "--yes"}, exitUsage, `portal "nowhere" does not exist`},
		{[]string{"audit", "--stack", "prod"}, 0, "budget.set"},
		{[]string{"doctor", "--stack", "prod"}, exitAttention, "neither REDIS_URL nor REDIS_URL_SECRET_ARN is set"},
		{[]string{"keys", "check", "--stack", "prod"}, exitFailed, "QStash is not configured"},
		{[]string{"status", "--stack", "other"}, exitFailed, "invoke other-admin"},
	} {
		if code, out := command(t, tc.args...); code != tc.code || !strings.Contains(out, tc.says) {
			t.Errorf("hubsync %v: exit code %d, want %d; does it say %q?\n%s", tc.args, code, tc.code, tc.says, out)
		}
	}
}

// An admin function whose configuration is broken still tells what is wrong with it.
func TestStackWithABrokenConfiguration(t *testing.T) {
	deployAdmin(t, "HUBSYNC_ENV=Prod!", "DB_IAM_AUTH=maybe")
	code, out := command(t, "doctor", "--stack", "prod")
	if code != exitAttention || !strings.Contains(out, "DB_IAM_AUTH") || !strings.Contains(out, "HUBSYNC_ENV") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out = command(t, "status", "--stack", "prod"); code != exitFailed || !strings.Contains(out, "no database is configured") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
