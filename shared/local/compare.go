package local

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/plan"
	"hubsync/shared/routing"
)

// comparison looks at HubSpot and lists what is not as it must be. Its lines are for a
// demo on made-up data: they name addresses.
type comparison struct {
	world    *World
	routes   map[[2]string]routed
	existed  map[string]bool // addresses that HubSpot knew before
	problems []string
}

type routed struct {
	brand   routing.Brand
	product routing.Product
}

func newComparison(w *World, state hubspottest.State) *comparison {
	c := &comparison{world: w, routes: map[[2]string]routed{}, existed: map[string]bool{}}
	for _, b := range w.opts.Routes.Brands {
		for _, p := range b.Products {
			c.routes[[2]string{b.ID, p.ID}] = routed{b, p}
		}
	}
	for _, k := range state.Contacts {
		for _, email := range append([]string{k.Email}, k.AdditionalEmails...) {
			c.existed[strings.ToLower(email)] = true
		}
	}
	return c
}

func (c *comparison) say(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// statuses compares every expected row with what HubSpot shows.
func (c *comparison) statuses(what string, rows []Expected) {
	for _, e := range rows {
		r, ok := c.routes[[2]string{e.BrandID, e.ProductID}]
		if !ok {
			c.say("%s: %s/%s is not in the routes", what, e.BrandID, e.ProductID)
			continue
		}
		shown, set := c.world.HubSpot.Status(r.brand.Portal, e.Email, e.SubscriptionID)
		if !set {
			shown.State = "nothing"
		}
		if shown.State != e.Status {
			c.say("%s: %s %s/%s is %s in HubSpot, must be %s", what, e.Email, e.BrandID, e.ProductID, shown.State, e.Status)
		}
	}
}

// targets compares properties and brands of the contacts, and that an opt-out made no
// contact of a stranger.
func (c *comparison) targets(rows []Expected, everSubscribed map[string]bool) {
	for _, e := range rows {
		r, ok := c.routes[[2]string{e.BrandID, e.ProductID}]
		if !ok {
			continue
		}
		contact, exists := c.world.HubSpot.Contact(r.brand.Portal, e.Email)
		wanted := e.Status == "SUBSCRIBED" && slices.ContainsFunc(r.product.Targets, func(t routing.Target) bool {
			return t.Required && t.Kind != routing.ManualSegment
		})
		switch {
		case wanted && !exists:
			c.say("%s is subscribed to %s/%s and is no contact", e.Email, e.BrandID, e.ProductID)
		case exists:
			c.contact(e, r, contact)
		}
		if exists && !c.existed[e.Email] && !everSubscribed[r.brand.Portal+" "+e.Email] {
			c.say("%s never subscribed to anything and was made a contact", e.Email)
		}
	}
}

// lists compares every list with those who must be in it: the contacts of the subscribers
// whose route names it.
func (c *comparison) lists(rows []Expected) {
	type list struct{ portal, id string }
	want := map[list]map[string]string{} // record → address
	for _, r := range c.routes {
		for _, t := range r.product.Targets {
			if t.Kind == routing.ManualSegment {
				want[list{r.brand.Portal, t.ListID}] = map[string]string{}
			}
		}
	}
	for _, e := range rows {
		r := c.routes[[2]string{e.BrandID, e.ProductID}]
		contact, exists := c.world.HubSpot.Contact(r.brand.Portal, e.Email)
		for _, t := range r.product.Targets {
			if t.Kind == routing.ManualSegment && e.Status == "SUBSCRIBED" && exists {
				want[list{r.brand.Portal, t.ListID}][contact.ID] = e.Email
			}
		}
	}
	for l, wanted := range want {
		members := c.world.HubSpot.ListMembers(l.portal, l.id)
		for _, id := range members {
			if wanted[id] == "" {
				c.say("portal %s: record %s is in list %s and must not be", l.portal, id, l.id)
			}
			delete(wanted, id)
		}
		for _, email := range wanted {
			c.say("portal %s: %s is missing in list %s", l.portal, email, l.id)
		}
	}
}

func (c *comparison) contact(e Expected, r routed, contact hubspottest.ContactView) {
	for _, t := range r.product.Targets {
		if !t.Required {
			continue
		}
		switch t.Kind {
		case routing.ContactProperty:
			c.property(e, t, contact.Properties[t.Name])
		case routing.BrandAssignment:
			units := strings.Split(contact.Properties[plan.BrandsProperty], ";")
			if e.Status == "SUBSCRIBED" && !slices.Contains(units, strconv.FormatInt(t.BusinessUnitID, 10)) {
				c.say("%s is not assigned to brand %d", e.Email, t.BusinessUnitID)
			}
		}
	}
}

// property judges one property; of the decision's time only that it stands there.
func (c *comparison) property(e Expected, t routing.Target, got string) {
	want := t.Unsubscribed
	if e.Status == "SUBSCRIBED" {
		want = t.Subscribed
	}
	switch {
	case t.Multi:
		if has := slices.Contains(strings.Split(got, ";"), t.Subscribed); has != (e.Status == "SUBSCRIBED") {
			c.say("%s: property %s is %q: entry %q is there: %t", e.Email, t.Name, got, t.Subscribed, has)
		}
	case want == routing.ConsentDate || want == routing.ConsentTime:
		if got == "" {
			c.say("%s: property %s is empty, must hold the consent's time", e.Email, t.Name)
		}
	case got != want:
		c.say("%s: property %s is %q, must be %q", e.Email, t.Name, got, want)
	}
}

// records checks that nobody is two contacts, that no key is on two of them, and that
// primary addresses stayed as they were.
func (c *comparison) records(state hubspottest.State) {
	for _, p := range c.world.opts.Routes.Portals {
		owners := map[string]string{}
		for _, k := range c.world.HubSpot.Contacts(p.ID) {
			for _, name := range append([]string{"address " + k.Email, "key " + k.Properties[hubspot.ContactKeyProperty]}, prefixed(k.Additional)...) {
				if name == "key " {
					continue
				}
				if other, twice := owners[name]; twice {
					c.say("portal %s: %s belongs to records %s and %s", p.ID, name, other, k.ID)
				}
				owners[name] = k.ID
			}
		}
		for _, k := range state.Contacts {
			if now, ok := c.world.HubSpot.Contact(p.ID, k.Email); !ok || now.Email != strings.ToLower(k.Email) {
				c.say("portal %s: the primary address %s was changed", p.ID, k.Email)
			}
		}
	}
}

func prefixed(addresses []string) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = "address " + a
	}
	return out
}
