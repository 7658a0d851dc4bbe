package worker_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/casetest"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/worker"
)

var longAgo = time.Date(2025, 11, 24, 12, 0, 0, 0, time.UTC)

func TestASubscribeArrivesWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "subscribed", email: "Ada+News@Example.com"})
	w.expect("reply", w.deliver(id).Code, 200)
	w.expect("event", w.event(id), "synced 0 -")
	w.expect("preference", w.status("ada+news@example.com", newsID), "SUBSCRIBED")
	contact, ok := w.hubspot.Contact("main", "ada+news@example.com")
	if !ok || contact.Properties["news"] != "true" || contact.Properties["hs_all_assigned_business_unit_ids"] != "7" || contact.Properties["external_contact_id"] != "key-ada+news-example.com" {
		t.Errorf("contact %+v", contact)
	}
	w.expect("state", w.text(`SELECT applied_sequence || ' ' || applied_state || ' ' || fence || ' ' || (lease_expires_at IS NULL)::text || ' ' || hubspot_status || ' ' || (check_at > now())::text FROM contact_subscription_state`), "1 subscribed 1 true SUBSCRIBED true")
	w.expect("request", w.text(`SELECT sync_status FROM subscription_requests`), "synced")
	w.expect("ledger", w.text(`SELECT string_agg(operation || ':' || outcome, ' ' ORDER BY operation) FROM hubspot_operation_receipts`), "contact_upsert:confirmed preference:REQUESTED_CHANGE_OCCURRED segment:member")
	calls := len(w.hubspot.Ledger())
	w.expect("twin's reply", w.deliver(id).Code, 200)
	w.expect("calls of a twin", len(w.hubspot.Ledger())-calls, 0)
}

func TestAHundredTravelInFiveCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids, optOuts []uuid.UUID
	for range 100 {
		ids = append(ids, w.accept(decision{state: "subscribed"}))
		optOuts = append(optOuts, w.accept(decision{state: "unsubscribed", product: "plain"}))
	}
	w.expect("reply", w.deliver(ids...).Code, 200)
	w.expect("calls for 100 subscribes: with a list", len(w.hubspot.Ledger()), 5)
	w.expect("synced", w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'synced'`), 100)
	w.deliver(optOuts...)
	w.expect("calls for 100 opt-outs", len(w.hubspot.Ledger())-5, 1)
	w.expect("synced", w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'synced'`), 200)
	w.expect("contacts", len(w.hubspot.Contacts("main")), 100)
}

func TestListsFollowTheDecisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deliver(w.accept(decision{state: "subscribed", email: "a@example.com", consent: longAgo}))
	contact, _ := w.hubspot.Contact("main", "a@example.com")
	w.expect("member", w.hubspot.ListMembers("main", "604"), []string{contact.ID})
	// Another subscription of the same contact wants the same list.
	w.exec(`UPDATE brand_subscription_routes SET snapshot = jsonb_set(snapshot, '{targets}', '[{"kind":"MANUAL_SEGMENT","listId":"604","required":true}]') WHERE product_id = 'plain'`)
	other := w.accept(decision{state: "subscribed", email: "a@example.com", product: "plain", consent: longAgo})
	w.deliver(other)
	w.expect("the other", w.event(other), "synced 0 -")
	w.deliver(w.accept(decision{state: "unsubscribed", email: "a@example.com"}))
	w.expect("stays while another wants it", w.hubspot.ListMembers("main", "604"), []string{contact.ID})
	w.deliver(w.accept(decision{state: "unsubscribed", email: "a@example.com", product: "plain"}))
	w.expect("leaves", len(w.hubspot.ListMembers("main", "604")), 0)
	stranger := w.accept(decision{state: "unsubscribed", email: "s@example.com"})
	w.deliver(stranger)
	w.expect("a stranger", w.event(stranger), "synced 0 -")
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, Route: "memberships", Status: 503})
	busy := w.accept(decision{state: "subscribed", email: "c@example.com"})
	w.deliver(busy)
	w.expect("an optional list that only has to wait", strings.HasPrefix(w.event(busy), "process_retry 0"), true)
	w.due(busy)
	w.deliver(busy)
	w.expect("then", len(w.hubspot.ListMembers("main", "604")), 1)
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Route: "memberships", Status: 400})
	optional := w.accept(decision{state: "subscribed", email: "b@example.com"})
	required := w.accept(decision{state: "subscribed", email: "b@example.com", product: "plain"})
	w.deliver(optional)
	w.deliver(required)
	w.expect("an optional list", w.event(optional), "synced 0 -")
	w.expect("a required one", strings.HasPrefix(w.event(required), "dead 1 hubspot_400"), true)
}

func TestMessagesThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "subscribed"})
	good := `{"eventId":"` + id.String() + `"}`
	unsigned := httptest.NewRecorder()
	w.handler.ServeHTTP(unsigned, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(good)))
	for name, tc := range map[string]struct {
		got  *httptest.ResponseRecorder
		want int
	}{
		"no signature":    {unsigned, 401},
		"another subject": {w.post("/", good, subject+"/"), 401},
		"malformed":       {w.post("/", `{"eventId":1}`, subject), 489},
		"empty":           {w.post("/", ``, subject), 489},
		"oversize":        {w.post("/", strings.Repeat(" ", 70<<10), subject), 413},
		"another path":    {w.post("/other", good, subject), 404},
		"failed, as /":    {w.post("/failed", good, subject), 401},
	} {
		casetest.Add()
		w.expect(name, tc.got.Code, tc.want)
		w.expect(name+": not retryable", tc.got.Header().Get("Upstash-NonRetryable-Error") == "true", tc.want == 489)
	}
	r := httptest.NewRecorder()
	w.handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/", nil))
	w.expect("GET", r.Code, 405)
	w.expect("untouched", w.event(id), "pending 0 -")
	w.expect("calls", len(w.hubspot.Ledger()), 0)
	w.expect("the seed's form", w.post("/", good, subject).Code, 200)
	w.expect("event", w.event(id), "synced 0 -")
	w.expect("unknown ids", w.deliver(uuid.New(), uuid.New()).Code, 200)
}

func TestOlderBusyAndPausedEventsMakeNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.accept(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	second := w.accept(decision{state: "unsubscribed", email: "a@example.com"})
	w.claim(second)
	w.expect("busy with itself", w.deliver(second).Code, 200)
	w.expect("its twin in flight", w.event(second), "processing 0 -")
	w.expect("older", w.deliver(first).Code, 200)
	w.expect("older", w.event(first), "superseded 0 -")
	w.expect("points on", w.text(`SELECT (superseded_by = $2)::text FROM hubspot_outbox_events WHERE id = $1`, first.String(), second.String()), true)
	third := w.accept(decision{state: "subscribed", email: "a@example.com", consent: time.Now()})
	w.expect("behind another", w.deliver(third).Code, 200)
	w.expect("behind another", w.event(third), "process_retry 0 -")
	w.expect("due in a second, in a new generation", w.text(`SELECT (next_attempt_at BETWEEN now() AND now() + interval '1 second')::text || generation FROM hubspot_outbox_events WHERE id = $1`, third.String()), "true2")
	paused := w.accept(decision{state: "subscribed"})
	if err := w.db.PausePortal(t.Context(), "main", time.Now().Add(time.Hour), "test", false); err != nil {
		t.Fatal(err)
	}
	w.deliver(paused)
	w.expect("paused", w.event(paused), "process_retry 0 -")
	w.expect("calls", len(w.hubspot.Ledger()), 0)
	optOut := w.accept(decision{state: "unsubscribed"})
	w.deliver(optOut)
	w.expect("an opt-out goes on", w.event(optOut), "synced 0 -")
}

// Waiting is nobody's fault: no attempt is counted, QStash is asked to come back, and the
// row's own return lies behind QStash's.
func TestShortTroubleIsAnswered503AndCountsNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]hubspottest.Fault{
		"429":  {Status: 429, Body: `{"status":"error","errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}`, Header: map[string]string{"Retry-After": "3"}},
		"423":  {Status: 423},
		"502":  {Status: 502, Body: "<html>"},
		"524":  {Status: 524},
		"500":  {Status: 500, Body: `{"category":"RATE_LIMITS"}`},
		"lost": {LoseReply: true},
	} {
		casetest.Add()
		w := newWorld(t)
		id := w.accept(decision{state: "unsubscribed", product: "plain"})
		fault.Probability, fault.Count = 1, 2
		w.hubspot.SetFaults(fault)
		answer := w.deliver(id)
		after, err := strconv.Atoi(answer.Header().Get("Retry-After"))
		if answer.Code != 503 || err != nil || after < 1 || after > 60 {
			t.Errorf("%s: %d, Retry-After %q", name, answer.Code, answer.Header().Get("Retry-After"))
		}
		if got := w.text(`SELECT status || ' ' || process_attempts || ' ' || (next_attempt_at > now() + $2::int * interval '1 second')::text FROM hubspot_outbox_events WHERE id = $1`, id.String(), after); got != "process_retry 0 true" {
			t.Errorf("%s: %s", name, got)
		}
		w.due(id)
		w.expect(name+", retries used up", w.retry(5, id).Code, 200)
	}
}

