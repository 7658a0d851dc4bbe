package worker_test

import (
	"strings"
	"testing"
	"time"
)

// settled delivers a decision and expects it to be synced.
func (w *world) settled(d decision) {
	w.t.Helper()
	id := w.accept(d)
	for range 3 { // an adoption may need a second look
		w.deliver(id)
		w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE id = $1 AND completed_at IS NULL`, id.String())
	}
	w.expectPrefix(d.state+" "+d.email, w.event(id), "synced")
}

func (w *world) conflicts() string {
	return w.text(`SELECT coalesce(string_agg(kind, ' ' ORDER BY kind), '') FROM contact_conflicts`)
}

func TestAMergedRecordIsWrittenToByWhicheverKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settled(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	w.settled(decision{state: "subscribed", email: "b@example.com", product: "tips", consent: longAgo})
	w.hubspot.Merge("main", "a@example.com", "b@example.com")
	w.settled(decision{state: "unsubscribed", email: "b@example.com", product: "tips"})
	w.settled(decision{state: "subscribed", email: "b@example.com", product: "tips", consent: time.Now()})
	w.settled(decision{state: "unsubscribed", email: "a@example.com"})
	w.expect("contacts", len(w.hubspot.Contacts("main")), 1)
	c, _ := w.hubspot.Contact("main", "a@example.com")
	w.expect("primary", c.Email, "a@example.com")
	w.expect("properties", c.Properties["news"]+" "+c.Properties["tips"], "false true")
	w.expect("a", w.status("a@example.com", newsID), "UNSUBSCRIBED")
	w.expect("b", w.status("b@example.com", 8), "SUBSCRIBED")
}

// The address went to another record: ours is written by key, the other one's is not
// taken.
func TestAnAddressThatMovedToAnotherRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	contacts(person("other@example.com"))(w)
	w.settled(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	w.hubspot.ChangeEmail("main", "a@example.com", "gone@example.com", false)
	w.hubspot.ChangeEmail("main", "other@example.com", "a@example.com", false)
	w.settled(decision{state: "unsubscribed", email: "a@example.com"})
	w.expect("opted out", w.status("a@example.com", newsID), "UNSUBSCRIBED")
	w.expect("contacts", len(w.hubspot.Contacts("main")), 2)
	c, _ := w.hubspot.Contact("main", "a@example.com")
	w.expect("the record that has the address now", c.Properties["news"], "false")
}

// An address that a person changed inside HubSpot is not written back: the opt-out goes
// to both, and the operator sees it listed.
func TestAnAddressChangedInsideHubSpotIsOptedOutToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settled(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	w.hubspot.SetStatus("main", "new@example.com", newsID, "SUBSCRIBED", time.Now())
	w.hubspot.ChangeEmail("main", "a@example.com", "new@example.com", false)
	w.settled(decision{state: "unsubscribed", email: "a@example.com"})
	w.expect("ours", w.status("a@example.com", newsID), "UNSUBSCRIBED")
	w.expect("theirs", w.status("new@example.com", newsID), "UNSUBSCRIBED")
	c, ok := w.hubspot.Contact("main", "new@example.com")
	w.expect("its record", ok, true)
	w.expect("property", c.Properties["news"], "false")
	w.expect("address not written back", c.Email, "new@example.com")
	w.expect("listed", w.conflicts(), "address_changed_in_hubspot")
	if strings.Contains(w.text(`SELECT detail FROM contact_conflicts`), "@") {
		t.Error("the listing holds an address")
	}
}

func TestADeletedContactIsMadeAgainByASubscribeOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settled(decision{state: "subscribed", email: "a@example.com", consent: longAgo})
	w.hubspot.DeleteContact("main", "a@example.com")
	w.settled(decision{state: "unsubscribed", email: "a@example.com", consent: longAgo.Add(time.Hour)})
	w.expect("after an opt-out", len(w.hubspot.Contacts("main")), 0)
	w.settled(decision{state: "subscribed", email: "a@example.com"})
	w.expect("after a subscribe", len(w.hubspot.Contacts("main")), 1)
	w.expect("subscribed", w.status("a@example.com", newsID), "SUBSCRIBED")
}
