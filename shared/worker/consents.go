package worker

import (
	"context"
	"slices"
	"strings"

	"hubsync/shared/hubspot"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
)

// readConsents reads, for every open subscribe, what HubSpot shows for its address
// (and for the addresses that the contact had before), and lets those give way that
// an opt-out forbids. An address that a read does not answer for fails closed: its
// subscribe is not sent. A retry reads again: a receipt is no reason to skip, because
// the person may have opted out since.
func (j *job) readConsents(ctx context.Context) {
	var rows []*row
	for _, r := range j.rows {
		if r.open() && !r.optsOut() {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	read := consentReads{statuses: map[string]hubspot.ReadResult{}, wide: map[string]hubspot.WideResult{}, failed: map[string]error{}}
	addresses := addressesOf(rows)
	j.readStatuses(ctx, addresses, &read)
	j.readWide(ctx, slices.DeleteFunc(addresses, func(a string) bool { return read.failed[a] != nil }), &read)
	for _, r := range rows {
		j.judgeConsent(ctx, r, read)
	}
}

// consentReads is what the reads of one message brought, by lower-cased address.
type consentReads struct {
	statuses map[string]hubspot.ReadResult
	wide     map[string]hubspot.WideResult
	failed   map[string]error
}

func (c *consentReads) fail(addresses []string, err error) {
	for _, a := range addresses {
		if c.failed[a] == nil {
			c.failed[a] = err
		}
	}
}

func addressesOf(rows []*row) []string {
	var addresses []string
	for _, r := range rows {
		addresses = append(addresses, r.claim.EmailKey)
		addresses = append(addresses, r.claim.PreviousEmails...)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func (j *job) readStatuses(ctx context.Context, addresses []string, read *consentReads) {
	batch := func(ctx context.Context, chunk []string) error {
		results, err := j.client.ReadStatuses(ctx, chunk)
		j.keep(func() { copyResults(read.statuses, results) })
		return err
	}
	single := func(ctx context.Context, address string) error {
		result, err := j.client.ReadStatus(ctx, address)
		if err == nil {
			j.keep(func() { read.statuses[strings.ToLower(address)] = result })
		}
		return err
	}
	j.readBoth(ctx, addresses, batch, single, read.fail)
}

func (j *job) readWide(ctx context.Context, addresses []string, read *consentReads) {
	batch := func(ctx context.Context, chunk []string) error {
		results, err := j.client.ReadUnsubscribedAll(ctx, chunk)
		j.keep(func() { copyResults(read.wide, results) })
		return err
	}
	single := func(ctx context.Context, address string) error {
		result, err := j.client.ReadUnsubscribedAllOne(ctx, address)
		if err == nil {
			j.keep(func() { read.wide[strings.ToLower(address)] = result })
		}
		return err
	}
	j.readBoth(ctx, addresses, batch, single, read.fail)
}

// readBoth reads in batches, and one by one where the portal has no batch reads.
func (j *job) readBoth(ctx context.Context, addresses []string, batch func(context.Context, []string) error,
	single func(context.Context, string) error, fail func([]string, error)) {
	if !j.singleMode() {
		var refused []string
		inBatches(ctx, j, addresses, batch, func(chunk []string, err error) {
			if j.refusesBatch(err) {
				refused = append(refused, chunk...)
				return
			}
			fail(chunk, err)
		})
		addresses = refused
	}
	inSingles(ctx, j, addresses, single, fail)
}

func (j *job) keep(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
}

func copyResults[V any](into, from map[string]V) {
	for key, value := range from {
		into[key] = value
	}
}

// judgeConsent fails a subscribe that was not read, lets one give way that an
// opt-out forbids, and leaves the others open.
func (j *job) judgeConsent(ctx context.Context, r *row, read consentReads) {
	for i, address := range append([]string{r.claim.EmailKey}, r.claim.PreviousEmails...) {
		observed, err := read.observed(address, r.item.Snapshot.SubscriptionTypeID)
		if err != nil {
			j.failRows([]*row{r}, err, false)
			return
		}
		if i == 0 {
			r.resubscribes = observed.Unsubscribed
			if observed.Unsubscribed {
				r.shown = string(hubspot.Unsubscribed)
			}
		}
		if at, blocked := r.item.BlockingOptOut(j.worker.Env, observed); blocked {
			r.giveWay(at)
			return
		}
		if r.item.Covered(observed) {
			j.noteWideConflict(ctx, r)
		}
	}
}

// noteWideConflict lists a subscribe that HubSpot will show and not act on. The list is
// for people: without it the subscribe is as right.
func (j *job) noteWideConflict(ctx context.Context, r *row) {
	if err := j.worker.DB.NoteConflict(ctx, r.claim.ContactKey, postgres.ConflictWide, "portal "+j.portal.ID+", brand "+r.claim.BrandID); err != nil {
		j.worker.Logger.Warn("a wide opt-out that stays could not be listed", "event", r.claim.EventID, "error", err.Error())
	}
}

// observed gathers what was read for one address and one subscription type.
func (c consentReads) observed(address string, subscriptionID int64) (plan.Observed, error) {
	if err := c.failed[address]; err != nil {
		return plan.Observed{}, err
	}
	statuses, ok := c.statuses[address]
	if !ok {
		return plan.Observed{}, errUnnamed
	}
	if statuses.Err != nil {
		return plan.Observed{}, statuses.Err
	}
	o, err := c.wideOf(address)
	if err != nil {
		return plan.Observed{}, err
	}
	for _, s := range statuses.Statuses {
		if s.SubscriptionID == subscriptionID && s.State == hubspot.Unsubscribed {
			o.Unsubscribed, o.At, o.Explanation = true, s.At, s.Explanation
		}
	}
	return o, nil
}

// wideOf gathers the wide opt-outs that were read for one address.
func (c consentReads) wideOf(address string) (o plan.Observed, err error) {
	if err := c.failed[address]; err != nil {
		return o, err
	}
	wide, ok := c.wide[address]
	if !ok {
		return o, errUnnamed
	}
	if wide.Err != nil {
		return o, wide.Err
	}
	for _, s := range wide.Statuses {
		if s.State == hubspot.Unsubscribed {
			o.Wide = append(o.Wide, plan.WideOptOut{BusinessUnitID: s.BusinessUnitID, At: s.At})
		}
	}
	return o, nil
}