// Hours without HubSpot must not become a storm of retries: after three messages without
// an answer a probe goes out now and then, and each success doubles what may follow.
func TestAnOutageOpensThePortalsBreaker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Status: 503})
	breaker := func() string {
		return w.text(`SELECT coalesce(max(CASE WHEN open_until > now() THEN 'open' ELSE 'probing ' || room END), 'none') FROM service_breakers`)
	}
	var ids []uuid.UUID
	for i := range 5 {
		ids = append(ids, w.accept(decision{state: "unsubscribed", product: "plain"}))
		w.deliver(ids[i])
		want := "none"
		if i >= 2 {
			want = "open"
		}
		w.expect("after messages without an answer", breaker(), want)
	}
	w.expect("calls", w.hubspot.CallCount("main"), 3)
	w.expect("what came while it is open waits, even an opt-out", w.event(ids[4]), "process_retry 0 -")
	w.hubspot.SetFaults()
	w.exec(`UPDATE service_breakers SET open_until = now()`)
	w.reconnect() // another process, which has not cached the portal's row
	w.due(ids[4])
	w.deliver(ids[4])
	w.expect("the probe", w.event(ids[4]), "synced 0 -")
	w.expect("after a success", breaker(), "probing 2")
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Status: 503})
	w.due(ids[3])
	w.deliver(ids[3])
	w.expect("one failure while it recovers", breaker(), "open")
}

func TestPausedBrandsAndLanesMakeNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, out := w.accept(decision{state: "subscribed"}), w.accept(decision{state: "unsubscribed", product: "plain"})
	if err := w.db.SetPause(t.Context(), postgres.Pause{BrandID: "acme", Lane: postgres.EveryLane, Until: time.Now().Add(time.Hour), Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	w.deliver(in, out) // published before the pause
	w.expect("the subscribe", w.event(in), "process_retry 0 -")
	w.expect("the opt-out goes on", w.event(out), "synced 0 -")
	w.expect("calls", w.hubspot.CallCount("main"), 1)
}

func TestBudgetExhaustedWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *hubspottest.Portal, c *worker.Config) { c.RateScale = 0.01 }) // 10 calls in 10 s
	var last *httptest.ResponseRecorder
	for range 14 {
		last = w.deliver(w.accept(decision{state: "unsubscribed", product: "plain"}))
	}
	if last.Code != 503 || last.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", last.Code, last.Header())
	}
	w.expect("attempts", w.text(`SELECT max(process_attempts)::text FROM hubspot_outbox_events`), 0)
	w.expect("leases released", w.text(`SELECT count(*)::text FROM contact_subscription_state WHERE lease_expires_at IS NOT NULL`), 0)
	if n := len(w.hubspot.Ledger()); n > 10 {
		t.Errorf("%d calls over a limit of 10", n)
	}
}

func TestARefusedTokenAndADailyLimitPauseThePortal(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]hubspottest.Fault{
		"unauthorized": {Status: 401},
		"daily_limit":  {Status: 429, Body: `{"errorType":"RATE_LIMIT","policyName":"DAILY"}`},
	} {
		casetest.Add()
		w := newWorld(t)
		id := w.accept(decision{state: "unsubscribed"})
		fault.Probability = 1
		w.hubspot.SetFaults(fault)
		w.deliver(id)
		w.expect(name, w.text(`SELECT status || ' ' || process_attempts FROM hubspot_outbox_events`), "process_retry 0")
		w.expect(name, w.text(`SELECT (paused_until > now())::text || pause_opt_outs::text || split_part(pause_reason, ':', 1) FROM hubspot_portals`), "truetrue"+name)
		if name == "daily_limit" {
			w.expect("until midnight in Berlin", w.text(`SELECT to_char(paused_until AT TIME ZONE 'Europe/Berlin', 'HH24:MI') FROM hubspot_portals`), "00:00")
		}
	}
}

