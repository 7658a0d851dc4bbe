package plan

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

var noon = time.Date(2025, 11, 24, 12, 0, 0, 0, time.UTC)

func subscribe(consent time.Time) Item {
	return Item{
		EventID: uuid.New(), Desired: outbox.Subscribed, ContactKey: "k1", Email: "a@example.com", ConsentAt: consent,
		Snapshot: routing.Snapshot{SubscriptionTypeID: 5, BusinessUnitID: 7, LegalBasis: "CONSENT_WITH_NOTICE", Targets: []routing.Target{
			{Kind: routing.ContactProperty, Name: "news", Subscribed: "true", Unsubscribed: "false", Required: true},
			{Kind: routing.BrandAssignment, BusinessUnitID: 7, Required: true},
			{Kind: routing.ManualSegment, ListID: "604"},
		}},
	}
}

// Without the echo rule a subscribe could never follow an opt-out of our own; without
// the tie rule an opt-out in the consent's own millisecond would be lost.
func TestBlockingOptOut(t *testing.T) {
	t.Parallel()
	ours := outbox.Attempt{Event: uuid.New(), Fence: 7}
	retried := outbox.Attempt{Event: ours.Event, Fence: 8}
	mark := marker("prod", outbox.Unsubscribed, ours)
	for name, tc := range map[string]struct {
		stamp    time.Time
		by       outbox.Attempt
		observed Observed
		blocked  bool
	}{
		"nothing known":                    {observed: Observed{}},
		"a second older":                   {observed: Observed{Unsubscribed: true, At: noon.Add(-time.Second)}},
		"a second newer":                   {observed: Observed{Unsubscribed: true, At: noon.Add(time.Second)}, blocked: true},
		"equal":                            {observed: Observed{Unsubscribed: true, At: noon}, blocked: true},
		"same millisecond, reported lower": {observed: Observed{Unsubscribed: true, At: noon.Truncate(time.Millisecond)}, blocked: true},
		"without a time":                   {observed: Observed{Unsubscribed: true}, blocked: true},
		"our echo by its stamp":            {stamp: noon.Add(time.Hour), by: ours, observed: Observed{Unsubscribed: true, At: noon.Add(time.Hour)}},
		"after our stamp":                  {stamp: noon.Add(time.Hour), by: ours, observed: Observed{Unsubscribed: true, At: noon.Add(2 * time.Hour)}, blocked: true},
		"our echo by its marker":           {observed: Observed{Unsubscribed: true, At: noon.Add(time.Hour), Explanation: "form v3 " + mark}},
		"kept marker, another time":        {stamp: noon.Add(time.Hour), by: ours, observed: Observed{Unsubscribed: true, At: noon.Add(2 * time.Hour), Explanation: mark}, blocked: true},
		"newer marker than the stamp":      {stamp: noon.Add(time.Hour), by: outbox.Attempt{Event: uuid.New()}, observed: Observed{Unsubscribed: true, At: noon.Add(2 * time.Hour), Explanation: mark}},
		"an earlier attempt lands late":    {stamp: noon.Add(time.Hour), by: retried, observed: Observed{Unsubscribed: true, At: noon.Add(2 * time.Hour), Explanation: mark}},
		"a marker without its attempt":     {observed: Observed{Unsubscribed: true, At: noon.Add(time.Hour), Explanation: "[hubsync:prod:u:" + ours.Event.String() + "]"}, blocked: true},
		"marker of another environment":    {observed: Observed{Unsubscribed: true, At: noon.Add(time.Hour), Explanation: marker("staging", outbox.Unsubscribed, ours)}, blocked: true},
		"marker of a subscribe":            {observed: Observed{Unsubscribed: true, At: noon.Add(time.Hour), Explanation: marker("prod", outbox.Subscribed, ours)}, blocked: true},
		"marker not at the end":            {observed: Observed{Unsubscribed: true, At: noon.Add(time.Hour), Explanation: mark + " said the caller"}, blocked: true},
		"portal-wide, newer":               {observed: Observed{Wide: []WideOptOut{{At: noon.Add(time.Second)}}}, blocked: true},
		"portal-wide, older":               {observed: Observed{Wide: []WideOptOut{{At: noon.Add(-time.Second)}}}},
		"our brand, newer":                 {observed: Observed{Wide: []WideOptOut{{BusinessUnitID: 7, At: noon.Add(time.Second)}}}, blocked: true},
		"another brand, newer":             {observed: Observed{Wide: []WideOptOut{{BusinessUnitID: 8, At: noon.Add(time.Second)}}}},
	} {
		item := subscribe(noon.Add(300 * time.Microsecond).Truncate(time.Microsecond))
		if name != "same millisecond, reported lower" {
			item = subscribe(noon)
		}
		item.OwnOptOut = outbox.Stamp{At: tc.stamp, Attempt: tc.by}
		if _, blocked := item.BlockingOptOut("prod", tc.observed); blocked != tc.blocked {
			t.Errorf("%s: blocked %v, want %v", name, blocked, tc.blocked)
		}
	}
}

