package plan

import (
	"slices"
	"time"

	"hubsync/shared/outbox"
)

// Observed is what HubSpot shows for one address: the product's preference and
// the wide opt-outs that cover it.
type Observed struct {
	Unsubscribed bool
	At           time.Time // when the status was set, by HubSpot's clock; zero: unknown
	Explanation  string    // where the portal returns it
	Wide         []WideOptOut
}

// OptedOutOf reports whether exactly this wide opt-out is shown.
func (o Observed) OptedOutOf(businessUnitID int64) bool {
	return slices.ContainsFunc(o.Wide, func(w WideOptOut) bool { return w.BusinessUnitID == businessUnitID })
}

// WideOptOut is an opt-out of everything in the portal, or in one brand of it.
type WideOptOut struct {
	BusinessUnitID int64 // 0: the whole portal
	At             time.Time
}

// BlockingOptOut returns the time of an opt-out that forbids to send this
// subscribe: one in HubSpot that is not older than the item's consent and is not
// our own echo. A tie blocks. HubSpot's clock counts milliseconds, so the consent
// is compared at that grain: an opt-out later in the same millisecond must win.
func (i Item) BlockingOptOut(env string, o Observed) (time.Time, bool) {
	var newest time.Time
	blocked := false
	note := func(at time.Time) {
		// An opt-out without a time cannot be shown to be older: it blocks.
		if at.IsZero() {
			at = i.ConsentAt
		}
		if at.Before(i.ConsentAt.Truncate(time.Millisecond)) {
			return
		}
		blocked = true
		if at.After(newest) {
			newest = at
		}
	}
	if o.Unsubscribed && !i.isEcho(env, o) {
		note(o.At)
	}
	for _, w := range o.Wide {
		ours := !w.At.IsZero() && slices.ContainsFunc(i.OwnWide, w.At.Equal)
		if !ours && (w.BusinessUnitID == 0 || w.BusinessUnitID == i.Snapshot.BusinessUnitID) {
			note(w.At)
		}
	}
	return newest, blocked
}

// Covered reports whether a wide opt-out is shown that covers the item. One that may be
// lifted does not block it, but what is shown as subscribed is then not mailable.
func (i Item) Covered(o Observed) bool {
	return o.OptedOutOf(0) || (i.Snapshot.BusinessUnitID != 0 && o.OptedOutOf(i.Snapshot.BusinessUnitID))
}

// isEcho reports whether the observed opt-out is one that we wrote: its time is
// the one that a confirmed write of ours was answered with; or its explanation
// carries the marker of an attempt whose answer was lost. The marker of the attempt
// whose answer we do have, under another time, is a person's later act in a portal
// that kept the explanation.
func (i Item) isEcho(env string, o Observed) bool {
	if !i.OwnOptOut.At.IsZero() && o.At.Equal(i.OwnOptOut.At) {
		return true
	}
	attempt, marked := OwnOptOutMarker(env, o.Explanation)
	return marked && attempt != i.OwnOptOut.Attempt
}

// StateOf names the state that HubSpot must show for a decision.
func StateOf(desired outbox.DesiredState) string {
	if desired == outbox.Subscribed {
		return "SUBSCRIBED"
	}
	return "UNSUBSCRIBED"
}