func TestWithoutBatchPreferencesSingleCallsDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(p *hubspottest.Portal, _ *worker.Config) { p.Plan = hubspottest.Professional })
	ids := []uuid.UUID{w.accept(decision{state: "unsubscribed"}), w.accept(decision{state: "subscribed"}), w.accept(decision{state: "subscribed"})}
	w.expect("reply", w.deliver(ids...).Code, 200)
	for _, id := range ids {
		w.expect("event", w.event(id), "synced 0 -")
	}
	before := len(w.hubspot.Ledger())
	w.deliver(w.accept(decision{state: "unsubscribed", product: "plain"}))
	w.expect("remembered: calls", len(w.hubspot.Ledger())-before, 1)
}

// A bad property must not block an opt-out, nor the other 99.
func TestABadPropertyCostsItsEventOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []uuid.UUID
	for range 20 {
		ids = append(ids, w.accept(decision{state: "subscribed"}))
	}
	bad := w.accept(decision{state: "unsubscribed", email: "bad@example.com"})
	w.exec(`UPDATE hubspot_outbox_events SET payload = jsonb_set(payload, '{targets,0,unsubscribed}', '"maybe"') WHERE id = $1`, bad.String())
	if err := w.hubspot.LoadState(strings.NewReader(`{"contacts":[{"email":"bad@example.com","additionalEmails":[]}],"statuses":[]}`)); err != nil {
		t.Fatal(err)
	}
	w.deliver(append(ids, bad)...)
	w.expect("the bad one", strings.HasPrefix(w.event(bad), "dead 1 hubspot_400"), true)
	w.expect("its opt-out", w.status("bad@example.com", newsID), "UNSUBSCRIBED")
	w.expect("the others", w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'synced'`), 20)
	alone := w.accept(decision{state: "subscribed"})
	w.exec(`UPDATE hubspot_outbox_events SET payload = jsonb_set(payload, '{targets,0,subscribed}', '"maybe"') WHERE id = $1`, alone.String())
	answer := w.deliver(alone)
	w.expect("alone and dead", answer.Code, 489)
	w.expect("committed before", strings.HasPrefix(w.event(alone), "dead"), true)
}

func TestAContradictionStillOptsOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "unsubscribed", email: "a@example.com"})
	w.exec(`UPDATE hubspot_outbox_events SET payload = jsonb_set(payload, '{targets,0,kind}', '"WORKFLOW"') WHERE id = $1`, id.String())
	w.deliver(id)
	w.expect("event", w.event(id), "dead 1 mapping_contradiction")
	w.expect("opted out", w.status("a@example.com", newsID), "UNSUBSCRIBED")
}

func TestAnAnswerThatSaysNothingIsNoSuccess(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]hubspottest.Fault{
		"html":      {Replace: `<html>`},
		"truncated": {Truncate: true},
	} {
		casetest.Add()
		w := newWorld(t)
		id := w.accept(decision{state: "unsubscribed", product: "plain"})
		fault.Probability, fault.Count = 1, 1
		w.hubspot.SetFaults(fault)
		w.deliver(id)
		w.expect(name, strings.HasPrefix(w.event(id), "process_retry"), true)
		w.expect(name+": uncertain", w.uncertain(id), true)
		w.due(id)
		w.deliver(id)
		w.expect(name+", then", strings.HasPrefix(w.event(id), "synced"), true)
	}
}

// An input that the answer names nowhere is looked up at once: confirmed where it took
// effect, written again where it did not.
func TestWhatAnAnswerDoesNotNameIsReadBack(t *testing.T) {
	t.Parallel()
	const empty = `{"status":"COMPLETE","results":[]}`
	for name, tc := range map[string]struct {
		fault     hubspottest.Fault
		want      string
		uncertain bool
	}{
		"it took effect": {hubspottest.Fault{Replace: empty}, "synced 0 -", false},
		"it did not":     {hubspottest.Fault{Status: 200, Body: empty}, "process_retry 1 unconfirmed", true},
	} {
		casetest.Add()
		w := newWorld(t)
		id := w.accept(decision{state: "unsubscribed", product: "plain"})
		tc.fault.Probability, tc.fault.Count, tc.fault.Route = 1, 1, "batch/write"
		w.hubspot.SetFaults(tc.fault)
		w.deliver(id)
		w.expect(name, w.event(id), tc.want)
		w.expect(name+": uncertain", w.uncertain(id), tc.uncertain)
		w.expect(name+": calls", w.hubspot.CallCount("main"), 2)
		w.due(id)
		w.deliver(id)
		w.expect(name+", then", strings.HasPrefix(w.event(id), "synced"), true)
		w.expect(name, w.status("p1@example.com", 6), "UNSUBSCRIBED")
	}
}

// An opt-out makes no contact, so that its property has to come with whoever makes it.
func TestANewContactShowsWhatItOptedOutOfBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out := w.accept(decision{state: "unsubscribed", email: "a@example.com"})
	w.deliver(out)
	in := w.accept(decision{state: "subscribed", email: "a@example.com", product: "tips"})
	w.deliver(in)
	w.expect("subscribed", w.event(in), "synced 0 -")
	contact, _ := w.hubspot.Contact("main", "a@example.com")
	w.expect("tips", contact.Properties["tips"], "true")
	w.expect("news, opted out of before", contact.Properties["news"], "false")
}

// Its property would be lost: the maker looked before the opt-out came.
func TestAnOptOutWaitsForTheContactThatIsMadeJustNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out := w.accept(decision{state: "unsubscribed", email: "a@example.com"})
	w.exec(`INSERT INTO contact_portal_records (contact_key, portal_id, creating_until) VALUES ('key-a-example.com', 'main', now() + interval '45 seconds')`)
	w.deliver(out)
	w.expect("event", w.event(out), "process_retry 0 contact_busy")
	w.expect("opted out all the same", w.status("a@example.com", newsID), "UNSUBSCRIBED")
	w.exec(`UPDATE contact_portal_records SET creating_until = now() - interval '1 second'`)
	w.due(out)
	w.deliver(out)
	w.expect("event", w.event(out), "synced 0 contact_busy")
}

func TestAContactThatHubSpotKnowsByASecondaryAddressIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.hubspot.LoadState(strings.NewReader(`{"contacts":[{"email":"old@example.com","additionalEmails":["new@example.com"]}],"statuses":[]}`)); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		contact, _ := w.hubspot.Contact("main", "new@example.com")
		if contact.Email != "old@example.com" || contact.Properties["external_contact_id"] != "key-new-example.com" || len(w.hubspot.Contacts("main")) != 1 {
			t.Errorf("%s: %+v of %d", what, contact, len(w.hubspot.Contacts("main")))
		}
	}
	w.deliver(w.accept(decision{state: "subscribed", email: "new@example.com", consent: longAgo}))
	check("adopted")
	w.deliver(w.accept(decision{state: "unsubscribed", email: "new@example.com"}))
	check("updated by an opt-out")
	contact, _ := w.hubspot.Contact("main", "new@example.com")
	w.expect("property", contact.Properties["news"], "false")
}

// Decision 0002: while one message makes a contact, another one's upsert would match the
// adopted record and change its primary address.
func TestTwoMessagesOfOneContactDoNotMakeItBoth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.db.BeginContacts(t.Context(), "main", []string{"key-a-example.com"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	id := w.accept(decision{state: "subscribed", email: "a@example.com"})
	w.deliver(id)
	w.expect("waits", w.event(id), "process_retry 0 contact_busy")
	w.expect("the consent is written all the same", w.status("a@example.com", newsID), "SUBSCRIBED")
	w.exec(`UPDATE contact_portal_records SET creating_until = now()`)
	w.due(id)
	w.deliver(id)
	w.expect("then", w.event(id), "synced 0 contact_busy")
}

func TestAnOptOutMakesNoContactOfAStranger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "unsubscribed", email: "stranger@example.com"})
	w.deliver(id)
	w.expect("event", w.event(id), "synced 0 -")
	w.expect("contacts", len(w.hubspot.Contacts("main")), 0)
}

func TestConsentAgainstHubSpot(t *testing.T) {
	t.Parallel()
	consent := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, tc := range map[string]struct {
		before func(w *world)
		want   string
	}{
		"a second newer": {func(w *world) {
			w.hubspot.SetStatus("main", "a@example.com", newsID, "UNSUBSCRIBED", consent.Add(time.Second))
		}, "UNSUBSCRIBED"},
		"equal": {func(w *world) { w.hubspot.SetStatus("main", "a@example.com", newsID, "UNSUBSCRIBED", consent) }, "UNSUBSCRIBED"},
		"a second older": {func(w *world) {
			w.hubspot.SetStatus("main", "a@example.com", newsID, "UNSUBSCRIBED", consent.Add(-time.Second))
		}, "SUBSCRIBED"},
		"portal-wide, newer": {func(w *world) { w.hubspot.OptOutOfAll("main", "a@example.com", 0, consent.Add(time.Second)) }, "UNSUBSCRIBED"},
		"brand-wide, newer":  {func(w *world) { w.hubspot.OptOutOfAll("main", "a@example.com", 7, consent.Add(time.Second)) }, "UNSUBSCRIBED"},
		"another brand's":    {func(w *world) { w.hubspot.OptOutOfAll("main", "a@example.com", 8, consent.Add(time.Second)) }, "SUBSCRIBED"},
		"portal-wide, older": {func(w *world) { w.hubspot.OptOutOfAll("main", "a@example.com", 0, consent.Add(-time.Second)) }, "SUBSCRIBED"},
		"already subscribed": {func(w *world) { w.hubspot.SetStatus("main", "a@example.com", newsID, "SUBSCRIBED", consent) }, "SUBSCRIBED"},
		"nothing there":      {func(*world) {}, "SUBSCRIBED"},
		"another product's":  {func(w *world) { w.hubspot.SetStatus("main", "a@example.com", 6, "UNSUBSCRIBED", time.Now()) }, "SUBSCRIBED"},
	} {
		casetest.Add()
		w := newWorld(t)
		tc.before(w)
		id := w.accept(decision{state: "subscribed", email: "a@example.com", consent: consent})
		w.deliver(id)
		inbound := w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'pending' AND lane = 0`)
		if tc.want == "SUBSCRIBED" {
			w.expect(name, w.event(id), "synced 0 -")
			w.expect(name, w.status("a@example.com", newsID), tc.want)
			w.expect(name+": inbound", inbound, 0)
			continue
		}
		w.expect(name, w.event(id), "superseded 0 opted_out_in_hubspot")
		w.expect(name+": inbound", inbound, 1)
		for _, c := range w.hubspot.Ledger() {
			for _, write := range c.Writes {
				t.Errorf("%s: %s was sent", name, write.State)
			}
		}
		next, err := uuid.Parse(w.text(`SELECT latest_event_id::text FROM contact_subscription_state`))
		if err != nil {
			t.Fatal(err)
		}
		w.deliver(next)
		w.expect(name+", in the end", w.status("a@example.com", newsID), tc.want)
		w.expect(name, w.text(`SELECT desired_state || ' ' || latest_sequence || ' ' || applied_sequence FROM contact_subscription_state`), "unsubscribed 2 2")
	}
}

