package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/casetest"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/worker"
)

// symptom is something that goes wrong in the field with HubSpot, and how it must end.
type symptom struct {
	name   string
	portal func(*hubspottest.Portal)
	before func(*world) // what HubSpot holds
	events []decision   // of one message; default: a subscribe of a@example.com
	fault  hubspottest.Fault
	// first is the beginning of the first event's line after one delivery; then after
	// the fault has ended and the event was due again, where it was not settled at once.
	first, then string
	reply       int    // default 200
	shows       string // what HubSpot shows in the end for a@example.com
	uncertain   bool
	after       func(*world)
}

const (
	rateLimited = `{"status":"error","errorType":"RATE_LIMIT","policyName":"`
	addressA    = "a@example.com"
)

func limited(policy string) string { return rateLimited + policy + `"}` }

func optOut() []decision { return []decision{{state: "unsubscribed", email: addressA}} }

// subscribeAt is a subscribe whose consent is this old.
func subscribeAt(consent time.Time) []decision {
	return []decision{{state: "subscribed", email: addressA, consent: consent}}
}

func shows(state string, at time.Time) func(*world) {
	return func(w *world) { w.hubspot.SetStatus("main", addressA, newsID, state, at) }
}

func person(email string, additional ...string) string {
	return `{"email":"` + email + `","additionalEmails":["` + strings.Join(additional, `","`) + `"]}`
}

