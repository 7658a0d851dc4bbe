package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

// BrandsProperty holds the brands of a contact: a semicolon list, where a leading
// semicolon appends instead of replacing.
const BrandsProperty = "hs_all_assigned_business_unit_ids"

// Entries are entries of list-valued properties, by property.
type Entries map[string][]string

func (e Entries) add(name, entry string) {
	if !slices.Contains(e[name], entry) {
		e[name] = append(e[name], entry)
	}
}

// ContactWrite is one write of a contact's properties, merged over all items of
// that contact in a message.
type ContactWrite struct {
	ContactKey string
	Email      string
	// MayCreate: a subscribe is among the items. Opt-outs alone never create a
	// contact for a stranger.
	MayCreate  bool
	Properties map[string]string
	// Remove are entries to take out of list-valued properties. HubSpot can only append:
	// whoever writes reads the property first, and leaves entries that another
	// subscription of the contact wants.
	Remove Entries
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
	appended := map[string]Entries{}
	for _, item := range items {
		targets := item.contactTargets()
		if !targets.wanted {
			continue
		}
		w := writes[item.ContactKey]
		if w == nil {
			w = &ContactWrite{ContactKey: item.ContactKey, Email: item.Email, Properties: map[string]string{}, Remove: Entries{}}
			writes[item.ContactKey], appended[item.ContactKey] = w, Entries{}
		}
		maps.Copy(w.Properties, targets.properties)
		targets.entries.addTo(appended[item.ContactKey])
		targets.removed.addTo(w.Remove)
		w.MayCreate = w.MayCreate || item.Desired == outbox.Subscribed
		w.Events = append(w.Events, item.EventID)
		if targets.required {
			w.Required = append(w.Required, item.EventID)
		}
	}
	result := make([]ContactWrite, 0, len(writes))
	for key, w := range writes {
		w.merge(appended[key])
		result = append(result, *w)
	}
	slices.SortFunc(result, func(a, b ContactWrite) int { return cmp.Compare(a.ContactKey, b.ContactKey) })
	return result
}

func (e Entries) addTo(other Entries) {
	for name, entries := range e {
		for _, entry := range entries {
			other.add(name, entry)
		}
	}
}

// merge writes entries in HubSpot's form: a leading semicolon appends. What one item
// adds no other one takes out.
func (w *ContactWrite) merge(appended Entries) {
	for name, entries := range appended {
		slices.Sort(entries)
		w.Properties[name] = ";" + strings.Join(entries, ";")
		w.Remove[name] = slices.DeleteFunc(w.Remove[name], func(entry string) bool { return slices.Contains(entries, entry) })
	}
	maps.DeleteFunc(w.Remove, func(_ string, entries []string) bool { return len(entries) == 0 })
}

// Without returns a list-valued property's text without some entries; changed is false
// where it has none of them.
func Without(text string, remove []string) (rest string, changed bool) {
	var kept []string
	for entry := range strings.SplitSeq(text, ";") {
		switch {
		case slices.Contains(remove, entry):
			changed = true
		case entry != "":
			kept = append(kept, entry)
		}
	}
	return strings.Join(kept, ";"), changed
}

// WithEntries returns a list-valued property's text with what an append (a text with a
// leading semicolon) adds.
func WithEntries(text, appended string) string {
	var entries []string
	for _, entry := range strings.Split(text+appended, ";") {
		if entry != "" && !slices.Contains(entries, entry) {
			entries = append(entries, entry)
		}
	}
	return strings.Join(entries, ";")
}

// contactTargets is what an item asks of its contact.
type contactTargets struct {
	properties       map[string]string
	entries, removed Entries
	required, wanted bool
}

func (t *contactTargets) want(required bool) {
	t.required, t.wanted = t.required || required, true
}

// contactTargets collects an item's part. An unsubscribe never removes a brand: the
// person may have other subscriptions of it.
func (i Item) contactTargets() contactTargets {
	c := contactTargets{properties: map[string]string{}, entries: Entries{}, removed: Entries{}}
	subscribes := i.Desired == outbox.Subscribed
	for _, t := range i.Snapshot.Targets {
		switch {
		case t.Kind == routing.ContactProperty && t.Multi && subscribes:
			c.entries.add(t.Name, t.Subscribed)
			c.want(t.Required)
		case t.Kind == routing.ContactProperty && t.Multi:
			c.removed.add(t.Name, t.Subscribed)
			c.want(t.Required)
		case t.Kind == routing.ContactProperty:
			c.properties[t.Name] = i.propertyValue(t)
			c.want(t.Required)
		case t.Kind == routing.BrandAssignment && subscribes:
			c.entries.add(BrandsProperty, strconv.FormatInt(t.BusinessUnitID, 10))
			c.want(t.Required)
		case t.Kind == routing.ManualSegment && subscribes:
			c.want(t.Required) // a list holds records: a subscriber needs one
		}
	}
	return c
}

// Values are the properties that hold one value for the item's decision.
func (i Item) Values() map[string]string { return i.contactTargets().properties }

// propertyValue is the text that a property must hold for the item's decision. HubSpot
// takes the day of a date property as midnight UTC.
func (i Item) propertyValue(t routing.Target) string {
	value := t.Unsubscribed
	if i.Desired == outbox.Subscribed {
		value = t.Subscribed
	}
	switch value {
	case routing.ConsentDate:
		return i.ConsentAt.UTC().Format(time.DateOnly)
	case routing.ConsentTime:
		return i.ConsentAt.UTC().Format("2006-01-02T15:04:05.000Z")
	default:
		return value
	}
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