func TestOurOwnOptOutIsNoObstacle(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"by its stamp": false, "by its marker, after a lost reply": true} {
		w := newWorld(t)
		first := w.accept(decision{state: "unsubscribed", email: "a@example.com", consent: longAgo})
		if lost {
			w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, LoseReply: true})
		}
		w.deliver(first)
		w.due(first)
		w.deliver(first)
		w.expect(name, strings.HasPrefix(w.event(first), "synced"), true)
		second := w.accept(decision{state: "subscribed", email: "a@example.com", consent: longAgo.Add(time.Hour)}) // before our write, by HubSpot's clock
		w.deliver(second)
		w.expect(name, w.event(second), "synced 0 -")
		w.expect(name, w.status("a@example.com", newsID), "SUBSCRIBED")
	}
}

func TestAReadThatDoesNotNameAnAddressFailsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := []uuid.UUID{w.accept(decision{state: "subscribed", email: "a@example.com"}), w.accept(decision{state: "unsubscribed", email: "b@example.com"})}
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Route: "statuses/batch/read", Replace: `{"status":"COMPLETE","results":[]}`})
	w.deliver(ids...)
	w.expect("subscribe", strings.HasPrefix(w.event(ids[0]), "process_retry 1"), true)
	w.expect("never sent", w.status("a@example.com", newsID), "nothing")
	w.expect("the opt-out", w.event(ids[1]), "synced 0 -")
}

