package reconcile

import (
	"context"
	"errors"
	"slices"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
)

// look is a portal's turn in a run.
type look struct {
	run    *checkRun
	portal postgres.Portal
	client *hubspot.Client
	lane   budget.Lane
}

// seen is what HubSpot shows for one subscription, and what others want of its contact.
type seen struct {
	state    string
	observed plan.Observed
	record   plan.Record
	others   plan.Wanted
}

// at looks at up to a hundred subscriptions with three calls: statuses, wide opt-outs,
// contacts; and a fourth where lists are required.
func (l *look) at(ctx context.Context, due []postgres.Checkable) error {
	items := make([]plan.Item, 0, len(due))
	readable := due[:0:0]
	for _, c := range due {
		item, err := itemOf(c)
		if err != nil {
			l.run.Logger.Error("not checked", "error", err.Error())
			l.run.result.Failed++
			continue
		}
		items, readable = append(items, item), append(readable, c)
	}
	shown, err := l.read(ctx, items)
	if err != nil {
		return err
	}
	others, err := l.wanted(ctx, items)
	if err != nil {
		return err
	}
	var equal []postgres.Checkable
	var states []string
	for i, c := range readable {
		l.run.result.Checked++
		s, ok := shown(items[i])
		if !ok {
			l.run.result.Failed++
			continue
		}
		s.others = others[items[i].ContactKey]
		same, err := l.run.repair(ctx, c, items[i], s)
		if err != nil {
			return err
		}
		if same {
			equal, states = append(equal, c), append(states, s.state)
		}
	}
	return l.run.DB.NoteEqual(ctx, equal, states, l.run.Audit, l.run.Late)
}

// read makes the three calls and returns how to find an item's part in them; false: the
// answers do not say.
func (l *look) read(ctx context.Context, items []plan.Item) (func(plan.Item) (seen, bool), error) {
	var emails []string
	for _, i := range items {
		emails = append(emails, i.Email)
	}
	slices.Sort(emails)
	emails = slices.Compact(emails)
	if len(emails) == 0 {
		return func(plan.Item) (seen, bool) { return seen{}, false }, nil
	}
	var statuses map[string]hubspot.ReadResult
	var wide map[string]hubspot.WideResult
	contacts := map[string]hubspot.ContactRead{}
	properties := names(items)
	readsContact := len(properties) > 0 || slices.ContainsFunc(items, func(i plan.Item) bool { return len(i.Lists()) > 0 })
	err := l.call(ctx, func(ctx context.Context) (err error) { statuses, err = l.statuses(ctx, emails); return err })
	if err == nil {
		err = l.call(ctx, func(ctx context.Context) (err error) { wide, err = l.wide(ctx, emails); return err })
	}
	if err == nil && readsContact {
		err = l.call(ctx, func(ctx context.Context) (err error) {
			contacts, err = l.client.ReadContacts(ctx, emails, "email", properties)
			return err
		})
	}
	lists := map[string][]string{}
	if records := listReaders(items, contacts); err == nil && len(records) > 0 {
		err = l.call(ctx, func(ctx context.Context) (err error) { lists, err = l.client.ReadMemberships(ctx, records); return err })
	}
	if err != nil {
		return nil, err
	}
	return func(i plan.Item) (seen, bool) {
		contact := contacts[lower(i.Email)]
		s, ok := l.find(i, statuses[lower(i.Email)], wide[lower(i.Email)], contact, readsContact)
		s.record.Lists = lists[contact.RecordID]
		return s, ok
	}, nil
}

// listReaders are the records whose memberships matter.
func listReaders(items []plan.Item, contacts map[string]hubspot.ContactRead) []string {
	var records []string
	for _, i := range items {
		if c := contacts[lower(i.Email)]; c.Found && len(i.Lists()) > 0 {
			records = append(records, c.RecordID)
		}
	}
	slices.Sort(records)
	return slices.Compact(records)
}

