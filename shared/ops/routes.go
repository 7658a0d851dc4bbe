package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hubsync/shared/postgres"
	"hubsync/shared/routing"
)

// RoutesFile is the text of a routes file, JSON or YAML.
type RoutesFile struct {
	Content string `json:"content"`
}

// Validation is what a check of a routes file found. OK: nothing that must be mended.
type Validation struct {
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
}

// RoutesValidate reads what HubSpot has of what a routes file names, and reports every
// mismatch; it also compares with the brands that are active and not in the file.
func (o *Ops) RoutesValidate(ctx context.Context, in RoutesFile) (Validation, error) {
	file, f, err := o.validate(ctx, in)
	if err != nil || file == nil {
		return Validation{Findings: f.list}, err
	}
	return Validation{!hasErrors(f.list), f.list}, nil
}

// validate returns no file where the text is not one; the findings say why.
func (o *Ops) validate(ctx context.Context, in RoutesFile) (*routing.File, *findings, error) {
	f := &findings{}
	file, err := routing.Parse([]byte(in.Content))
	if err != nil {
		f.wrong("file", "mend the file", "%v", err)
		return nil, f, nil
	}
	if o.cfg.DB != nil {
		active, err := o.cfg.DB.ActiveRoutes(ctx)
		if err != nil {
			return nil, f, err
		}
		compareOthers(file, active.File, f)
	}
	if o.cfg.Budget == nil {
		f.warn("this check", "set REDIS_URL", "its HubSpot calls are not counted in the shared budget")
	}
	for _, p := range file.Portals {
		a, err := o.readAccount(ctx, portalOf(p), listsOf(file, p.ID), f)
		if err != nil {
			return nil, f, fmt.Errorf("validate portal %s: %w", p.ID, err)
		}
		a.compareAccount(p, f)
		a.compareKey(p.ID, f)
		for _, b := range file.Brands {
			if b.Portal == p.ID {
				a.compare(b, f)
			}
		}
	}
	return file, f, nil
}

// compareOthers reports what brands outside the file own already: they stay active.
func compareOthers(file, active *routing.File, f *findings) {
	owners := map[string]string{}
	for _, b := range active.Brands {
		if slices.ContainsFunc(file.Brands, func(other routing.Brand) bool { return other.ID == b.ID }) {
			continue
		}
		for _, p := range b.Products {
			for _, cell := range cellsOf(b, p) {
				owners[cell] = b.ID + "/" + p.ID
			}
		}
	}
	for _, b := range file.Brands {
		for _, p := range b.Products {
			for _, cell := range cellsOf(b, p) {
				if owner := owners[cell]; owner != "" {
					f.wrong(b.ID+"/"+p.ID, "put brand "+owner+" into the file too, or name another", "%s belongs to %s, which is active and not in this file", cell, owner)
				}
			}
		}
	}
}

// cellsOf names what belongs to one product of one brand alone.
func cellsOf(b routing.Brand, p routing.Product) []string {
	cells := []string{fmt.Sprintf("portal %s: subscription type %d", b.Portal, p.SubscriptionTypeID)}
	for _, t := range p.Targets {
		if t.Kind == routing.ContactProperty && !t.Multi {
			cells = append(cells, fmt.Sprintf("portal %s: property %s", b.Portal, t.Name))
		}
	}
	return cells
}

// RoutesPlan is what applying a routes file would change.
type RoutesPlan struct {
	Changes []Change `json:"changes"`
	// Versions: of each brand that would get a new one.
	Versions map[string]int `json:"versions"`
	Kept     []string       `json:"kept"` // active brands that the file does not name
	Findings []Finding      `json:"findings"`
}

// RoutesPlan shows the difference between a routes file and what is active. It makes no
// call to HubSpot.
func (o *Ops) RoutesPlan(ctx context.Context, in RoutesFile) (RoutesPlan, error) {
	db, err := o.db()
	if err != nil {
		return RoutesPlan{}, err
	}
	file, err := routing.Parse([]byte(in.Content))
	if err != nil {
		return RoutesPlan{}, usage("%v", err)
	}
	active, err := db.ActiveRoutes(ctx)
	if err != nil {
		return RoutesPlan{}, err
	}
	f := &findings{}
	compareOthers(file, active.File, f)
	plan := RoutesPlan{Changes: difference(active.File, file), Versions: map[string]int{}}
	for _, c := range plan.Changes {
		if c.Brand == "" {
			continue
		}
		plan.Versions[c.Brand] = active.Versions[c.Brand] + 1
		if c.Product != "" && c.What == productRemoved {
			if err := warnOfSubscriptions(ctx, db, c, f); err != nil {
				return RoutesPlan{}, err
			}
		}
	}
	for _, b := range active.File.Brands {
		if !slices.ContainsFunc(file.Brands, func(other routing.Brand) bool { return other.ID == b.ID }) {
			plan.Kept = append(plan.Kept, b.ID)
		}
	}
	plan.Findings = f.list
	return plan, nil
}

func warnOfSubscriptions(ctx context.Context, db *postgres.DB, c Change, f *findings) error {
	n, err := db.CountSubscriptions(ctx, c.Brand, c.Product)
	if err != nil || n == 0 {
		return err
	}
	f.warn(c.Brand+"/"+c.Product, "keep the product until its callers are gone",
		"%d subscriptions exist; without the product their decisions, opt-outs included, are answered 404", n)
	return nil
}

// RoutesApplied is what applying a routes file changed.
type RoutesApplied struct {
	OK       bool           `json:"ok"`       // false: refused, Findings say why
	Versions map[string]int `json:"versions"` // of the brands that changed
	Findings []Finding      `json:"findings"`
}

// RoutesApply checks a routes file as RoutesValidate does, and makes it active in one
// transaction: each brand that changed gets its next version. It refuses an invalid one.
// Events on their way stay on their snapshot.
func (o *Ops) RoutesApply(ctx context.Context, in RoutesFile) (RoutesApplied, error) {
	db, err := o.db()
	if err != nil {
		return RoutesApplied{}, err
	}
	file, f, err := o.validate(ctx, in)
	if err != nil {
		return RoutesApplied{}, err
	}
	if file == nil || hasErrors(f.list) {
		return RoutesApplied{Findings: f.list}, nil
	}
	applied, err := db.ApplyRoutes(ctx, file)
	if err != nil {
		return RoutesApplied{}, err
	}
	return RoutesApplied{true, maps.Clone(applied.Versions), f.list}, nil
}

// HistoryArgs selects mapping versions.
type HistoryArgs struct {
	Brand string `json:"brand,omitzero"` // empty: all
	Limit int    `json:"limit,omitzero"` // default 50
}

// History lists mapping versions, the newest first.
type History struct {
	Versions []postgres.MappingVersion `json:"versions"`
}

// RoutesHistory lists the versions of brands' mappings.
func (o *Ops) RoutesHistory(ctx context.Context, in HistoryArgs) (History, error) {
	db, err := o.db()
	if err != nil {
		return History{}, err
	}
	versions, err := db.MappingVersions(ctx, in.Brand, limitOf(in.Limit))
	return History{versions}, err
}

// Limits of lists in an answer.
const (
	defaultLimit = 50
	mostRows     = 1000
)

func limitOf(n int) int {
	if n <= 0 {
		return defaultLimit
	}
	return min(n, mostRows)
}
