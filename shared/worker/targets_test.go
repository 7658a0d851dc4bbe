package worker_test

import (
	"testing"
	"time"
)

// topics is what the list-valued property holds, tips_since the date.
func (w *world) properties(email string) (topics, since string) {
	w.t.Helper()
	contact, ok := w.hubspot.Contact("main", email)
	if !ok {
		w.t.Fatalf("%s is no contact", email)
	}
	return contact.Properties["topics"], contact.Properties["tips_since"]
}

func TestDatesListsAndSharedEntriesFollowTheDecisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const email = "a@example.com"
	consent := time.Date(2025, 11, 24, 23, 30, 0, 0, time.FixedZone("", -3600)) // the 25th, in UTC
	step := func(state, product string, at time.Time, topics, since string, members int) {
		t.Helper()
		id := w.accept(decision{state: state, email: email, product: product, consent: at})
		w.deliver(id)
		w.expect(state+" "+product, w.event(id), "synced 0 -")
		gotTopics, gotSince := w.properties(email)
		w.expect(state+" "+product+": topics", gotTopics, topics)
		w.expect(state+" "+product+": since", gotSince, since)
		w.expect(state+" "+product+": members", len(w.hubspot.ListMembers("main", "605")), members)
	}
	step("subscribed", "tips", consent, "tips", "2025-11-25", 1)
	step("subscribed", "hints", consent, "tips", "2025-11-25", 1)
	// The other subscription wants the entry and the list: they stay.
	step("unsubscribed", "tips", consent.Add(time.Hour), "tips", "", 1)
	step("unsubscribed", "hints", consent.Add(time.Hour), "", "", 0)
	step("unsubscribed", "hints", consent.Add(2*time.Hour), "", "", 0)
}

// An entry that somebody else put there is none of ours to remove.
func TestOtherEntriesOfAListPropertyStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept(decision{state: "subscribed", email: "a@example.com", product: "hints"})
	w.deliver(id)
	w.hubspot.SetProperty("main", "a@example.com", "topics", "other;tips")
	id = w.accept(decision{state: "unsubscribed", email: "a@example.com", product: "hints"})
	w.deliver(id)
	w.expect("event", w.event(id), "synced 0 -")
	topics, _ := w.properties("a@example.com")
	w.expect("topics", topics, "other")
	// One message that adds for one subscription and removes for another writes both.
	in := w.accept(decision{state: "subscribed", email: "a@example.com", product: "tips"})
	again := w.accept(decision{state: "unsubscribed", email: "a@example.com", product: "hints"})
	w.deliver(in, again)
	topics, _ = w.properties("a@example.com")
	w.expect("topics", topics, "other;tips")
}