func TestPreferenceCarriesBasisAndMarker(t *testing.T) {
	t.Parallel()
	item := subscribe(noon)
	item.Explanation = strings.Repeat("ä", 1500) // two bytes each
	p := item.Preference("prod")
	if p.LegalBasis != "CONSENT_WITH_NOTICE" || !p.Subscribe || len(p.Explanation) > maxExplanation {
		t.Errorf("preference %+v", p)
	}
	if _, ours := OwnOptOutMarker("prod", p.Explanation); ours {
		t.Error("a subscribe's marker counts as an opt-out's")
	}
	item.Desired, item.LegalBasis, item.Explanation, item.Fence = outbox.Unsubscribed, "NON_GDPR", "", 5
	p = item.Preference("prod")
	if by, ours := OwnOptOutMarker("prod", p.Explanation); !ours || by != (outbox.Attempt{Event: item.EventID, Fence: 5}) || p.LegalBasis != "NON_GDPR" || p.Subscribe {
		t.Errorf("preference %+v", p)
	}
}

func TestContactsMergesAndNeverCreatesForAnOptOut(t *testing.T) {
	t.Parallel()
	news, events := subscribe(noon), subscribe(noon)
	events.Snapshot.Targets = []routing.Target{
		{Kind: routing.ContactProperty, Name: "events", Subscribed: "true", Unsubscribed: "", Required: false},
		{Kind: routing.BrandAssignment, BusinessUnitID: 7},
	}
	stranger := subscribe(noon)
	stranger.ContactKey, stranger.Email, stranger.Desired = "k0", "b@example.com", outbox.Unsubscribed
	writes := Contacts([]Item{news, events, stranger})
	if len(writes) != 2 {
		t.Fatalf("%d writes, want one per contact", len(writes))
	}
	optOut, merged := writes[0], writes[1]
	if optOut.MayCreate || !maps.Equal(optOut.Properties, map[string]string{"news": "false"}) {
		t.Errorf("opt-out %+v: it must not create, and keeps the brand", optOut)
	}
	want := map[string]string{"news": "true", "events": "true", BrandsProperty: ";7"}
	if !merged.MayCreate || !maps.Equal(merged.Properties, want) || len(merged.Events) != 2 || len(merged.Required) != 1 {
		t.Errorf("merged %+v", merged)
	}
}

func TestCheckSnapshot(t *testing.T) {
	t.Parallel()
	s := subscribe(noon).Snapshot
	if err := CheckSnapshot(s); err != nil {
		t.Error(err)
	}
	s.Targets = append(s.Targets, routing.Target{Kind: routing.ContactProperty, Name: "news", Subscribed: "yes"})
	if err := CheckSnapshot(s); !errors.Is(err, ErrConfiguration) {
		t.Errorf("two values for one property: %v", err)
	}
	s.Targets = []routing.Target{{Kind: "WORKFLOW"}}
	if err := CheckSnapshot(s); !errors.Is(err, ErrConfiguration) {
		t.Errorf("unknown kind: %v", err)
	}
}

func TestSegments(t *testing.T) {
	t.Parallel()
	item := subscribe(noon)
	if s := item.Segments(); len(s) != 1 || !s[0].Add || s[0].ListID != "604" {
		t.Errorf("segments %+v", s)
	}
}
