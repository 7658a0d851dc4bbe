package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/local"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/routing"
)

// drill is a running local world with an operator who has nothing but the command line.
type drill struct {
	*local.World
	t      *testing.T
	pool   *pgxpool.Pool
	serial int
}

const drillRoutes = `
portals:
  - {id: main, hubId: 12345, burst: {limit: %d, window: %s}, daily: 500000}
brands:
  - id: acme
    portal: main
    businessUnitId: 7
    products:
      - id: news
        subscriptionTypeId: 5
        legalBasis: CONSENT_WITH_NOTICE
        targets:
          - {kind: CONTACT_PROPERTY, name: news_acme, subscribed: "%s", unsubscribed: "no", required: true}
`

func newDrill(t *testing.T, limit int, window string) *drill {
	t.Helper()
	routes, err := routing.Parse([]byte(fmt.Sprintf(drillRoutes, limit, window, "yes")))
	if err != nil {
		t.Fatal(err)
	}
	dsn := postgrestest.DSN(t)
	w, err := local.Start(t.Context(), local.Options{Routes: routes, RateScale: 1, DatabaseURL: dsn, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &drill{World: w, t: t, pool: postgrestest.Open(t, dsn)}
}

// hubsync runs a command as a script would, and returns its exit code and output.
func (d *drill) hubsync(args ...string) (int, string) {
	d.t.Helper()
	env := map[string]string{}
	for _, v := range d.Variables() {
		env[v[0]] = v[1]
	}
	root := newRoot(func(name string) string { return env[name] })
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetIn(strings.NewReader(""))
	code := run(d.t.Context(), root, &errs)
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > pageWidth && !strings.Contains(strings.Join(args, " "), "--json") {
			d.t.Errorf("hubsync %v: a line of %d columns: %s", args, n, line)
		}
	}
	return code, out.String() + errs.String()
}

// expect runs a command that must end with this code and say this.
func (d *drill) expect(code int, says string, args ...string) string {
	d.t.Helper()
	got, out := d.hubsync(args...)
	if got != code || !strings.Contains(out, says) {
		d.t.Fatalf("hubsync %s: exit code %d, want %d; does it say %q?\n%s", strings.Join(args, " "), got, code, says, out)
	}
	return out
}

// decide sends a decision through the API.
func (d *drill) decide(person int, state string) {
	d.t.Helper()
	d.serial++
	body := fmt.Sprintf(`{"contactKey":"customer-%d","email":"person-%d@example.com","productId":"news","desiredState":%q,"occurredAt":%q}`,
		person, person, state, time.Now().UTC().Format(time.RFC3339Nano))
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.APIURL+"/v1/brands/acme/subscriptions", strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", fmt.Sprint("drill-", d.serial))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	if answer.Body.Close(); answer.StatusCode != http.StatusAccepted {
		d.t.Fatalf("%d %s", answer.StatusCode, text)
	}
}

// until waits for a number of the database, at most 30 s.
func (d *drill) until(want int, sql string) {
	d.t.Helper()
	got := -1
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = d.count(sql); got == want {
			return
		}
	}
	_, status := d.hubsync("status")
	_, events := d.hubsync("events", "list")
	d.t.Fatalf("%s: %d, want %d\n%s\n%s", sql, got, want, status, events)
}

const (
	openEvents = `SELECT count(*)::integer FROM hubspot_outbox_events WHERE completed_at IS NULL`
	deadEvents = `SELECT count(*)::integer FROM hubspot_outbox_events WHERE status = 'dead'`
)

