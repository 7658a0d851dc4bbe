package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

// BrandsProperty holds the brands of a contact: a semicolon list, where a leading
// semicolon appends instead of replacing.
const BrandsProperty = "hs_all_assigned_business_unit_ids"

// ContactWrite is one write of a contact's properties, merged over all items of
// that contact in a message.
type ContactWrite struct {
	ContactKey string
	Email      string
	// MayCreate: a subscribe is among the items. Opt-outs alone never create a
	// contact for a stranger.
	MayCreate  bool
	Properties map[string]string
	// Events that this write is part of, required or not.
	Events []uuid.UUID
	// Required lists those for which the write decides whether they are synced.
	Required []uuid.UUID
}

// Contacts returns one write per contact for the given items, in the order of
// their keys. Items without a contact target make none. Callers pass items whose
// preference was confirmed; two items never name the same property, because a
// property belongs to one (brand, product).
func Contacts(items []Item) []ContactWrite {
	writes := map[string]*ContactWrite{}
	brands := map[string][]int64{}
	for _, item := range items {
		properties, units, required, wanted := item.contactTargets()
		if !wanted {
			continue
		}
		w := writes[item.ContactKey]
		if w == nil {
			w = &ContactWrite{ContactKey: item.ContactKey, Email: item.Email, Properties: map[string]string{}}
			writes[item.ContactKey] = w
		}
		maps.Copy(w.Properties, properties)
		brands[item.ContactKey] = append(brands[item.ContactKey], units...)
		w.MayCreate = w.MayCreate || item.Desired == outbox.Subscribed
		w.Events = append(w.Events, item.EventID)
		if required {
			w.Required = append(w.Required, item.EventID)
		}
	}
	result := make([]ContactWrite, 0, len(writes))
	for key, w := range writes {
		if units := brands[key]; len(units) > 0 {
			w.Properties[BrandsProperty] = appendList(units)
		}
		result = append(result, *w)
	}
	slices.SortFunc(result, func(a, b ContactWrite) int { return cmp.Compare(a.ContactKey, b.ContactKey) })
	return result
}

// contactTargets returns what an item asks of its contact. An unsubscribe never
// removes a brand: the person may have other subscriptions of it.
func (i Item) contactTargets() (properties map[string]string, units []int64, required, wanted bool) {
	properties = map[string]string{}
	for _, t := range i.Snapshot.Targets {
		switch t.Kind {
		case routing.ContactProperty:
			value := t.Unsubscribed
			if i.Desired == outbox.Subscribed {
				value = t.Subscribed
			}
			properties[t.Name] = value
			required, wanted = required || t.Required, true
		case routing.BrandAssignment:
			if i.Desired == outbox.Subscribed {
				units = append(units, t.BusinessUnitID)
				required, wanted = required || t.Required, true
			}
		case routing.ManualSegment:
			// A list holds records: a subscriber needs one.
			if i.Desired == outbox.Subscribed {
				required, wanted = required || t.Required, true
			}
		}
	}
	return properties, units, required, wanted
}

func appendList(units []int64) string {
	slices.Sort(units)
	var b strings.Builder
	for _, u := range slices.Compact(units) {
		b.WriteString(";")
		b.WriteString(strconv.FormatInt(u, 10))
	}
	return b.String()
}

// Segment is a wanted membership of a list; Add false removes.
type Segment struct {
	EventID  uuid.UUID
	ListID   string
	Add      bool
	Required bool
}

// Segments returns the memberships that an item asks for.
func (i Item) Segments() []Segment {
	var segments []Segment
	for _, t := range i.Snapshot.Targets {
		if t.Kind == routing.ManualSegment {
			segments = append(segments, Segment{
				EventID: i.EventID, ListID: t.ListID,
				Add: i.Desired == outbox.Subscribed, Required: t.Required,
			})
		}
	}
	return segments
}
