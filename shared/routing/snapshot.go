// Package routing turns a routes file (portals, brands, products, targets) into
// mapping versions and into the snapshot that every event carries: what exactly
// HubSpot must show for one product of one brand. An event keeps its snapshot, so
// that a later change of the mapping cannot alter what is already on its way.
package routing

// Target kinds beside the communication preference, which every route has.
const (
	ContactProperty = "CONTACT_PROPERTY"
	ManualSegment   = "MANUAL_SEGMENT"
	BrandAssignment = "BRAND_ASSIGNMENT"
)

// Values of a CONTACT_PROPERTY that are filled in from the decision.
const (
	ConsentDate = "$consentDate" // of a date property: the UTC day of the consent
	ConsentTime = "$consentTime" // of a datetime property: the consent's time
)

// Snapshot is the resolved mapping of one (brand, product): the event's payload.
// It holds no personal data.
type Snapshot struct {
	Portal             string   `json:"portal"`
	BrandID            string   `json:"brandId"`
	ProductID          string   `json:"productId"`
	MappingVersion     int      `json:"mappingVersion"`
	Channel            string   `json:"channel"`
	SubscriptionTypeID int64    `json:"subscriptionTypeId"`
	BusinessUnitID     int64    `json:"businessUnitId,omitempty"`
	LegalBasis         string   `json:"legalBasis"`
	Targets            []Target `json:"targets,omitempty"`
	// Wide: the event is an opt-out of everything, and has no subscription type.
	Wide Scope `json:"wide,omitempty"`
}

// Scope is how far an opt-out of everything goes.
type Scope string

// The scopes. A brand without a business unit has no wide opt-out in HubSpot: there the
// opt-outs of its single subscriptions say it all.
const (
	WidePortal Scope = "portal"
	WideBrand  Scope = "brand"
)

// SaysNothing reports whether a wide opt-out has no call of its own in HubSpot.
func (s Snapshot) SaysNothing() bool { return s.Wide == WideBrand && s.BusinessUnitID == 0 }

// Target is one place beside the preference that shows the subscription.
type Target struct {
	Kind     string `json:"kind"`
	Required bool   `json:"required"`
	// CONTACT_PROPERTY: the property and its two values. An empty value clears it;
	// ConsentDate and ConsentTime stand for the decision's own time.
	Name         string `json:"name,omitempty"`
	Subscribed   string `json:"subscribed,omitempty"`
	Unsubscribed string `json:"unsubscribed,omitempty"`
	// Multi: the property is a list of values (several checkboxes) that subscriptions
	// share. Subscribed is the entry of this one; Unsubscribed stays empty.
	Multi bool `json:"multi,omitempty"`
	// MANUAL_SEGMENT
	ListID string `json:"listId,omitempty"`
	// BRAND_ASSIGNMENT
	BusinessUnitID int64 `json:"businessUnitId,omitempty"`
}
