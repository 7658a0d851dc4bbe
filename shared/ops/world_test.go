package ops

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/config"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/qstash/qstashtest"
)

// world is the verbs over a database, a Redis, a QStash and an account of the test's own.
type world struct {
	*Ops
	t       *testing.T
	pool    *pgxpool.Pool
	db      *postgres.DB
	hubspot *hubspottest.Server
	env     map[string]string
}

// routes is a mapping that fits the account of newWorld in everything.
const routes = `
portals:
  - {id: main, hubId: 12345, burst: {limit: 150, window: 10s}, daily: 500000, timeZone: Europe/Berlin}
brands:
  - id: acme
    portal: main
    businessUnitId: 7
    products:
      - id: news
        subscriptionTypeId: 2239644020
        legalBasis: CONSENT_WITH_NOTICE
        targets:
          - {kind: CONTACT_PROPERTY, name: news_acme, subscribed: "true", unsubscribed: "false", required: true}
          - {kind: CONTACT_PROPERTY, name: topics, subscribed: news, multi: true, required: false}
          - {kind: CONTACT_PROPERTY, name: news_since, subscribed: $consentDate, unsubscribed: "", required: false}
          - {kind: MANUAL_SEGMENT, listId: "604", required: false}
          - {kind: BRAND_ASSIGNMENT, businessUnitId: 7, required: true}
`

func berlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// mainPortal is an account that has what routes names.
func mainPortal(t *testing.T) hubspottest.Portal {
	return hubspottest.Portal{
		ID: "main", HubID: 12345, Token: "pat-main", TimeZone: berlin(t), BusinessUnits: []int64{7, 8},
		Scopes:      append([]string{"crm.lists.read", "crm.lists.write"}, neededScopes...),
		Definitions: []hubspottest.Definition{{ID: 2239644020, Name: "News", BusinessUnitID: 7}, {ID: 50, BusinessUnitID: 8}, {ID: 51, BusinessUnitID: 7, Inactive: true}},
		Lists:       []hubspottest.List{{ID: "604", ProcessingType: "MANUAL"}, {ID: "605", ProcessingType: "DYNAMIC"}},
		Properties: []hubspottest.Property{
			{Name: "external_contact_id", Type: "string", HasUniqueValue: true},
			{Name: "news_acme", Type: "enumeration", Options: []string{"true", "false"}},
			{Name: "topics", Type: "enumeration", Options: []string{"news", "events"}, Multi: true},
			{Name: "news_since", Type: "date"}, {Name: "score", Type: "number", ReadOnly: true}, {Name: "agreed", Type: "bool"},
			{Name: "hs_marketable_status", Type: "bool"}, {Name: "hs_email_quarantined", Type: "bool"},
			{Name: "hs_emailconfirmationstatus", Type: "string"},
		},
	}
}

func newWorld(t *testing.T, portals ...hubspottest.Portal) *world {
	t.Helper()
	if len(portals) == 0 {
		portals = []hubspottest.Portal{mainPortal(t)}
	}
	w := &world{t: t, hubspot: hubspottest.New(hubspottest.Options{Portals: portals})}
	dsn := postgrestest.DSN(t)
	w.pool = postgrestest.Open(t, dsn)
	w.db = postgres.New(w.pool)
	qstash := qstashtest.New(qstashtest.Options{})
	hubspotAPI, qstashAPI := httptest.NewServer(w.hubspot.Handler()), httptest.NewServer(qstash.Handler())
	t.Cleanup(func() { qstash.Close(); hubspotAPI.Close(); qstashAPI.Close() })
	w.env = map[string]string{
		"HUBSYNC_ENV": "test", "DATABASE_URL": dsn, "REDIS_URL": "redis://" + miniredis.RunT(t).Addr(), "HUBSPOT_BASE_URL": hubspotAPI.URL,
		"QSTASH_URL": qstashAPI.URL, "QSTASH_TOKEN": qstashtest.DefaultToken, "QSTASH_CURRENT_SIGNING_KEY": qstashtest.DefaultCurrentKey,
		"QSTASH_NEXT_SIGNING_KEY": qstashtest.DefaultNextKey, "HUBSPOT_TOKEN_MAIN": "pat-main",
	}
	w.reopen()
	return w
}

// reopen makes the verbs anew, from the environment as it is now.
func (w *world) reopen() {
	w.t.Helper()
	w.Ops = w.open(w.env)
}

func (w *world) open(env map[string]string) *Ops {
	o := Open(w.t.Context(), Environment{
		Getenv: func(name string) string { return env[name] }, Logger: slog.New(slog.DiscardHandler),
		// The limiter takes an empty Redis for a window spent, as it must; a test does not wait.
		Database: func(context.Context, config.Database) (*postgres.DB, error) { return w.db, nil },
	})
	o.cfg.Budget = nil
	return o
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) apply(content string) RoutesApplied {
	w.t.Helper()
	applied, err := w.RoutesApply(w.t.Context(), RoutesFile{content})
	if err != nil || !applied.OK {
		w.t.Fatalf("apply: %+v %v", applied, err)
	}
	return applied
}

// replaced changes a text in one place, which must be there.
func replaced(t *testing.T, text, from, to string) string {
	t.Helper()
	if !strings.Contains(text, from) {
		t.Fatalf("%q is not there", from)
	}
	return strings.Replace(text, from, to, 1)
}

func problems(list []Finding) string {
	var b strings.Builder
	for _, f := range list {
		b.WriteString(string(f.Severity) + " " + f.Where + ": " + f.Problem + "\n")
	}
	return b.String()
}