func contacts(people ...string) func(*world) {
	return func(w *world) {
		text := strings.ReplaceAll(`{"contacts":[`+strings.Join(people, ",")+`],"statuses":[]}`, `[""]`, `[]`)
		if err := w.hubspot.LoadState(strings.NewReader(text)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// One row per symptom. The consent is an hour old.
func symptoms() []symptom {
	consent := time.Now().Add(-time.Hour).Truncate(time.Second)
	newer, older := consent.Add(time.Second), consent.Add(-time.Second)
	const gave = "superseded 0 opted_out_in_hubspot"
	return []symptom{
		{name: "200 with empty results, written", fault: hubspottest.Fault{Route: "batch/write", Replace: `{"status":"COMPLETE","results":[]}`}, first: "synced", shows: "SUBSCRIBED"},
		{name: "200 with empty results, not written", fault: hubspottest.Fault{Route: "batch/write", Status: 200, Body: `{"status":"COMPLETE","results":[]}`},
			first: "process_retry 1 unconfirmed", then: "synced", shows: "SUBSCRIBED", uncertain: true},
		{name: "a contact batch answered with nothing", fault: hubspottest.Fault{Route: "batch/upsert", Replace: `{"status":"COMPLETE","results":[]}`},
			first: "process_retry 1 hubspot_unconfirmed", then: "synced", shows: "SUBSCRIBED", uncertain: true},
		{name: "409 with an existing id", before: contacts(person("primary@example.com", addressA)), first: "synced", shows: "SUBSCRIBED", after: func(w *world) {
			c, _ := w.hubspot.Contact("main", addressA)
			w.expect("primary address", c.Email, "primary@example.com")
			w.expect("contacts", len(w.hubspot.Contacts("main")), 1)
		}},
		{name: "a read that misses secondary addresses", portal: func(p *hubspottest.Portal) { p.ReadsMissSecondaryEmail = true }, before: contacts(person("primary@example.com", addressA)),
			first: "synced", shows: "SUBSCRIBED", after: func(w *world) { w.expect("contacts", len(w.hubspot.Contacts("main")), 1) }},
		{name: "INVALID_DATE", portal: func(p *hubspottest.Portal) { p.Properties[0] = hubspottest.Property{Name: "news", Type: "date"} }, reply: 489, first: "dead 1 hubspot_400_invalid_date", shows: "SUBSCRIBED"},
		{name: "PROPERTY_DOESNT_EXIST", portal: func(p *hubspottest.Portal) { p.Properties = p.Properties[1:] }, reply: 489, first: "dead 1 hubspot_400_property_doesnt_exist", shows: "SUBSCRIBED"},
		{name: "PROPERTY_DOESNT_EXIST of an opt-out", portal: func(p *hubspottest.Portal) { p.Properties = p.Properties[1:] }, before: contacts(person(addressA)), events: optOut(),
			reply: 489, first: "dead 1 hubspot_400_property_doesnt_exist", shows: "UNSUBSCRIBED"},
		{name: "INVALID_EMAIL of an address that we found good", events: []decision{{state: "unsubscribed", email: "a@nodot"}}, reply: 489, first: "dead 1 hubspot_400_invalid_email", shows: "nothing"},
		{name: "an unknown subscription type", portal: func(p *hubspottest.Portal) { p.Definitions = p.Definitions[1:] }, events: optOut(), reply: 489, first: "dead 1 hubspot_400", shows: "nothing"},
		{name: "429 of ten seconds", fault: hubspottest.Fault{Status: 429, Body: limited("TEN_SECONDLY_ROLLING")}, reply: 503, first: "process_retry 0 hubspot_429_ten_secondly_rolling", then: "synced", shows: "SUBSCRIBED"},
		{name: "429 of a second", fault: hubspottest.Fault{Status: 429, Body: limited("SECONDLY")}, reply: 503, first: "process_retry 0 hubspot_429_secondly", then: "synced", shows: "SUBSCRIBED"},
		{name: "429 of the day", fault: hubspottest.Fault{Status: 429, Body: limited("DAILY")}, first: "process_retry 0 hubspot_429_daily", then: "synced", shows: "SUBSCRIBED", after: unpaused},
		{name: "429 without a body", fault: hubspottest.Fault{Status: 429, Body: "slow down"}, reply: 503, first: "process_retry 0 hubspot_429", then: "synced", shows: "SUBSCRIBED"},
		{name: "429 under status 500", fault: hubspottest.Fault{Status: 500, Body: `{"category":"RATE_LIMITS"}`}, reply: 503, first: "process_retry 0 hubspot_500_rate_limits", then: "synced", shows: "SUBSCRIBED"},
		{name: "423", fault: hubspottest.Fault{Status: 423}, reply: 503, first: "process_retry 0 hubspot_423", then: "synced", shows: "SUBSCRIBED"},
		{name: "477 for an hour", fault: hubspottest.Fault{Status: 477, Header: map[string]string{"Retry-After": "3600"}}, first: "process_retry 0 hubspot_477", then: "synced", shows: "SUBSCRIBED"},
		{name: "502 with HTML", events: optOut(), fault: hubspottest.Fault{Status: 502, Body: "<html><h1>Bad Gateway"}, reply: 503, first: "process_retry 0 hubspot_502", then: "synced", shows: "UNSUBSCRIBED", uncertain: true},
		{name: "524 after the write took effect", events: optOut(), fault: hubspottest.Fault{ReplaceAs: 524, Replace: "<html>"}, reply: 503, first: "process_retry 0 hubspot_524", then: "synced", shows: "UNSUBSCRIBED", uncertain: true},
		{name: "a lost reply", events: optOut(), fault: hubspottest.Fault{LoseReply: true}, reply: 503, first: "process_retry 0 hubspot", then: "synced", shows: "UNSUBSCRIBED", uncertain: true},
		{name: "an answer that ends in the middle", events: optOut(), fault: hubspottest.Fault{Truncate: true}, reply: 503, first: "process_retry", then: "synced", shows: "UNSUBSCRIBED", uncertain: true},
		{name: "an answer later than the timeout", events: optOut(), fault: hubspottest.Fault{SlowMs: 2600}, reply: 503, first: "process_retry 0", then: "synced", shows: "UNSUBSCRIBED", uncertain: true},
		{name: "401 in the middle", fault: hubspottest.Fault{Route: "contacts", Status: 401}, first: "process_retry 0 hubspot_401", then: "synced", shows: "SUBSCRIBED", after: unpaused},
		{name: "403 on batches only", portal: func(p *hubspottest.Portal) { p.Plan = hubspottest.Professional }, first: "synced", shows: "SUBSCRIBED"},
		{name: "already subscribed", before: shows("SUBSCRIBED", older), first: "synced", shows: "SUBSCRIBED"},
		{name: "already unsubscribed", before: shows("UNSUBSCRIBED", older), events: optOut(), first: "synced", shows: "UNSUBSCRIBED"},
		{name: "a portal-wide opt-out, newer", before: func(w *world) { w.hubspot.OptOutOfAll("main", addressA, 0, newer) }, events: subscribeAt(consent), first: gave, shows: "UNSUBSCRIBED"},
		{name: "a brand-wide opt-out, newer", before: func(w *world) { w.hubspot.OptOutOfAll("main", addressA, 7, newer) }, events: subscribeAt(consent), first: gave, shows: "UNSUBSCRIBED"},
		{name: "another brand's opt-out", before: func(w *world) { w.hubspot.OptOutOfAll("main", addressA, 8, newer) }, events: subscribeAt(consent), first: "synced", shows: "SUBSCRIBED"},
		{name: "an opt-out one second newer", before: shows("UNSUBSCRIBED", newer), events: subscribeAt(consent), first: gave, shows: "UNSUBSCRIBED"},
		{name: "an opt-out equal to the consent", before: shows("UNSUBSCRIBED", consent), events: subscribeAt(consent), first: gave, shows: "UNSUBSCRIBED"},
		{name: "an opt-out one second older", before: shows("UNSUBSCRIBED", older), events: subscribeAt(consent), first: "synced", shows: "SUBSCRIBED"},
		{name: "our own echo, newer than the next consent", before: ownOptOut(time.Time{}), events: subscribeAt(consent), first: "synced", shows: "SUBSCRIBED"},
		{name: "a person's opt-out that took our text", portal: func(p *hubspottest.Portal) { p.NoChangeTakesText = true }, before: optOutOver(newer), events: subscribeAt(consent), first: gave, shows: "UNSUBSCRIBED"},
		{name: "a person's second opt-out after ours", before: ownOptOut(time.Now().Add(time.Minute)), events: subscribeAt(consent), first: gave, shows: "UNSUBSCRIBED"},
	}
}

// ownOptOut lets an opt-out of ours arrive in HubSpot, whose consent is older than every
// row's, and the person opt out again at another time, if one is given.
func ownOptOut(again time.Time) func(*world) {
	return func(w *world) {
		w.deliver(w.accept(decision{state: "unsubscribed", email: addressA, consent: longAgo}))
		if !again.IsZero() {
			w.hubspot.SetStatus("main", addressA, newsID, "SUBSCRIBED", again.Add(-time.Second)) // they changed their mind
			w.hubspot.SetStatus("main", addressA, newsID, "UNSUBSCRIBED", again)
		}
	}
}

// optOutOver lets an opt-out of ours arrive where the person had opted out already.
func optOutOver(at time.Time) func(*world) {
	return func(w *world) {
		w.hubspot.SetStatus("main", addressA, newsID, "UNSUBSCRIBED", at)
		w.deliver(w.accept(decision{state: "unsubscribed", email: addressA, consent: longAgo}))
	}
}

// unpaused checks that the row needed no hand but the portal's.
func unpaused(w *world) {
	w.expect("counted attempts", w.text(`SELECT max(process_attempts)::text FROM hubspot_outbox_events`), 0)
}

func TestSymptoms(t *testing.T) {
	t.Parallel()
	for _, s := range symptoms() {
		casetest.Add()
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(p *hubspottest.Portal, _ *worker.Config) {
				if s.portal != nil {
					s.portal(p)
				}
			})
			s.run(w)
		})
	}
}

