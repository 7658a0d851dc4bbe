package ops

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/routing"
)

// What a change of a mapping may be.
const (
	brandAdded     = "brand added"
	productAdded   = "product added"
	productRemoved = "product removed"
	targetAdded    = "target added"
	targetRemoved  = "target removed"
	portalAdded    = "portal added"
)

// Change is one difference between what is active and a routes file. Brand is empty for a
// change of a portal.
type Change struct {
	Portal  string `json:"portal,omitzero"`
	Brand   string `json:"brand,omitzero"`
	Product string `json:"product,omitzero"`
	What    string `json:"what"`
	Before  string `json:"before,omitzero"`
	After   string `json:"after,omitzero"`
}

// difference lists what a file changes, in its order; what it does not name stays.
func difference(active, file *routing.File) []Change {
	var changes []Change
	for _, p := range file.Portals {
		i := slices.IndexFunc(active.Portals, func(o routing.Portal) bool { return o.ID == p.ID })
		if i < 0 {
			changes = append(changes, Change{Portal: p.ID, What: portalAdded, After: fmt.Sprint("account ", p.HubID)})
			continue
		}
		changes = append(changes, portalChanges(active.Portals[i], p)...)
	}
	for _, b := range file.Brands {
		i := slices.IndexFunc(active.Brands, func(o routing.Brand) bool { return o.ID == b.ID })
		if i < 0 {
			changes = append(changes, Change{Brand: b.ID, What: brandAdded, After: fmt.Sprintf("%d products in portal %s", len(b.Products), b.Portal)})
			continue
		}
		changes = append(changes, brandChanges(active.Brands[i], b)...)
	}
	return changes
}

// field is one value of the active mapping and of the file.
type field struct {
	name          string
	before, after any
}

func changed(base Change, fields ...field) []Change {
	var changes []Change
	for _, f := range fields {
		if f.before != f.after {
			c := base
			c.What, c.Before, c.After = f.name, fmt.Sprint(f.before), fmt.Sprint(f.after)
			changes = append(changes, c)
		}
	}
	return changes
}

func portalChanges(before, after routing.Portal) []Change {
	return changed(Change{Portal: after.ID},
		field{"hubId", before.HubID, after.HubID}, field{"apiVersion", before.APIVersion, after.APIVersion},
		field{"burst limit", before.Burst.Limit, after.Burst.Limit},
		field{"burst window", before.Burst.WindowDuration(), after.Burst.WindowDuration()},
		field{"daily", before.Daily, after.Daily}, field{"timeZone", before.TimeZone, after.TimeZone}, field{"plan", before.Plan, after.Plan})
}

func brandChanges(before, after routing.Brand) []Change {
	changes := changed(Change{Brand: after.ID}, field{"name", before.Name, after.Name}, field{"portal", before.Portal, after.Portal},
		field{"businessUnitId", before.BusinessUnitID, after.BusinessUnitID})
	for _, p := range after.Products {
		i := slices.IndexFunc(before.Products, func(o routing.Product) bool { return o.ID == p.ID })
		if i < 0 {
			changes = append(changes, Change{Brand: after.ID, Product: p.ID, What: productAdded, After: fmt.Sprint("subscription type ", p.SubscriptionTypeID)})
			continue
		}
		changes = append(changes, productChanges(after.ID, before.Products[i], p)...)
	}
	for _, p := range before.Products {
		if !slices.ContainsFunc(after.Products, func(o routing.Product) bool { return o.ID == p.ID }) {
			changes = append(changes, Change{Brand: after.ID, Product: p.ID, What: productRemoved, Before: fmt.Sprint("subscription type ", p.SubscriptionTypeID)})
		}
	}
	return changes
}

func productChanges(brand string, before, after routing.Product) []Change {
	base := Change{Brand: brand, Product: after.ID}
	changes := changed(base, field{"subscriptionTypeId", before.SubscriptionTypeID, after.SubscriptionTypeID},
		field{"legalBasis", before.LegalBasis, after.LegalBasis}, field{"channel", before.Channel, after.Channel})
	if reflect.DeepEqual(before.Targets, after.Targets) {
		return changes
	}
	for _, t := range before.Targets {
		if !slices.Contains(after.Targets, t) {
			changes = append(changes, Change{Brand: brand, Product: after.ID, What: targetRemoved, Before: describe(t)})
		}
	}
	for _, t := range after.Targets {
		if !slices.Contains(before.Targets, t) {
			changes = append(changes, Change{Brand: brand, Product: after.ID, What: targetAdded, After: describe(t)})
		}
	}
	if len(changes) == 0 && len(before.Targets)+len(after.Targets) > 0 {
		changes = append(changes, Change{Brand: brand, Product: after.ID, What: "order of targets"})
	}
	return changes
}

// describe shows a target in one line.
func describe(t routing.Target) string {
	text, err := json.Marshal(t)
	if err != nil {
		return t.Kind
	}
	return strings.ReplaceAll(string(text), `"`, "")
}
