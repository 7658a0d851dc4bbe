package worker

import (
	"context"

	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
)

// writeWide makes HubSpot show the opt-outs of everything: of a brand's business unit, or
// of the portal. It looks first: what is shown already is not written, and is not ours, so
// that no time of a person's act becomes the stamp of our echo.
func (j *job) writeWide(ctx context.Context) {
	var rows []*row
	for _, r := range j.rows {
		switch {
		case !r.open() || !r.isWide():
		case r.item.Snapshot.SaysNothing():
			r.confirmed = true
		default:
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	read := consentReads{wide: map[string]hubspot.WideResult{}, failed: map[string]error{}}
	j.readWide(ctx, addressesShown(rows), &read)
	units := map[int64][]*row{}
	for _, r := range rows {
		shown, err := read.wideOf(r.claim.EmailKey)
		unit := r.item.Snapshot.BusinessUnitID
		switch {
		case err != nil:
			j.failRows([]*row{r}, err, false)
		case shown.OptedOutOf(unit):
			j.confirmWide(r, hubspot.WideWriteResult{Confirmed: true}, "shown_already")
		default:
			units[unit] = append(units[unit], r)
		}
	}
	for unit, rows := range units {
		j.writeUnit(ctx, unit, rows)
	}
}

// writeUnit opts addresses out of one business unit, or (0) of the portal.
func (j *job) writeUnit(ctx context.Context, unit int64, rows []*row) {
	failed := func(rows []*row, err error) { j.failRows(rows, err, true) }
	if !j.singleMode() {
		var refused []*row
		inBatches(ctx, j, rows, func(ctx context.Context, rows []*row) error {
			results, err := j.client.UnsubscribeAllMany(ctx, addressesShown(rows), unit)
			if err != nil {
				return err
			}
			for _, r := range rows {
				j.noteWide(r, results[r.claim.EmailKey])
			}
			return nil
		}, func(rows []*row, err error) {
			if j.refusesBatch(err) {
				refused = append(refused, rows...)
				return
			}
			failed(rows, err)
		})
		rows = refused
	}
	inSingles(ctx, j, rows, func(ctx context.Context, r *row) error {
		result, err := j.client.UnsubscribeAll(ctx, r.claim.EmailKey, unit)
		if err != nil {
			return err
		}
		j.keep(func() { j.noteWide(r, result) })
		return nil
	}, failed)
}

// noteWide takes one address's answer: only a positive confirmation counts.
func (j *job) noteWide(r *row, result hubspot.WideWriteResult) {
	switch {
	case result.Confirmed:
		r.stamp = outbox.Stamp{At: result.At, Attempt: outbox.Attempt{Event: r.claim.EventID, Fence: r.claim.Fence}}
		j.confirmWide(r, result, string(hubspot.ReasonChanged))
	case result.Err != nil:
		j.failRows([]*row{r}, result.Err, true)
	default:
		r.unknown = true
		j.failRows([]*row{r}, errUnnamed, true)
	}
}

func (j *job) confirmWide(r *row, result hubspot.WideWriteResult, outcome string) {
	r.confirmed, r.shown = true, string(hubspot.Unsubscribed)
	r.receipt(j.worker.NewID, "opt_out_of_all", string(r.item.Snapshot.Wide), outcome, result.CorrelationID, result.At)
}
