package ops

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// EventsArgs selects events; empty members select all.
type EventsArgs struct {
	Status     string `json:"status,omitzero"` // an event's status, or open: not settled
	Code       string `json:"code,omitzero"`
	Portal     string `json:"portal,omitzero"`
	Brand      string `json:"brand,omitzero"`
	Product    string `json:"product,omitzero"`
	ContactKey string `json:"contactKey,omitzero"` // any key of the contact
	Request    string `json:"request,omitzero"`    // its id, or the caller's idempotency key
	Limit      int    `json:"limit,omitzero"`      // default 50, at most 1000
}

// Events is a list of events, the newest first.
type Events struct {
	Events []postgres.EventRow `json:"events"`
}

// Events lists events.
func (o *Ops) Events(ctx context.Context, in EventsArgs) (Events, error) {
	db, err := o.db()
	if err != nil {
		return Events{}, err
	}
	if in.Status != "" && in.Status != "open" && !slices.Contains(outbox.Statuses, outbox.Status(in.Status)) {
		return Events{}, usage("status %q is not one of open, %v", in.Status, outbox.Statuses)
	}
	rows, err := db.Events(ctx, postgres.EventFilter{
		Status: in.Status, Code: in.Code, Portal: in.Portal, Brand: in.Brand, Product: in.Product,
		ContactKey: in.ContactKey, Request: in.Request, Limit: limitOf(in.Limit),
	})
	return Events{rows}, err
}

// EventArgs names one event, or the request whose newest event is meant.
type EventArgs struct {
	ID string `json:"id"`
}

// EventDetail is one event with everything around it.
type EventDetail struct {
	Event        postgres.EventRow         `json:"event"`
	Subscription *postgres.SubscriptionRow `json:"subscription"` // null: none was made
	Receipts     []postgres.ReceiptRow     `json:"receipts"`     // what HubSpot confirmed of the event
	// History is the subscription's other events, the newest first.
	History     []postgres.EventRow `json:"history"`
	Explanation Explanation         `json:"explanation"`
}

// historyRows is how much of a subscription's history is shown.
const historyRows = 20

// ShowEvent returns an event with its subscription, its receipts, the events around it,
// and what all that means.
func (o *Ops) ShowEvent(ctx context.Context, in EventArgs) (EventDetail, error) {
	db, err := o.db()
	if err != nil {
		return EventDetail{}, err
	}
	id, err := uuid.Parse(in.ID)
	if err != nil {
		return EventDetail{}, usage("an event or a request is named by its id, a UUID; 'hubsync events list' shows them")
	}
	var d EventDetail
	var found bool
	if d.Event, found, err = db.Event(ctx, id); err != nil {
		return EventDetail{}, err
	}
	if !found {
		return EventDetail{}, fmt.Errorf("there is no event and no request %s; settled ones may have moved to the history", id)
	}
	e := d.Event
	if d.Subscription, err = db.Subscription(ctx, e.ContactKey, e.Brand, e.Product); err != nil {
		return EventDetail{}, err
	}
	if d.Receipts, err = db.Receipts(ctx, []string{e.ID}); err != nil {
		return EventDetail{}, err
	}
	around, err := db.Events(ctx, postgres.EventFilter{ContactKey: e.ContactKey, Brand: e.Brand, Product: e.Product, Limit: historyRows + 1})
	if err != nil {
		return EventDetail{}, err
	}
	d.History = slices.DeleteFunc(around, func(other postgres.EventRow) bool { return other.ID == e.ID })
	holds, err := o.holds(ctx, db, e)
	if err != nil {
		return EventDetail{}, err
	}
	d.Explanation = explain(e, d.Subscription, holds, o.cfg.Clock())
	return d, nil
}

// holds says what keeps an event's portal, brand or lane from going on; empty: nothing.
func (o *Ops) holds(ctx context.Context, db *postgres.DB, e postgres.EventRow) (string, error) {
	portals, err := db.Portals(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range portals {
		if p.ID == e.Portal && p.PausedUntil != nil && (e.Lane != int16(outbox.LaneOptOut) || p.PauseOptOuts) {
			return "portal " + p.ID + " is paused: " + p.PauseReason, nil
		}
		if p.ID == e.Portal && p.Recovering {
			return "HubSpot is away for portal " + p.ID + ", or was until just now", nil
		}
	}
	pauses, err := db.Pauses(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range pauses {
		if (p.PortalID == "" || p.PortalID == e.Portal) && (p.BrandID == "" || p.BrandID == e.Brand) &&
			(p.Lane == postgres.EveryLane || int16(p.Lane) == e.Lane) && (e.Lane != int16(outbox.LaneOptOut) || p.OptOuts) {
			s := pauseStatus(p)
			return scopeText(s.Portal, s.Brand, s.Lane) + " is paused: " + p.Reason, nil
		}
	}
	return "", nil
}
