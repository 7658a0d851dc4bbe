package worker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
	"hubsync/shared/plan"
)

// singleModeFor is how long a portal that refused a batch endpoint is written to one
// by one before the batch is tried again: a plan can be upgraded.
const singleModeFor = time.Hour

// singleMode remembers the portals whose plan has no batch preferences.
type singleMode struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (s *singleMode) active(portal string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[portal])
}

func (s *singleMode) enter(portal string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	s.until[portal] = now.Add(singleModeFor)
}

// refusesBatch reports whether an error says that this portal's plan or scopes have
// no batch endpoint; single ones may still work.
func (j *job) refusesBatch(err error) bool {
	var he *hubspot.Error
	if !errors.As(err, &he) || he.Kind != hubspot.KindForbidden {
		return false
	}
	j.worker.singles.enter(j.portal.ID, j.worker.Clock())
	j.worker.Logger.Warn("portal has no batch preferences: single calls from now on", "portal", j.portal.ID, "code", he.Code)
	return true
}

func (j *job) singleMode() bool { return j.worker.singles.active(j.portal.ID, j.worker.Clock()) }

// writePreferences writes the preference of every open row that wanted selects.
func (j *job) writePreferences(ctx context.Context, wanted func(*row) bool) {
	var rows []*row
	for _, r := range j.rows {
		if r.open() && wanted(r) {
			rows = append(rows, r)
		}
	}
	failed := func(rows []*row, err error) { j.failRows(rows, err, true) }
	if !j.singleMode() {
		var refused []*row
		inBatches(ctx, j, rows, j.writeBatch, func(rows []*row, err error) {
			if j.refusesBatch(err) {
				refused = append(refused, rows...)
				return
			}
			failed(rows, err)
		})
		rows = refused
		j.readBack(ctx)
	}
	inSingles(ctx, j, rows, j.writeSingle, failed)
}

func (j *job) writeBatch(ctx context.Context, rows []*row) error {
	writes := make([]hubspot.StatusWrite, len(rows))
	for i, r := range rows {
		writes[i] = statusWrite(r.item.Preference(j.worker.Env))
	}
	results, err := j.client.WriteStatuses(ctx, writes)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if he := results[i].Err; he != nil && he.Unnamed() {
			j.unnamed = append(j.unnamed, r)
			continue
		}
		j.noteWritten(r, results[i])
	}
	return nil
}

// readBack looks up what an answer did not name. What is shown as decided is confirmed;
// everything else has to be written again.
func (j *job) readBack(ctx context.Context) {
	rows := j.unnamed
	j.unnamed = nil
	inBatches(ctx, j, rows, func(ctx context.Context, chunk []*row) error {
		shown, err := j.client.ReadStatuses(ctx, addressesShown(chunk))
		if err != nil {
			return err
		}
		for _, r := range chunk {
			j.noteReadBack(r, shown[r.claim.EmailKey])
		}
		return nil
	}, func(rows []*row, err error) {
		for _, r := range rows {
			r.unknown = true // the write may have taken effect
		}
		j.failRows(rows, err, true)
	})
}

func addressesShown(rows []*row) []string {
	var addresses []string
	for _, r := range rows {
		addresses = append(addresses, r.claim.EmailKey)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

func (j *job) noteReadBack(r *row, read hubspot.ReadResult) {
	wanted := hubspot.State(plan.StateOf(r.claim.DesiredState))
	for _, status := range read.Statuses {
		if status.SubscriptionID != r.item.Snapshot.SubscriptionTypeID || status.State != wanted {
			continue
		}
		j.confirm(r, status, "read_back", "")
		return
	}
	r.unknown = true
	j.failRows([]*row{r}, errUnnamed, true)
}

func (j *job) writeSingle(ctx context.Context, r *row) error {
	result, err := j.client.WriteStatus(ctx, statusWrite(r.item.Preference(j.worker.Env)))
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteWritten(r, result)
	return nil
}

func statusWrite(p plan.Preference) hubspot.StatusWrite {
	state := hubspot.Unsubscribed
	if p.Subscribe {
		state = hubspot.Subscribed
	}
	return hubspot.StatusWrite{
		Email: p.Email, SubscriptionID: p.SubscriptionID, State: state,
		LegalBasis: p.LegalBasis, Explanation: p.Explanation,
	}
}

// noteWritten takes one input's answer: only a positive confirmation counts.
func (j *job) noteWritten(r *row, result hubspot.StatusResult) {
	if !result.Confirmed {
		j.failRows([]*row{r}, result.Err, true)
		return
	}
	status := result.Status
	j.confirm(r, status, string(status.Reason), result.CorrelationID)
	if status.Reason == hubspot.ReasonResubscribe && !r.resubscribes {
		// Between our read and our write the person opted out. HubSpot has no
		// compare-and-set; the opt-out is put back, as the newest decision.
		j.worker.Logger.Error("a subscribe overtook an opt-out inside HubSpot: it is put back",
			"event", r.claim.EventID, "portal", j.portal.ID, "correlation", result.CorrelationID)
		r.giveWay(status.At)
	}
}

// confirm notes that HubSpot shows what was decided, and how that is known.
func (j *job) confirm(r *row, status hubspot.Status, outcome, correlation string) {
	r.confirmed, r.shown = true, string(status.State)
	if r.optsOut() {
		r.stamp = j.ownOptOut(r, status)
	}
	r.receipt(j.worker.NewID, "preference", string(status.State)+" "+strconv.FormatInt(status.SubscriptionID, 10), outcome, correlation, status.At)
}

// ownOptOut is the stamp of our echo that a confirmed opt-out leaves. An attempt that
// changed the state made it. One that changed nothing put at most its marker on an opt-out
// that stood there already: a person's, for all that we know, unless it still carries the
// marker of an earlier attempt whose answer was lost.
func (j *job) ownOptOut(r *row, status hubspot.Status) outbox.Stamp {
	this := outbox.Attempt{Event: r.claim.EventID, Fence: r.claim.Fence}
	by, marked := plan.OwnOptOutMarker(j.worker.Env, status.Explanation)
	switch {
	case status.At.IsZero():
		return outbox.Stamp{}
	case status.Reason == hubspot.ReasonChanged:
		return outbox.Stamp{At: status.At, Attempt: this}
	case status.Reason == hubspot.ReasonNoChange && by == this:
		return outbox.Stamp{At: r.item.OwnOptOut.At, Attempt: this}
	case marked && by != r.item.OwnOptOut.Attempt:
		return outbox.Stamp{At: status.At, Attempt: by}
	}
	return outbox.Stamp{}
}
