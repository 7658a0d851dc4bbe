package ops

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"hubsync/shared/hubspot"
	"hubsync/shared/routing"
)

// compare reports every way in which a brand's mapping does not fit the account that it
// names.
func (a *account) compare(b routing.Brand, f *findings) {
	if b.BusinessUnitID != 0 && a.definitions != nil && !a.brands[b.BusinessUnitID] {
		f.wrong(b.ID, "take the brand's id from HubSpot's settings (Brands)", "brand (business unit) %d does not exist in portal %s", b.BusinessUnitID, b.Portal)
	}
	for _, p := range b.Products {
		where := b.ID + "/" + p.ID
		a.compareType(b, p, where, f)
		for _, t := range p.Targets {
			switch t.Kind {
			case routing.ContactProperty:
				a.compareProperty(t, where, f)
			case routing.ManualSegment:
				a.compareList(t, where, f)
			case routing.BrandAssignment:
				if a.definitions != nil && !a.brands[t.BusinessUnitID] {
					f.wrong(where, "take the brand's id from HubSpot's settings (Brands)", "target brand (business unit) %d does not exist", t.BusinessUnitID)
				}
			}
		}
	}
}

func (a *account) compareType(b routing.Brand, p routing.Product, where string, f *findings) {
	if a.definitions == nil {
		return
	}
	d, ok := a.definitions[p.SubscriptionTypeID]
	switch {
	case !ok:
		f.wrong(where, "take the id of the subscription type from HubSpot's settings (Marketing, Email, Subscription types)",
			"subscription type %d does not exist in portal %s", p.SubscriptionTypeID, b.Portal)
	case !d.Active:
		f.wrong(where, "make it active in HubSpot, or name another", "subscription type %d is not active", p.SubscriptionTypeID)
	}
	if ok && d.BusinessUnitID != b.BusinessUnitID {
		f.wrong(where, "name a subscription type of this brand, or mend businessUnitId",
			"subscription type %d belongs to business unit %d, the brand says %d", p.SubscriptionTypeID, d.BusinessUnitID, b.BusinessUnitID)
	}
}

func (a *account) compareList(t routing.Target, where string, f *findings) {
	if a.lists == nil {
		return
	}
	l, ok := a.lists[t.ListID]
	switch {
	case !ok:
		f.wrong(where, "take the list's id from its address in HubSpot", "list %s does not exist", t.ListID)
	case l.ProcessingType == "DYNAMIC":
		f.wrong(where, "name a MANUAL or SNAPSHOT list", "list %s is DYNAMIC: HubSpot fills it itself, nobody can write its members", t.ListID)
	case l.ObjectTypeID != "" && l.ObjectTypeID != "0-1":
		f.wrong(where, "name a list of contacts", "list %s does not hold contacts (object type %s)", t.ListID, l.ObjectTypeID)
	}
}

func (a *account) compareProperty(t routing.Target, where string, f *findings) {
	if a.properties == nil {
		return
	}
	p, ok := a.properties[t.Name]
	if !ok {
		f.wrong(where, "create it in HubSpot, or mend its name", "property %s does not exist", t.Name)
		return
	}
	if p.ReadOnly {
		f.wrong(where, "name a property of your own", "property %s is read-only", t.Name)
	}
	several := p.Type == "enumeration" && p.FieldType == "checkbox"
	if t.Multi && !several {
		f.wrong(where, "make it 'Multiple checkboxes' in HubSpot, or remove multi", "property %s takes one value (%s), but multi shares it between subscriptions", t.Name, p.Type)
	}
	if !t.Multi && several {
		f.warn(where, "say multi: true if other subscriptions write to it too", "property %s takes several values, and this one overwrites them", t.Name)
	}
	for _, value := range []string{t.Subscribed, t.Unsubscribed} {
		if problem := misfit(p, value); problem != "" {
			f.wrong(where, "mend the value, or the property in HubSpot", "property %s: value %q %s", t.Name, value, problem)
		}
	}
}

// misfit says why a property does not take a value; empty: it takes it, as every property
// takes none.
func misfit(p hubspot.Property, value string) string {
	switch {
	case value == "":
		return ""
	case value == routing.ConsentDate && p.Type != "date":
		return "is a day, the property's type is " + p.Type
	case value == routing.ConsentTime && p.Type != "datetime":
		return "is a time, the property's type is " + p.Type
	case value == routing.ConsentDate || value == routing.ConsentTime:
		return ""
	}
	switch p.Type {
	case "enumeration":
		if !slices.Contains(p.Options, value) {
			return "is none of its options (" + shorten(strings.Join(p.Options, ", ")) + ")"
		}
	case "bool":
		if value != "true" && value != "false" {
			return "is neither true nor false"
		}
	case "number":
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return "is no number"
		}
	case "date":
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
			if ms%(24*time.Hour).Milliseconds() != 0 {
				return "is not midnight in UTC"
			}
		} else if _, err := time.Parse(time.DateOnly, value); err != nil {
			return "is no date: YYYY-MM-DD, or milliseconds at midnight UTC"
		}
	case "datetime":
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			if _, err := time.Parse(time.RFC3339, value); err != nil {
				return "is no time: RFC 3339, or milliseconds"
			}
		}
	}
	return ""
}

func shorten(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// compareKey reports whether the property that holds our contact key is as it must be.
func (a *account) compareKey(portal string, f *findings) {
	if a.properties == nil {
		return
	}
	p, ok := a.properties[hubspot.ContactKeyProperty]
	where := "portal " + portal
	switch {
	case !ok:
		f.wrong(where, "run 'hubsync portal check "+portal+" --create'", "property %s does not exist: contacts are found by it", hubspot.ContactKeyProperty)
	case !p.HasUniqueValue:
		f.wrong(where, "HubSpot cannot change that: delete or rename the property there, then run 'hubsync portal check "+portal+" --create'",
			"property %s is not unique among contacts", hubspot.ContactKeyProperty)
	case p.Type != "string":
		f.wrong(where, "HubSpot cannot change that: delete or rename the property there, then run 'hubsync portal check "+portal+" --create'",
			"property %s has type %s, not string", hubspot.ContactKeyProperty, p.Type)
	}
}

// compareAccount reports whether the token belongs to the account that a file names.
func (a *account) compareAccount(p routing.Portal, f *findings) {
	where := "portal " + p.ID
	if a.info.PortalID != p.HubID {
		f.wrong(where, "mend hubId, or give the token of that account", "the token belongs to account %d, the file says %d", a.info.PortalID, p.HubID)
	}
	if a.info.TimeZone != "" && a.info.TimeZone != p.TimeZone {
		f.warn(where, "say timeZone: "+a.info.TimeZone, "the account's day ends at midnight of %s, the file says %s", a.info.TimeZone, p.TimeZone)
	}
}