func TestAnOptOutBetweenReadAndWriteIsPutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "subscribed", email: "a@example.com"})
	// The read sees nothing: it is answered before the person's opt-out.
	w.hubspot.SetStatus("main", "a@example.com", newsID, "UNSUBSCRIBED", time.Now())
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, Route: "statuses/batch/read",
		Replace: `{"status":"COMPLETE","results":[{"subscriberIdString":"a@example.com","subscriptionId":2239644020,"status":"NOT_SPECIFIED","channel":"EMAIL"}]}`})
	w.deliver(id)
	w.expect("event", w.event(id), "superseded 0 opted_out_in_hubspot")
	next, err := uuid.Parse(w.text(`SELECT latest_event_id::text FROM contact_subscription_state`))
	if err != nil {
		t.Fatal(err)
	}
	w.deliver(next)
	w.expect("put back", w.status("a@example.com", newsID), "UNSUBSCRIBED")
	if !strings.Contains(w.logs.String(), "overtook an opt-out") {
		t.Error("no alarm")
	}
}

func TestAFailureCallbackRequeuesOnlyWhatIsQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	queued, settled := w.accept(decision{state: "subscribed"}), w.accept(decision{state: "unsubscribed"})
	w.deliver(settled)
	w.exec(`UPDATE hubspot_outbox_events SET status = 'queued', qstash_message_id = 'm1', next_attempt_at = now() + interval '10 minutes' WHERE id = $1`, queued.String())
	source := `{"eventIds":["` + queued.String() + `","` + settled.String() + `"]}`
	w.expect("another message's", w.post("/failed", failureBody(source, "m0"), subject+"/failed").Code, 200)
	w.expect("queued", w.event(queued), "queued 0 -")
	for range 2 {
		w.expect("reply", w.post("/failed", failureBody(source, "m1"), subject+"/failed").Code, 200)
		w.expect("queued", w.event(queued), "process_retry 0 delivery_failed")
		w.expect("settled", w.event(settled), "synced 0 -")
	}
	w.expect("generation", w.text(`SELECT generation::text FROM hubspot_outbox_events WHERE id = $1`, queued.String()), 2)
	w.expect("nonsense", w.post("/failed", `{}`, subject+"/failed").Code, 489)
}

func TestNoAddressOrConsentTextInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 0.5, Status: 400}, hubspottest.Fault{Probability: 0.5, LoseReply: true})
	for range 10 {
		w.deliver(w.accept(decision{state: "subscribed", email: "canary.4711@example.com"}))
	}
	for _, secret := range []string{"canary.4711", "canary%2E4711", "Y2FuYXJ5", "form v3", "Bearer"} {
		if strings.Contains(w.logs.String(), secret) || strings.Contains(w.text(`SELECT string_agg(coalesce(last_error_summary, '') || payload::text, '') FROM hubspot_outbox_events`), secret) {
			t.Errorf("%q shows", secret)
		}
	}
}

// ✦ Receipts are a ledger, never a reason to skip: between two tries a person may have
// opted out, so that a retry reads again.
func TestStarARetryReadsConsentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "subscribed", email: "a@example.com"})
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, Route: "batch/upsert", Status: 503})
	w.deliver(id)
	w.expect("the preference is confirmed", w.text(`SELECT count(*)::text FROM hubspot_operation_receipts WHERE operation = 'preference'`), 1)
	w.hubspot.SetStatus("main", "a@example.com", newsID, "UNSUBSCRIBED", time.Now().Add(time.Second))
	w.due(id)
	w.deliver(id)
	w.expect("the opt-out stays", w.status("a@example.com", newsID), "UNSUBSCRIBED")
	w.expect("event", w.event(id), "superseded 0 opted_out_in_hubspot")
}

// ✦ A takeover raises uncertainty in the claim's own transaction: the lost worker's call
// may still land, whatever becomes of this claim. And the event travels alone.
func TestStarATakeoverRaisesUncertaintyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.accept(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	w.claim(first)
	w.lose(first)
	second := w.accept(decision{state: "unsubscribed", email: "a@example.com"})
	claims := w.claim(second) // whatever event held the lease
	w.expect("takeover", claims[0].Takeover, true)
	w.expect("uncertain before any call", w.uncertain(second), true)
	w.expect("travels alone", w.text(`SELECT travels_alone::text FROM hubspot_outbox_events WHERE id = $1`, second.String()), true)
	w.expect("a look is due", w.text(`SELECT (check_at <= now() + interval '1 minute')::text FROM contact_subscription_state`), true)
	w.expect("another's lease is no attempt of this event", w.event(second), "processing 0 -")
	w.lose(second)
	w.claim(second)
	w.expect("its own lost worker is", w.event(second), "processing 1 -")
}