func (s symptom) run(w *world) {
	w.t.Helper()
	if s.before != nil {
		s.before(w)
	}
	if s.events == nil {
		s.events = []decision{{state: "subscribed", email: addressA}}
	}
	var ids []uuid.UUID
	for _, d := range s.events {
		ids = append(ids, w.accept(d))
	}
	if s.fault.Status+s.fault.ReplaceAs+s.fault.SlowMs > 0 || s.fault.Replace != "" || s.fault.LoseReply || s.fault.Truncate {
		s.fault.Probability, s.fault.Count = 1, 1
		w.hubspot.SetFaults(s.fault)
	}
	if s.reply == 0 {
		s.reply = 200
	}
	w.expect("reply", w.deliver(ids...).Code, s.reply)
	w.expectPrefix("first", w.event(ids[0]), s.first)
	w.expect("uncertain", w.uncertain(ids[0]), s.uncertain)
	if s.then != "" {
		w.exec(`UPDATE hubspot_portals SET paused_until = NULL`) // its time is over
		w.due(ids[0])
		w.deliver(ids...)
		w.expectPrefix("then", w.event(ids[0]), s.then)
	}
	if s.first == "superseded 0 opted_out_in_hubspot" {
		w.deliver(uuid.MustParse(w.text(`SELECT latest_event_id::text FROM contact_subscription_state`)))
	}
	w.expect("shows", w.status(addressA, newsID), s.shows)
	for _, c := range w.hubspot.Ledger() {
		if strings.Contains(c.Route, "search") {
			w.t.Error("a search lags behind and must not be relied on: " + c.Route)
		}
	}
	if s.after != nil {
		s.after(w)
	}
}

