package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

// Record is what HubSpot shows of a contact.
type Record struct {
	Exists     bool
	Properties map[string]string
}

// Difference names the first thing that HubSpot shows otherwise than the item wants it,
// without personal data; empty: all required parts are as decided. For an opt-out
// anything but UNSUBSCRIBED is a difference, because an unset status is still mailable
// in some accounts; a person whom HubSpot does not know needs no property.
func (i Item) Difference(state string, r Record) string {
	if want := StateOf(i.Desired); state != want {
		return fmt.Sprintf("status is %s, must be %s", state, want)
	}
	for _, t := range i.Snapshot.Targets {
		if !t.Required || (!r.Exists && i.Desired == outbox.Unsubscribed) {
			continue
		}
		switch t.Kind {
		case routing.ContactProperty:
			want := t.Unsubscribed
			if i.Desired == outbox.Subscribed {
				want = t.Subscribed
			}
			if got := r.Properties[t.Name]; got != want {
				return fmt.Sprintf("property %s is not %q", t.Name, want)
			}
		case routing.BrandAssignment:
			units := strings.Split(r.Properties[BrandsProperty], ";")
			if i.Desired == outbox.Subscribed && !slices.Contains(units, strconv.FormatInt(t.BusinessUnitID, 10)) {
				return fmt.Sprintf("brand %d is not assigned", t.BusinessUnitID)
			}
		}
	}
	return ""
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