// ✦ An unknown outcome raises uncertainty, even if a second try succeeds.
func TestStarAnUnknownOutcomeRaisesUncertainty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "unsubscribed", product: "plain"})
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, LandLateMs: 300})
	w.deliver(id)
	w.expect("uncertain", w.uncertain(id), true)
	w.due(id)
	w.deliver(id)
	w.expect("synced", strings.HasPrefix(w.event(id), "synced"), true)
	w.expect("still uncertain", w.uncertain(id), true)
	w.hubspot.Wait()
}

// ✦ A commit that touches no row raises uncertainty without the fence: its calls were
// made, and nobody else knows of them.
func TestStarALostClaimRaisesUncertaintyAndWritesNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "subscribed", email: "a@example.com"})
	stale := w.claim(id)[0]
	w.lose(id)
	w.claim(id)
	w.exec(`UPDATE contact_subscription_state SET uncertain_until = NULL, check_at = NULL`) // L has passed and a look has cleared it
	stamp := outbox.Stamp{At: time.Now(), Attempt: outbox.Attempt{Event: stale.EventID, Fence: stale.Fence}}
	settled, err := w.db.SettleEvents(t.Context(), []postgres.Settlement{{Claim: stale, Outcome: postgres.OutcomeSynced, Shown: "SUBSCRIBED", OwnOptOut: stamp}}, nil, settle)
	if err != nil || len(settled) != 1 || settled[0].Held {
		t.Fatalf("%+v, %v", settled, err)
	}
	w.expect("uncertain", w.uncertain(id), true)
	w.expect("a look is due", w.text(`SELECT (check_at <= now() + interval '1 minute')::text FROM contact_subscription_state`), true)
	w.expect("nothing applied, nothing released", w.text(`SELECT applied_sequence || ' ' || (lease_expires_at IS NOT NULL)::text || ' ' || fence FROM contact_subscription_state`), "0 true 2")
	w.expect("the new holder's event", w.event(id), "processing 1 -")
	w.expect("the echo's time is a fact", w.text(`SELECT (own_opt_out_stamp IS NOT NULL) || ' ' || own_opt_out_fence FROM contact_subscription_state`), "true 1")
}

// ✦ Only the holder releases a lease: a superseded claim leaves it, so that the next one
// is a takeover.
func TestStarASupersededClaimLeavesTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.accept(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	w.claim(first)
	w.lose(first)
	second := w.accept(decision{state: "unsubscribed", email: "a@example.com"})
	w.deliver(first)
	w.expect("superseded", w.event(first), "superseded 0 -")
	w.expect("the lease", w.text(`SELECT (lease_event_id = $1)::text FROM contact_subscription_state`, first.String()), true)
	w.expect("so it is a takeover", w.claim(second)[0].Takeover, true)
}

func TestAnEventWhoseWorkersDieIsDeadAfterItsCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	poison := w.accept(decision{state: "subscribed"})
	for range 8 {
		w.claim(poison)
		w.lose(poison)
	}
	claims := w.claim(poison)
	w.expect("verdict", claims[0].Verdict, postgres.VerdictExhausted)
	w.expect("event", w.event(poison), "dead 8 worker_lost")
	w.expect("request", w.text(`SELECT sync_status || ' ' || status_reason FROM subscription_requests`), "dead worker_lost")
}

func TestACommitThatSeesANewerDecisionMakesItDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.accept(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	claim := w.claim(first)[0]
	second := w.accept(decision{state: "unsubscribed", email: "a@example.com"})
	w.deliver(second)
	w.expect("behind", w.event(second), "process_retry 0 -")
	if _, err := w.db.SettleEvents(t.Context(), []postgres.Settlement{{Claim: claim, Outcome: postgres.OutcomeSynced}}, nil, settle); err != nil {
		t.Fatal(err)
	}
	w.expect("due at once", w.text(`SELECT (next_attempt_at <= now())::text FROM hubspot_outbox_events WHERE id = $1`, second.String()), true)
	w.expect("a retry with a newer decision is superseded instead", func() string {
		w.deliver(second)
		third := w.accept(decision{state: "subscribed", email: "a@example.com", consent: time.Now()})
		c := w.claim(third)[0]
		w.accept(decision{state: "unsubscribed", email: "a@example.com"})
		if _, err := w.db.SettleEvents(t.Context(), []postgres.Settlement{{Claim: c, Outcome: postgres.OutcomeRetry, Delay: time.Minute}}, nil, settle); err != nil {
			t.Fatal(err)
		}
		return w.event(third)
	}(), "superseded 0 -")
}