func (w *world) expectPrefix(what, got, want string) {
	w.t.Helper()
	if !strings.HasPrefix(got, want) {
		w.t.Errorf("%s: %q, want %q…", what, got, want)
	}
}

// Addresses that are hard on paths, cases and encodings, in batches and one by one.
func TestAwkwardAddresses(t *testing.T) {
	t.Parallel()
	for _, plan := range []hubspottest.Plan{hubspottest.Enterprise, hubspottest.Professional} {
		w := newWorld(t, func(p *hubspottest.Portal, _ *worker.Config) { p.Plan = plan })
		for _, email := range []string{"a+b@example.com", "o'neil@example.com", "per%cent%20@example.com", "Upper.Case@Example.com", "user@xn--bcher-kva.example.com", "sl/ash?q#f&x=y@example.com"} {
			casetest.Add()
			in := w.accept(decision{state: "subscribed", email: email, consent: longAgo})
			w.expect(email, w.deliver(in).Code, 200)
			w.expect(email, w.event(in), "synced 0 -")
			out := w.accept(decision{state: "unsubscribed", email: email})
			w.deliver(out)
			w.expect(email, w.event(out), "synced 0 -")
			w.expect(email, w.status(email, newsID), "UNSUBSCRIBED")
			contact, ok := w.hubspot.Contact("main", email)
			w.expect(email+": contact", ok, true)
			w.expect(email+": property", contact.Properties["news"], "false")
		}
		w.expect("contacts", len(w.hubspot.Contacts("main")), 6)
	}
}

// One bad row of a hundred costs itself, and the others at most one call each way.
func TestOneBadRowOfAHundred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []uuid.UUID
	for range 99 {
		ids = append(ids, w.accept(decision{state: "subscribed"}))
	}
	bad := w.accept(decision{state: "subscribed", email: "bad@nodot"})
	w.expect("reply", w.deliver(append(ids, bad)...).Code, 200)
	w.expect("synced", w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'synced'`), 99)
	w.expectPrefix("the bad one", w.event(bad), "dead 1 hubspot_400")
	if n := w.hubspot.CallCount("main"); n > 6 {
		t.Errorf("%d calls", n)
	}
}

// Two contacts of ours that are one record of HubSpot's: its id may stand only once in a
// batch.
func TestTheSameRecordTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	contacts(person("a@example.com", "b@example.com"))(w)
	ids := []uuid.UUID{w.accept(decision{state: "subscribed", email: "a@example.com"}), w.accept(decision{state: "subscribed", email: "b@example.com", product: "tips"})}
	for range 3 {
		w.deliver(ids...)
		for _, id := range ids {
			w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE id = $1 AND completed_at IS NULL`, id.String())
		}
	}
	w.expect("a", w.event(ids[0])[:6], "synced")
	w.expect("b", w.event(ids[1])[:6], "synced")
	w.expect("contacts", len(w.hubspot.Contacts("main")), 1)
	c, _ := w.hubspot.Contact("main", "b@example.com")
	w.expect("both properties", c.Properties["news"]+c.Properties["tips"], "truetrue")
	w.expect("primary address", c.Email, "a@example.com")
}
