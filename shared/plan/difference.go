package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

// Record is what HubSpot shows of a contact.
type Record struct {
	Exists     bool
	Properties map[string]string
	Lists      []string // ids of the lists that it is in
}

// Wanted tells what another subscription of the same contact wants: such an entry or
// membership stays after an opt-out.
type Wanted struct {
	Lists   []string
	Entries Entries
}

// Difference names the first thing that HubSpot shows otherwise than the item wants it,
// without personal data; empty: all required parts are as decided. For an opt-out
// anything but UNSUBSCRIBED is a difference, because an unset status is still mailable
// in some accounts; a person whom HubSpot does not know needs no property.
func (i Item) Difference(state string, r Record, others Wanted) string {
	if i.Snapshot.SaysNothing() {
		return ""
	}
	if want := StateOf(i.Desired); state != want {
		return fmt.Sprintf("status is %s, must be %s", state, want)
	}
	for _, t := range i.Snapshot.Targets {
		if !t.Required || (!r.Exists && i.Desired == outbox.Unsubscribed) {
			continue
		}
		if d := i.targetDifference(t, r, others); d != "" {
			return d
		}
	}
	return ""
}

func (i Item) targetDifference(t routing.Target, r Record, others Wanted) string {
	subscribes := i.Desired == outbox.Subscribed
	switch {
	case t.Kind == routing.ContactProperty && t.Multi:
		has, shared := slices.Contains(entriesOf(r.Properties[t.Name]), t.Subscribed), slices.Contains(others.Entries[t.Name], t.Subscribed)
		if has != (subscribes || shared) {
			return fmt.Sprintf("property %s: entry %q is there: %t", t.Name, t.Subscribed, has)
		}
	case t.Kind == routing.ContactProperty:
		if want := i.propertyValue(t); !sameValue(r.Properties[t.Name], want) {
			return fmt.Sprintf("property %s is not %q", t.Name, want)
		}
	case t.Kind == routing.BrandAssignment && subscribes:
		if !slices.Contains(entriesOf(r.Properties[BrandsProperty]), strconv.FormatInt(t.BusinessUnitID, 10)) {
			return fmt.Sprintf("brand %d is not assigned", t.BusinessUnitID)
		}
	case t.Kind == routing.ManualSegment:
		has, shared := slices.Contains(r.Lists, t.ListID), slices.Contains(others.Lists, t.ListID)
		if has != (subscribes || shared) {
			return fmt.Sprintf("member of list %s: %t", t.ListID, has)
		}
	}
	return ""
}

func entriesOf(text string) []string { return strings.Split(text, ";") }

// sameValue compares texts; times also by what they say, because HubSpot returns
// milliseconds for a date that was written as a day, or the reverse.
func sameValue(got, want string) bool {
	if got == want {
		return true
	}
	a, okA := timeOf(got)
	b, okB := timeOf(want)
	return okA && okB && a.Equal(b)
}

func timeOf(text string) (time.Time, bool) {
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && len(text) >= len("100000000000") {
		return time.UnixMilli(ms), true
	}
	return time.Time{}, false
}

// Properties lists the contact properties that Difference looks at.
func (i Item) Properties() []string {
	var names []string
	for _, t := range i.Snapshot.Targets {
		switch {
		case t.Required && t.Kind == routing.ContactProperty:
			names = append(names, t.Name)
		case t.Required && t.Kind == routing.BrandAssignment:
			names = append(names, BrandsProperty)
		}
	}
	return names
}

// Lists lists the list memberships that Difference looks at.
func (i Item) Lists() []string {
	var ids []string
	for _, t := range i.Snapshot.Targets {
		if t.Required && t.Kind == routing.ManualSegment {
			ids = append(ids, t.ListID)
		}
	}
	return ids
}