func (d *drill) file(subscribed string, limit int, window string) string {
	d.t.Helper()
	name := filepath.Join(d.t.TempDir(), "routes.yaml")
	if err := os.WriteFile(name, []byte(fmt.Sprintf(drillRoutes, limit, window, subscribed)), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return name
}

// A property's values are renamed inside HubSpot: what is on its way dies, is explained,
// and comes to life again under a corrected mapping.
func TestDrillOfABadMapping(t *testing.T) {
	t.Parallel()
	d := newDrill(t, 150, "10s")
	d.HubSpot.SetPropertyOptions("main", "news_acme", "true", "no")
	for person := range 3 {
		d.decide(person, "subscribed")
	}
	d.until(3, deadEvents)
	d.expect(exitAttention, "hubspot_400_invalid_option", "status")
	list := d.expect(0, "dead", "events", "list", "--status", "dead", "--code", "hubspot_400_invalid_option")
	id := strings.Fields(strings.Split(list, "\n")[1])[0]
	explained := d.expect(0, "mend the mapping", "events", "explain", id)
	if !strings.Contains(explained, "hubsync replay --code hubspot_400_invalid_option --brand acme --dry-run") {
		t.Errorf("it does not say how to go on:\n%s", explained)
	}
	d.expect(exitAttention, `value "yes" is none of its options (true, no)`, "routes", "validate", d.file("yes", 150, "10s"))
	d.expect(exitAttention, "nothing was changed", "routes", "apply", d.file("yes", 150, "10s"), "--yes")

	mended := d.file("true", 150, "10s")
	d.expect(exitAttention, "acme/news", "routes", "plan", mended)
	d.expect(exitUsage, "needs --yes", "routes", "apply", mended)
	d.expect(0, "brand acme: version 2 is active", "routes", "apply", mended, "--yes")
	d.expect(0, "would replay 3 events", "replay", "--code", "hubspot_400_invalid_option", "--mapping", "1", "--dry-run")
	d.expect(0, "replayed 3 events", "replay", "--code", "hubspot_400_invalid_option", "--mapping", "1", "--yes")
	d.until(0, openEvents)
	d.expect(0, "would replay 0 events", "replay", "--dry-run")
	d.expect(0, "differences listed: 0", "status")
	for person := range 3 {
		contact, _ := d.HubSpot.Contact("main", fmt.Sprintf("person-%d@example.com", person))
		if contact.Properties["news_acme"] != "true" {
			t.Errorf("person %d shows %q", person, contact.Properties["news_acme"])
		}
	}
	d.expect(0, "replay", "audit")
	if ledger := d.expect(0, "sha256 of the entries", "evidence", "customer-1"); strings.Contains(ledger, "@") || !strings.Contains(ledger, "dead") {
		t.Errorf("evidence:\n%s", ledger)
	}
}

// A token is revoked: the portal pauses, nothing dies, and a second one goes on.
func TestDrillOfARevokedToken(t *testing.T) {
	t.Parallel()
	d := newDrill(t, 150, "10s")
	d.HubSpot.SetToken("main", "second-token")
	for person := range 5 {
		d.decide(person, []string{"subscribed", "unsubscribed"}[person%2])
	}
	d.until(1, `SELECT count(*)::integer FROM hubspot_portals WHERE paused_until > now()`)
	d.expect(exitAttention, "refuses this portal's token", "status")
	d.expect(exitAttention, "put the app's current token into the secret of portal main", "portal", "check", "main")
	d.UseToken("main", "second-token")
	d.expect(0, "goes on", "resume", "main")
	d.expect(0, "✓ portal main", "portal", "check", "main")
	d.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE status IN ('publish_retry', 'process_retry')`)
	d.until(0, openEvents)
	d.until(0, deadEvents)
	d.expect(0, "nothing left", "status") // exit code 0: nothing to look at
}

func (d *drill) exec(sql string) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), sql); err != nil {
		d.t.Fatal(err)
	}
}

// HubSpot is away for hours while decisions come in: nothing dies, and when it is back
// the opt-outs go first.
func TestDrillOfAnOutage(t *testing.T) {
	t.Parallel()
	d := newDrill(t, 150, "10s")
	d.HubSpot.SetFaults(hubspottest.Fault{Probability: 1, Status: http.StatusServiceUnavailable})
	const people = 40
	for person := range people {
		d.decide(person, "subscribed")
	}
	d.until(1, `SELECT count(*)::integer FROM service_breakers`)
	for person := range people {
		if person%4 == 0 {
			d.decide(person, "unsubscribed")
		}
	}
	d.expect(exitAttention, "hubspot:main", "status")
	for range 3 { // each is a probe that fails
		d.timePasses()
		time.Sleep(700 * time.Millisecond)
	}
	d.until(0, deadEvents)
	d.expect(exitAttention, "hubspot:main", "status")

	d.HubSpot.SetFaults()
	mark := len(d.HubSpot.Ledger())
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
		d.timePasses()
		if d.count(openEvents) == 0 {
			break
		}
	}
	d.until(0, openEvents)
	d.until(0, deadEvents)
	optOuts, subscribes, before := 0, 0, 0 // before the last opt-out
	for _, c := range d.HubSpot.Ledger()[mark:] {
		for _, w := range c.Writes {
			if w.State == "UNSUBSCRIBED" {
				optOuts, before = optOuts+1, subscribes
			} else {
				subscribes++
			}
		}
	}
	if optOuts != people/4 || subscribes != people*3/4 || before > subscribes/2 {
		t.Errorf("%d opt-outs, and before the last of them %d of %d subscribes", optOuts, before, subscribes)
	}
}

// timePasses ends every wait of an outage at once.
func (d *drill) timePasses() {
	d.t.Helper()
	d.exec(`UPDATE service_breakers SET open_until = least(open_until, now())`)
	d.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE status IN ('publish_retry', 'process_retry') AND next_attempt_at > now()`)
}

func (d *drill) count(sql string) (n int) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), sql).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// The budget is lowered while a backlog drains, and holds within five seconds.
func TestDrillOfALoweredBudget(t *testing.T) {
	t.Parallel()
	d := newDrill(t, 60, "2s")
	d.expect(exitUsage, "at least 10", "budget", "set", "main", "--burst", "5", "--yes")
	d.expect(exitUsage, "daily must not be below burst", "budget", "set", "main", "--daily", "20", "--yes")
	d.expect(0, "burst 60 → 10", "budget", "set", "main", "--burst", "10", "--yes")
	time.Sleep(5 * time.Second)
	mark := time.Now()
	for person := range 60 {
		d.decide(person, "subscribed")
	}
	d.until(0, openEvents)
	var times []time.Time
	for _, c := range d.HubSpot.Ledger() {
		if c.At.After(mark) {
			times = append(times, c.At)
		}
	}
	for i := range times {
		if i >= 10 && times[i].Sub(times[i-10]) < 2*time.Second {
			t.Fatalf("11 calls within %s", times[i].Sub(times[i-10]))
		}
	}
}
