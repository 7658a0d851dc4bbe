package plan

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// whole is everything that a message leads to beside reads.
type whole struct {
	Preferences []Preference
	Contacts    []ContactWrite
	Segments    []Segment
}

func planOf(items []Item) whole {
	var w whole
	for _, i := range items {
		w.Preferences = append(w.Preferences, i.Preference("test"))
		w.Segments = append(w.Segments, i.Segments()...)
	}
	w.Contacts = Contacts(items)
	return w
}

func goldenItem(n byte, desired outbox.DesiredState, contact string, typeID int64, targets ...routing.Target) Item {
	return Item{
		EventID: uuid.UUID{15: n}, Desired: desired, ContactKey: contact, Email: contact + "@example.com", Explanation: "form v3",
		ConsentAt: time.Date(2025, 11, 24, 23, 30, 0, 0, time.FixedZone("", -3600)),
		Snapshot:  routing.Snapshot{Portal: "main", SubscriptionTypeID: typeID, BusinessUnitID: 7, LegalBasis: "CONSENT_WITH_NOTICE", Targets: targets},
	}
}

// The golden files are what HubSpot is told, for a reader to judge. `go test
// ./shared/plan -update` writes them anew; the difference belongs into the review.
func TestGoldenPlans(t *testing.T) {
	t.Parallel()
	property := func(name string) routing.Target {
		return routing.Target{Kind: routing.ContactProperty, Name: name, Subscribed: "true", Unsubscribed: "false", Required: true}
	}
	since := routing.Target{Kind: routing.ContactProperty, Name: "since", Subscribed: routing.ConsentDate}
	at := routing.Target{Kind: routing.ContactProperty, Name: "consent_at", Subscribed: routing.ConsentTime, Unsubscribed: routing.ConsentTime}
	topic := func(entry string) routing.Target {
		return routing.Target{Kind: routing.ContactProperty, Name: "topics", Subscribed: entry, Multi: true, Required: true}
	}
	brand := routing.Target{Kind: routing.BrandAssignment, BusinessUnitID: 7, Required: true}
	list := routing.Target{Kind: routing.ManualSegment, ListID: "604"}
	in, out := outbox.Subscribed, outbox.Unsubscribed
	for name, items := range map[string][]Item{
		"one-subscribe-of-every-target": {goldenItem(1, in, "ann", 5, property("news"), since, at, topic("news"), brand, list)},
		"one-opt-out-of-every-target":   {goldenItem(1, out, "ann", 5, property("news"), since, at, topic("news"), brand, list)},
		"two-products-of-one-contact":   {goldenItem(1, in, "ann", 5, property("news"), topic("news"), brand), goldenItem(2, in, "ann", 6, property("tips"), topic("tips"), brand)},
		"in-and-out-of-one-entry":       {goldenItem(1, in, "ann", 5, topic("shared"), list), goldenItem(2, out, "ann", 6, topic("shared"), list)},
		"preference-only":               {goldenItem(1, in, "ann", 5), goldenItem(2, out, "bob", 5)},
		"two-contacts":                  {goldenItem(1, in, "bob", 5, property("news")), goldenItem(2, out, "ann", 5, property("news"))},
	} {
		got, err := json.MarshalIndent(planOf(items), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".golden.json")
		if *update {
			if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(want), got) {
			t.Errorf("%s differs from its golden file:\n%s", name, got)
		}
	}
}
