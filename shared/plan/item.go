// Package plan turns claimed events into what must be said to HubSpot: mapping
// snapshot + decision + contact → preference writes, consent verdicts, contact
// writes and segment memberships, merged over a whole message. It is pure: no
// I/O, no clock, the same input gives the same plan.
package plan

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

// Item is one claimed event with everything that planning needs.
type Item struct {
	EventID     uuid.UUID
	Fence       int64 // of the claim that plans; with EventID it names the attempt
	Desired     outbox.DesiredState
	Snapshot    routing.Snapshot
	ContactKey  string // external_contact_id in HubSpot
	Email       string // normalised: HubSpot lower-cases too
	ConsentAt   time.Time
	LegalBasis  string // of the request; empty: the route's
	Explanation string // of the request's consent
	// OwnOptOut is our last confirmed opt-out of this subscription.
	OwnOptOut outbox.Stamp
	// OwnWide are HubSpot's times of wide opt-outs of ours that cover this subscription.
	OwnWide []time.Time
}

// ErrConfiguration says that a snapshot contradicts itself: no retry mends it.
var ErrConfiguration = errors.New("mapping contradicts itself")

// CheckSnapshot returns an ErrConfiguration for a snapshot that cannot be carried
// out beside its preference: an unknown target kind, or one property asked to hold
// two values. The preference is valid all the same, and an opt-out must still run.
func CheckSnapshot(s routing.Snapshot) error {
	properties := map[string]routing.Target{}
	for _, t := range s.Targets {
		switch t.Kind {
		case routing.ContactProperty:
			if other, twice := properties[t.Name]; twice && other != t {
				return fmt.Errorf("%w: property %s is asked for two values", ErrConfiguration, t.Name)
			}
			properties[t.Name] = t
		case routing.ManualSegment, routing.BrandAssignment:
		default:
			return fmt.Errorf("%w: unknown target kind %q", ErrConfiguration, t.Kind)
		}
	}
	return nil
}

// Preference is one write of a communication preference.
type Preference struct {
	Email          string
	SubscriptionID int64
	Subscribe      bool
	LegalBasis     string
	Explanation    string
}

// Preference returns the write that shows the item's decision. Its explanation
// ends with our marker, by which an opt-out of ours is known again even when the
// reply that carried its timestamp was lost.
func (i Item) Preference(env string) Preference {
	basis := i.LegalBasis
	if basis == "" {
		basis = i.Snapshot.LegalBasis
	}
	return Preference{
		Email:          i.Email,
		SubscriptionID: i.Snapshot.SubscriptionTypeID,
		Subscribe:      i.Desired == outbox.Subscribed,
		LegalBasis:     basis,
		Explanation:    withMarker(i.Explanation, marker(env, i.Desired, outbox.Attempt{Event: i.EventID, Fence: i.Fence})),
	}
}