// wanted asks what other subscriptions want of the contacts that opted out.
func (l *look) wanted(ctx context.Context, items []plan.Item) (map[string]plan.Wanted, error) {
	var memberships []postgres.Membership
	for _, i := range items {
		if i.Desired == outbox.Subscribed {
			continue
		}
		for _, id := range i.Lists() {
			memberships = append(memberships, postgres.Membership{ContactKey: i.ContactKey, ListID: id})
		}
		for _, t := range i.Snapshot.Targets {
			if t.Required && t.Multi {
				memberships = append(memberships, postgres.Membership{ContactKey: i.ContactKey, Property: t.Name, Entry: t.Subscribed})
			}
		}
	}
	found, err := l.run.DB.Wanted(ctx, l.portal.ID, memberships)
	if err != nil {
		return nil, err
	}
	others := map[string]plan.Wanted{}
	for m := range found {
		w := others[m.ContactKey]
		if m.ListID != "" {
			w.Lists = append(w.Lists, m.ListID)
		} else {
			if w.Entries == nil {
				w.Entries = plan.Entries{}
			}
			w.Entries[m.Property] = append(w.Entries[m.Property], m.Entry)
		}
		others[m.ContactKey] = w
	}
	return others, nil
}

// statuses reads in a batch, or one by one where the plan has no batches.
func (l *look) statuses(ctx context.Context, emails []string) (map[string]hubspot.ReadResult, error) {
	results, err := l.client.ReadStatuses(ctx, emails)
	if !forbidden(err) {
		return results, err
	}
	results = map[string]hubspot.ReadResult{}
	for _, e := range emails {
		if err := l.call(ctx, func(ctx context.Context) (err error) {
			results[lower(e)], err = l.client.ReadStatus(ctx, e)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (l *look) wide(ctx context.Context, emails []string) (map[string]hubspot.WideResult, error) {
	results, err := l.client.ReadUnsubscribedAll(ctx, emails)
	if !forbidden(err) {
		return results, err
	}
	results = map[string]hubspot.WideResult{}
	for _, e := range emails {
		if err := l.call(ctx, func(ctx context.Context) (err error) {
			results[lower(e)], err = l.client.ReadUnsubscribedAllOne(ctx, e)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func forbidden(err error) bool {
	var he *hubspot.Error
	return errors.As(err, &he) && he.Kind == hubspot.KindForbidden
}

// find gathers what was read for one item.
func (l *look) find(i plan.Item, statuses hubspot.ReadResult, wide hubspot.WideResult, contact hubspot.ContactRead, wantsContact bool) (seen, bool) {
	if statuses.Err != nil || wide.Err != nil || (wantsContact && contact.Err != nil) {
		return seen{}, false
	}
	s := seen{state: string(hubspot.NotSpecified), record: plan.Record{Exists: contact.Found, Properties: contact.Properties}}
	for _, st := range statuses.Statuses {
		if st.SubscriptionID != i.Snapshot.SubscriptionTypeID {
			continue
		}
		s.state = string(st.State)
		if st.State == hubspot.Unsubscribed {
			s.observed.Unsubscribed, s.observed.At, s.observed.Explanation = true, st.At, st.Explanation
		}
	}
	for _, w := range wide.Statuses {
		if w.State == hubspot.Unsubscribed {
			s.observed.Wide = append(s.observed.Wide, plan.WideOptOut{BusinessUnitID: w.BusinessUnitID, At: w.At})
		}
	}
	if i.Snapshot.Wide != "" && s.observed.OptedOutOf(i.Snapshot.BusinessUnitID) {
		s.state = string(hubspot.Unsubscribed)
	}
	return s, true
}

// call makes one call inside the budget.
func (l *look) call(ctx context.Context, do func(context.Context) error) error {
	r := l.run
	grant, err := r.Budget.Wait(ctx, budget.Request{
		Portal: l.portal.ID, Lane: l.lane, N: 1, ID: r.NewID().String(),
		Limits: budget.Limits{
			Burst: int(float64(l.portal.BurstLimit) * r.RateScale), Window: l.portal.BurstWindow,
			Daily: int(float64(l.portal.DailyLimit) * r.RateScale), Location: l.portal.Location(),
		},
	}, r.BudgetWait)
	if err != nil {
		return err
	}
	if !grant.Granted {
		return errNoBudget
	}
	return do(ctx)
}
