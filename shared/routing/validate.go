package routing

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// legalBases are the ones that HubSpot knows (communication preferences v4).
var legalBases = []string{
	"CONSENT_WITH_NOTICE", "LEGITIMATE_INTEREST_CLIENT", "LEGITIMATE_INTEREST_OTHER",
	"LEGITIMATE_INTEREST_PQL", "NON_GDPR", "PERFORMANCE_OF_CONTRACT", "PROCESS_AND_STORE",
}

var (
	apiVersions  = []string{"2026-03", "2026-09", "v4"}
	plans        = []string{"enterprise", "professional"}
	identifier   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`) // also a flow-control key and a path segment
	propertyName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,99}$`)
)

// KnownLegalBasis reports whether HubSpot knows this legal basis.
func KnownLegalBasis(basis string) bool { return slices.Contains(legalBases, basis) }

// checker collects every problem of a file.
type checker struct {
	problems []error
	portals  map[string]bool
	cells    map[string]string // what may be claimed once in a portal → who claimed it
}

func (f *File) validate() error {
	c := &checker{portals: map[string]bool{}, cells: map[string]string{}}
	if len(f.Portals) == 0 {
		c.say("no portals: name at least one HubSpot account")
	}
	for _, p := range f.Portals {
		c.portal(p)
	}
	brands := map[string]bool{}
	for _, b := range f.Brands {
		if brands[b.ID] {
			c.say("brand %q stands twice", b.ID)
		}
		brands[b.ID] = true
		c.brand(b)
	}
	if len(c.problems) > 0 {
		return fmt.Errorf("routes file: %w", errors.Join(c.problems...))
	}
	return nil
}

func (c *checker) say(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

func (c *checker) portal(p Portal) {
	if !identifier.MatchString(p.ID) {
		c.say("portal id %q: use 1 to 100 of A-Z a-z 0-9 _ . -", p.ID)
	}
	if c.portals[p.ID] {
		c.say("portal %q stands twice", p.ID)
	}
	c.portals[p.ID] = true
	if !slices.Contains(apiVersions, p.APIVersion) {
		c.say("portal %s: apiVersion %q is not one of %v", p.ID, p.APIVersion, apiVersions)
	}
	if !slices.Contains(plans, p.Plan) {
		c.say("portal %s: plan %q is not one of %v", p.ID, p.Plan, plans)
	}
	if d, err := time.ParseDuration(p.Burst.Window); err != nil || d < time.Second || d > time.Hour {
		c.say("portal %s: burst window %q is not a duration from 1s to 1h", p.ID, p.Burst.Window)
	}
	if p.Burst.Limit < 10 {
		c.say("portal %s: burst limit %d is below 10 calls a window; a message alone can need that many", p.ID, p.Burst.Limit)
	}
	if p.Daily < p.Burst.Limit {
		c.say("portal %s: daily limit %d is below its burst limit %d", p.ID, p.Daily, p.Burst.Limit)
	}
	if _, err := time.LoadLocation(p.TimeZone); err != nil {
		c.say("portal %s: time zone %q is unknown", p.ID, p.TimeZone)
	}
}

func (c *checker) brand(b Brand) {
	if !identifier.MatchString(b.ID) {
		c.say("brand id %q: use 1 to 100 of A-Z a-z 0-9 _ . -", b.ID)
	}
	if !c.portals[b.Portal] {
		c.say("brand %s: portal %q is not in this file", b.ID, b.Portal)
	}
	products := map[string]bool{}
	for _, p := range b.Products {
		where := b.ID + "/" + p.ID
		if !identifier.MatchString(p.ID) {
			c.say("%s: product id: use 1 to 100 of A-Z a-z 0-9 _ . -", where)
		}
		if products[p.ID] {
			c.say("%s: product stands twice", where)
		}
		products[p.ID] = true
		c.product(b, p, where)
	}
}

func (c *checker) product(b Brand, p Product, where string) {
	if p.Channel != "EMAIL" {
		c.say("%s: channel %q: HubSpot's preferences know EMAIL only", where, p.Channel)
	}
	if p.SubscriptionTypeID <= 0 {
		c.say("%s: subscriptionTypeId is missing: the communication preference is always required", where)
	}
	if !KnownLegalBasis(p.LegalBasis) {
		c.say("%s: legalBasis %q is not one of %v", where, p.LegalBasis, legalBases)
	}
	c.claim(fmt.Sprintf("portal %s: subscription type %d", b.Portal, p.SubscriptionTypeID), where)
	properties := map[string]bool{}
	for _, t := range p.Targets {
		switch t.Kind {
		case ContactProperty:
			if properties[t.Name] {
				c.say("%s: property %s stands twice", where, t.Name)
			}
			properties[t.Name] = true
			c.property(b, t, where)
		case ManualSegment:
			if t.ListID == "" {
				c.say("%s: segment without listId", where)
			}
		case BrandAssignment:
			if t.BusinessUnitID <= 0 {
				c.say("%s: brand assignment without businessUnitId", where)
			}
		default:
			c.say("%s: target kind %q is not one of CONTACT_PROPERTY, MANUAL_SEGMENT, BRAND_ASSIGNMENT", where, t.Kind)
		}
	}
}

func (c *checker) property(b Brand, t Target, where string) {
	if !propertyName.MatchString(t.Name) {
		c.say("%s: property name %q: HubSpot's are lower-case letters, digits and _", where, t.Name)
	}
	if t.Subscribed == t.Unsubscribed {
		c.say("%s: property %s has one value for both states", where, t.Name)
	}
	for _, value := range []string{t.Subscribed, t.Unsubscribed} {
		if strings.HasPrefix(value, "$") && value != ConsentDate && value != ConsentTime {
			c.say("%s: property %s: value %q is not one of %s, %s; other values do not begin with $", where, t.Name, value, ConsentDate, ConsentTime)
		}
	}
	owner := where
	if t.Multi {
		owner = "the subscriptions that share its values (multi)"
		if t.Unsubscribed != "" || t.Subscribed == "" || strings.ContainsAny(t.Subscribed, ";$") {
			c.say("%s: property %s is multi: subscribed names one entry without a semicolon, and unsubscribed stays empty", where, t.Name)
		}
	}
	c.claim(fmt.Sprintf("portal %s: property %s", b.Portal, t.Name), owner)
}

// claim notes that a cell of HubSpot belongs to one (brand, product): two owners
// would overwrite each other for ever.
func (c *checker) claim(cell, owner string) {
	if other, taken := c.cells[cell]; taken && other != owner {
		c.say("%s: %s already belongs to %s", owner, cell, other)
		return
	}
	c.cells[cell] = owner
}
