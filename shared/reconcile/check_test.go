package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/reconcile"
	"hubsync/shared/routing"
)

const checkRoutes = `{"portals":[{"id":"main","hubId":1,"burst":{"limit":1000,"window":"10s"},"daily":500000}],
"brands":[{"id":"acme","portal":"main","businessUnitId":7,"products":[{"id":"news","subscriptionTypeId":5,"legalBasis":"NON_GDPR",
 "targets":[{"kind":"CONTACT_PROPERTY","name":"news","subscribed":"true","unsubscribed":"false","required":true}]}]}]}`

// checkWorld is a checker between a database and a HubSpot of its own. Its clock stands
// still.
type checkWorld struct {
	*reconcile.Checker
	t       *testing.T
	pool    *pgxpool.Pool
	db      *postgres.DB
	hubspot *hubspottest.Server
	now     time.Time
	serial  int
}

func newCheckWorld(t *testing.T, plan hubspottest.Plan) *checkWorld {
	t.Helper()
	w := &checkWorld{t: t, pool: postgrestest.New(t), now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}
	w.db = postgres.New(w.pool)
	file, err := routing.Parse([]byte(checkRoutes))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.ApplyRoutes(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	postgrestest.SetClock(t, w.pool, w.now)
	w.hubspot = hubspottest.New(hubspottest.Options{Portals: []hubspottest.Portal{{
		ID: "main", Token: "t", Plan: plan, BurstLimit: 1000, BusinessUnits: []int64{7}, Definitions: []hubspottest.Definition{{ID: 5, BusinessUnitID: 7}},
		Properties: []hubspottest.Property{{Name: "news", Type: "enumeration", Options: []string{"true", "false"}}, {Name: hubspot.ContactKeyProperty, HasUniqueValue: true}},
	}}, Now: func() time.Time { return w.now }})
	api := httptest.NewServer(w.hubspot.Handler())
	redis := miniredis.RunT(t)
	client, err := budget.Open("redis://" + redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close(); _ = client.Close() })
	hs, err := hubspot.New(hubspot.Config{BaseURL: api.URL, Clock: time.Now, Token: func(context.Context) (string, error) { return "t", nil }})
	if err != nil {
		t.Fatal(err)
	}
	w.Checker, err = reconcile.NewChecker(
		reconcile.Config{DB: w.db, Clock: time.Now, Logger: slog.New(slog.DiscardHandler)},
		reconcile.CheckConfig{
			Budget: budget.NewLimiter(budget.Config{Redis: client, TrustEmpty: true, Clock: time.Now, Random: rand.Float64}),
			Client: func(string) (*hubspot.Client, error) { return hs, nil }, Env: "test", MaxRepairs: 3,
		})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// settled makes a subscription whose decision HubSpot shows, due for a look.
func (w *checkWorld) settled(state outbox.DesiredState) (email string) {
	w.t.Helper()
	w.serial++
	email = fmt.Sprintf("p%d@example.com", w.serial)
	d := postgres.Decision{RequestID: uuid.New(), EventID: uuid.New(), BrandID: "acme", ProductID: "news", ContactKey: email[:len(email)-12],
		Email: email, EmailKey: email, DesiredState: state, IdempotencyKey: email, RequestHash: "h", Source: "api", Lane: outbox.LaneLive}
	if _, err := w.db.Accept(w.t.Context(), d); err != nil {
		w.t.Fatal(err)
	}
	w.exec(`UPDATE hubspot_outbox_events SET status = 'synced', completed_at = hubsync.now() WHERE id = $1`, d.EventID.String())
	w.exec(`UPDATE subscription_requests SET sync_status = 'synced' WHERE id = $1`, d.RequestID.String())
	w.exec(`UPDATE contact_subscription_state SET applied_sequence = 1, applied_state = desired_state, check_at = hubsync.now() WHERE latest_event_id = $1`, d.EventID.String())
	shown, property := "SUBSCRIBED", "true"
	if state == outbox.Unsubscribed {
		shown, property = "UNSUBSCRIBED", "false"
	}
	w.hubspot.SetStatus("main", email, 5, shown, w.now.Add(-time.Hour))
	w.load(email, property)
	return email
}

func (w *checkWorld) load(email, property string) {
	w.t.Helper()
	if err := w.hubspot.LoadState(readerOf(`{"contacts":[{"email":"` + email + `","additionalEmails":[],"properties":{"news":"` + property + `"}}],"statuses":[]}`)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *checkWorld) exec(sql string, args ...any) { exec(w.t, w.pool, sql, args...) }

func (w *checkWorld) advance(d time.Duration) {
	w.now = w.now.Add(d)
	postgrestest.Advance(w.t, w.pool, d)
}

func (w *checkWorld) dueNow() {
	w.exec(`UPDATE contact_subscription_state SET check_at = hubsync.now()`)
}

func (w *checkWorld) run() reconcile.CheckResult {
	w.t.Helper()
	r, err := w.Run(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func text(w *checkWorld, sql string, args ...any) string {
	w.t.Helper()
	var s string
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func TestAHealthySystemRaisesNothingAndCostsThreeCallsPerHundred(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Enterprise)
	for i := range 100 {
		w.settled([]outbox.DesiredState{outbox.Subscribed, outbox.Unsubscribed}[i%2])
	}
	if r := w.run(); r.Checked != 100 || r.Equal != 100 {
		t.Errorf("%+v", r)
	}
	if n := w.hubspot.CallCount("main"); n != 3 {
		t.Errorf("%d calls for 100 subscriptions", n)
	}
	if r := w.run(); r.Checked != 0 {
		t.Errorf("looked again at once: %+v", r)
	}
	w.advance(25 * time.Hour)
	if r := w.run(); r.Checked != 100 || r.Equal != 100 {
		t.Errorf("the next day: %+v", r)
	}
	if seen := text(w, `SELECT count(*)::text FROM contact_subscription_state WHERE hubspot_seen_at = hubsync.now()`); seen != "100" {
		t.Errorf("%s seen now", seen)
	}
}

func TestASingleReadPortalIsCheckedToo(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Professional)
	w.settled(outbox.Subscribed)
	w.settled(outbox.Unsubscribed)
	if r := w.run(); r.Equal != 2 {
		t.Errorf("%+v", r)
	}
}

func TestAnOptOutMadeInsideHubSpotBecomesTheNewestDecision(t *testing.T) {
	t.Parallel()
	for name, optOut := range map[string]func(w *checkWorld, email string){
		"of the product": func(w *checkWorld, email string) {
			w.hubspot.SetStatus("main", email, 5, "UNSUBSCRIBED", w.now.Add(time.Minute))
		},
		"of the brand":  func(w *checkWorld, email string) { w.hubspot.OptOutOfAll("main", email, 7, w.now.Add(time.Minute)) },
		"of everything": func(w *checkWorld, email string) { w.hubspot.OptOutOfAll("main", email, 0, w.now.Add(time.Minute)) },
	} {
		w := newCheckWorld(t, hubspottest.Enterprise)
		email := w.settled(outbox.Subscribed)
		optOut(w, email)
		w.advance(time.Hour)
		if r := w.run(); r.Inbound != 1 || r.Repaired != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		got := text(w, `SELECT s.desired_state || ' ' || s.latest_sequence || ' ' || r.source || ' ' || e.status || ' ' || e.lane || ' ' || (s.opted_out_at = r.consent_at)::text
			FROM contact_subscription_state s JOIN hubspot_outbox_events e ON e.id = s.latest_event_id JOIN subscription_requests r ON r.id = e.request_id`)
		if got != "unsubscribed 2 hubspot pending 0 true" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// ✦ A correction carries the consent of the request that it repeats: with a newer one it
// could lift an opt-out that the person made meanwhile.
func TestStarACorrectionRepeatsTheRequestWithItsConsent(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Enterprise)
	email := w.settled(outbox.Subscribed)
	consent := text(w, `SELECT consent_at::text FROM subscription_requests`)
	w.advance(time.Hour)
	w.settled(outbox.Subscribed) // somebody else's, newer
	w.hubspot.SetStatus("main", email, 5, "NOT_SPECIFIED", w.now)
	w.advance(time.Hour)
	if r := w.run(); r.Repaired != 1 || r.Equal != 1 {
		t.Fatalf("%+v", r)
	}
	got := text(w, `SELECT e.sequence || ' ' || e.revision || ' ' || e.lane || ' ' || r.consent_at::text || ' ' || (SELECT count(*) FROM subscription_requests)
		FROM contact_subscription_state s JOIN hubspot_outbox_events e ON e.id = s.latest_event_id JOIN subscription_requests r ON r.id = e.request_id
		WHERE s.latest_sequence = 2`)
	if want := "2 2 2 " + consent + " 2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAnythingButUnsubscribedIsADifferenceForAnOptOut(t *testing.T) {
	t.Parallel()
	for _, shown := range []string{"SUBSCRIBED", "NOT_SPECIFIED"} {
		w := newCheckWorld(t, hubspottest.Enterprise)
		w.hubspot.SetStatus("main", w.settled(outbox.Unsubscribed), 5, shown, w.now)
		if r := w.run(); r.Repaired != 1 {
			t.Errorf("%s: %+v", shown, r)
		}
		if lane := text(w, `SELECT lane::text FROM hubspot_outbox_events WHERE status = 'pending'`); lane != "0" {
			t.Errorf("the correction of an opt-out is in lane %s", lane)
		}
	}
}

// ✦ Only if nothing was accepted or claimed since the look: a stale look must neither
// correct nor take an opt-out over a newer decision.
func TestStarAStaleLookWritesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"accepted": `UPDATE contact_subscription_state SET latest_sequence = latest_sequence + 1`,
		"claimed":  `UPDATE contact_subscription_state SET fence = fence + 1`,
		"leased":   `UPDATE contact_subscription_state SET lease_expires_at = hubsync.now() + interval '1 minute'`,
	} {
		w := newCheckWorld(t, hubspottest.Enterprise)
		w.settled(outbox.Subscribed)
		due, err := w.db.ClaimChecks(t.Context(), "main", false, 10, time.Minute)
		if err != nil || len(due) != 1 {
			t.Fatal(due, err)
		}
		w.exec(change)
		if r, err := w.db.Correct(t.Context(), due[0], "x", uuid.New()); err != nil || r != postgres.RepairStale {
			t.Errorf("%s: corrected: %s, %v", name, r, err)
		}
		if done, err := w.db.AcceptInbound(t.Context(), due[0], w.now, uuid.New(), uuid.New()); err != nil || done {
			t.Errorf("%s: an opt-out was taken: %v", name, err)
		}
	}
}

// ✦ Uncertainty ends by compare-and-set and only after L: before that a late call may
// still land.
func TestStarUncertaintyEndsOnlyAfterLAndIfNotRaisedAgain(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Enterprise)
	w.settled(outbox.Subscribed)
	w.exec(`UPDATE contact_subscription_state SET uncertain_until = hubsync.now() + interval '10 minutes'`)
	state := func() string {
		return text(w, `SELECT coalesce((uncertain_until - hubsync.now())::text, 'certain') || ' ' || (check_at - hubsync.now())::text FROM contact_subscription_state`)
	}
	if r := w.run(); r.Equal != 1 || state() != "00:10:00 00:00:31" {
		t.Errorf("before L: %+v, %s", r, state())
	}
	looks := 1
	for ; looks < 25; looks++ { // growing gaps, not a look every second
		w.advance(31 * time.Second)
		if w.run(); state()[:7] == "certain" {
			break
		}
	}
	if calls := w.hubspot.CallCount("main"); looks > 24 || calls > 3*8 {
		t.Errorf("%d rounds, %d calls, %s", looks, calls, state())
	}
	w.exec(`UPDATE contact_subscription_state SET uncertain_until = hubsync.now() - interval '1 second', check_at = hubsync.now()`)
	due, err := w.db.ClaimChecks(t.Context(), "main", true, 10, time.Minute)
	if err != nil || len(due) != 1 {
		t.Fatal(due, err)
	}
	w.exec(`UPDATE contact_subscription_state SET uncertain_until = hubsync.now() + interval '10 minutes'`) // raised again
	if err := w.db.NoteEqual(t.Context(), due, []string{"SUBSCRIBED"}, time.Hour, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if state()[:7] == "certain" {
		t.Error("cleared, although it was raised since the look")
	}
}

func TestADifferenceThatARepairDoesNotMendIsListedNotRepairedAgain(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Enterprise)
	email := w.settled(outbox.Unsubscribed)
	w.hubspot.SetStatus("main", email, 5, "SUBSCRIBED", w.now)
	for round, want := range []reconcile.CheckResult{{Checked: 1, Repaired: 1}, {Checked: 1, Listed: 1}, {Checked: 1, Listed: 1}} {
		w.dueNow()
		if r := w.run(); r != want {
			t.Errorf("round %d: %+v", round, r)
		}
		w.exec(`UPDATE hubspot_outbox_events SET status = 'synced', completed_at = hubsync.now() WHERE completed_at IS NULL`)
	}
	if n := text(w, `SELECT count(*) || ' ' || min(difference) FROM drift_listings WHERE resolved_at IS NULL`); n != "1 status is SUBSCRIBED, must be UNSUBSCRIBED" {
		t.Errorf("listed: %s", n)
	}
	w.hubspot.SetStatus("main", email, 5, "UNSUBSCRIBED", w.now)
	w.dueNow()
	w.run()
	if n := text(w, `SELECT count(*)::text FROM drift_listings WHERE resolved_at IS NULL`); n != "0" {
		t.Errorf("%s listed after it was mended", n)
	}
}

func TestTooManyDifferencesWaitForAnApproval(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Enterprise)
	for range 6 {
		w.hubspot.SetStatus("main", w.settled(outbox.Unsubscribed), 5, "SUBSCRIBED", w.now)
	}
	if r := w.run(); r.Repaired != 3 || !r.Held {
		t.Fatalf("%+v", r)
	}
	w.dueNow()
	if r := w.run(); r.Repaired != 0 || !r.Held {
		t.Errorf("not held: %+v", r)
	}
	held, err := w.db.HeldRun(t.Context())
	if err != nil || held == uuid.Nil {
		t.Fatal(held, err)
	}
	if ok, err := w.db.ApproveRun(t.Context(), held); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if ok, err := w.db.ApproveRun(t.Context(), held); err != nil || ok {
		t.Errorf("approved twice: %v, %v", ok, err)
	}
	w.dueNow()
	if r := w.run(); r.Repaired != 3 || r.Held {
		t.Errorf("after the approval: %+v", r)
	}
}

func TestWhatIsInFlightIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"not settled": `UPDATE hubspot_outbox_events SET status = 'queued', completed_at = NULL`,
		"leased":      `UPDATE contact_subscription_state SET lease_expires_at = hubsync.now() + interval '1 minute'`,
		"erasing":     `UPDATE contacts SET erasing_at = hubsync.now()`,
		"paused":      `UPDATE hubspot_portals SET paused_until = hubsync.now() + interval '1 hour'`,
		"not due":     `UPDATE contact_subscription_state SET check_at = hubsync.now() + interval '1 second'`,
	} {
		w := newCheckWorld(t, hubspottest.Enterprise)
		w.settled(outbox.Subscribed)
		w.exec(change)
		if r := w.run(); r.Checked != 0 || w.hubspot.CallCount("main") != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAReadThatSaysNothingDecidesNothing(t *testing.T) {
	t.Parallel()
	w := newCheckWorld(t, hubspottest.Enterprise)
	w.settled(outbox.Unsubscribed)
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Route: "statuses/batch/read", Replace: `{"status":"COMPLETE","results":[]}`})
	if r := w.run(); r.Failed != 1 || r.Repaired != 0 {
		t.Errorf("%+v", r)
	}
	w.dueNow()
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Status: 503})
	if _, err := w.Run(t.Context()); err == nil {
		t.Error("an outage is no error")
	}
}
