package ops

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"hubsync/shared/hubspot"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
	"hubsync/shared/routing"
)

// account is what a HubSpot account has of what a mapping may name.
type account struct {
	info        hubspot.Account
	definitions map[int64]hubspot.Definition
	properties  map[string]hubspot.Property
	lists       map[string]hubspot.List
	brands      map[int64]bool // business units that show somewhere; nil: none shows
}

// readAccount reads an account: four calls, and one more for every further 100 lists. A
// part that HubSpot refuses becomes a finding and stays nil; any other failure ends it.
func (o *Ops) readAccount(ctx context.Context, p postgres.Portal, lists []string, f *findings) (*account, error) {
	client, err := o.cfg.Client(p.ID, p.APIVersion)
	if err != nil {
		return nil, err
	}
	a := &account{}
	steps := []struct {
		what, scope string
		read        func() error
	}{
		{"the account", "", func() (err error) { a.info, err = client.AccountInfo(ctx); return err }},
		{"subscription types", "communication_preferences.read", func() error { return a.readDefinitions(ctx, client) }},
		{"properties", "crm.schemas.contacts.read", func() error { return a.readProperties(ctx, client) }},
	}
	slices.Sort(lists)
	lists = slices.Compact(lists)
	if len(lists) > 0 {
		a.lists = map[string]hubspot.List{}
	}
	for part := range slices.Chunk(lists, hubspot.MaxInputs) {
		steps = append(steps, struct {
			what, scope string
			read        func() error
		}{"lists", "crm.lists.read", func() error { return a.readLists(ctx, client, part) }})
	}
	for _, s := range steps {
		if err := o.spend(ctx, p); err != nil {
			return nil, err
		}
		err := s.read()
		var he *hubspot.Error
		if errors.As(err, &he) && he.Kind == hubspot.KindForbidden {
			f.wrong("portal "+p.ID, "give the app the scope "+s.scope, "HubSpot refuses to show %s (%s)", s.what, he.Code)
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	a.findBrands()
	return a, nil
}

func (a *account) readDefinitions(ctx context.Context, c *hubspot.Client) error {
	list, err := c.Definitions(ctx)
	if err != nil {
		return err
	}
	a.definitions = map[int64]hubspot.Definition{}
	for _, d := range list {
		a.definitions[d.ID] = d
	}
	return nil
}

func (a *account) readProperties(ctx context.Context, c *hubspot.Client) error {
	list, err := c.Properties(ctx)
	if err != nil {
		return err
	}
	a.properties = map[string]hubspot.Property{}
	for _, p := range list {
		a.properties[p.Name] = p
	}
	return nil
}

func (a *account) readLists(ctx context.Context, c *hubspot.Client, ids []string) error {
	found, err := c.Lists(ctx, ids)
	for id, l := range found {
		a.lists[id] = l
	}
	return err
}

// findBrands collects the business units: HubSpot lists them only per user, but they are
// the options of the property that assigns them, and stand at their subscription types.
func (a *account) findBrands() {
	for _, option := range a.properties[plan.BrandsProperty].Options {
		if id, err := strconv.ParseInt(option, 10, 64); err == nil {
			a.addBrand(id)
		}
	}
	for _, d := range a.definitions {
		if d.BusinessUnitID != 0 {
			a.addBrand(d.BusinessUnitID)
		}
	}
}

func (a *account) addBrand(id int64) {
	if a.brands == nil {
		a.brands = map[int64]bool{}
	}
	a.brands[id] = true
}

// listsOf returns the lists that a file's targets in a portal name.
func listsOf(file *routing.File, portal string) []string {
	var ids []string
	for _, b := range file.Brands {
		if b.Portal != portal {
			continue
		}
		for _, p := range b.Products {
			for _, t := range p.Targets {
				if t.Kind == routing.ManualSegment {
					ids = append(ids, t.ListID)
				}
			}
		}
	}
	return ids
}

// portalOf is a file's portal in the form that the budget and the clients take.
func portalOf(p routing.Portal) postgres.Portal {
	return postgres.Portal{
		ID: p.ID, HubID: p.HubID, APIVersion: p.APIVersion, BurstLimit: p.Burst.Limit, BurstWindow: p.Burst.WindowDuration(),
		DailyLimit: p.Daily, TimeZone: p.TimeZone,
	}
}
