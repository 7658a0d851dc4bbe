package worker

import (
	"context"
	"maps"
	"slices"

	"hubsync/shared/hubspot"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
)

// listChange is what a message wants of one list, merged over its rows.
type listChange struct {
	add, remove map[string][]segmentRow // by record id
}

// segmentRow is one row's part in a list.
type segmentRow struct {
	row     *row
	segment plan.Segment
}

// writeSegments writes list memberships: one call per list. A list may be shared by
// subscriptions, so that a contact leaves it only when no subscription of it wants it. A
// person whom HubSpot does not know is in no list.
func (j *job) writeSegments(ctx context.Context) {
	var wanted []segmentRow
	for _, r := range j.rows {
		if r.open() && r.confirmed && r.configuration == nil {
			for _, s := range r.item.Segments() {
				wanted = append(wanted, segmentRow{r, s})
			}
		}
	}
	if len(wanted) == 0 {
		return
	}
	shared, err := j.sharedLists(ctx, wanted)
	if err != nil {
		j.failSegments(wanted, err)
		return
	}
	wanted = slices.DeleteFunc(wanted, func(w segmentRow) bool {
		stays := !w.segment.Add && shared[membershipOf(w)]
		if stays {
			j.noteSegment(w, "wanted_by_another", "")
		}
		return stays
	})
	j.findRecords(ctx, wanted)
	lists := map[string]*listChange{}
	for _, w := range wanted {
		id := j.records[w.row.claim.ContactKey]
		if id == "" || !w.row.open() {
			continue
		}
		c := lists[w.segment.ListID]
		if c == nil {
			c = &listChange{map[string][]segmentRow{}, map[string][]segmentRow{}}
			lists[w.segment.ListID] = c
		}
		if w.segment.Add {
			c.add[id] = append(c.add[id], w)
		} else {
			c.remove[id] = append(c.remove[id], w)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		j.changeList(ctx, id, lists[id])
	}
}

func membershipOf(w segmentRow) postgres.Membership {
	return postgres.Membership{ContactKey: w.row.claim.ContactKey, ListID: w.segment.ListID}
}

// sharedLists asks which lists are wanted by another subscription of a contact.
func (j *job) sharedLists(ctx context.Context, wanted []segmentRow) (map[postgres.Membership]bool, error) {
	var leaving []postgres.Membership
	for _, w := range wanted {
		if !w.segment.Add {
			leaving = append(leaving, membershipOf(w))
		}
	}
	return j.worker.DB.Wanted(ctx, j.portal.ID, leaving)
}

// findRecords looks up the records that the contact phase did not come across.
func (j *job) findRecords(ctx context.Context, wanted []segmentRow) {
	unknown := map[string][]segmentRow{}
	for _, w := range wanted {
		if j.records[w.row.claim.ContactKey] == "" {
			unknown[w.row.claim.EmailKey] = append(unknown[w.row.claim.EmailKey], w)
		}
	}
	inBatches(ctx, j, slices.Sorted(maps.Keys(unknown)), func(ctx context.Context, emails []string) error {
		found, err := j.client.ReadContacts(ctx, emails, "email", []string{contactKeyProperty})
		if err != nil {
			return err
		}
		for _, email := range emails {
			switch read, named := found[email]; {
			case !named:
				j.failSegments(unknown[email], errUnnamed)
			case read.Err != nil:
				j.failSegments(unknown[email], read.Err)
			case read.Found:
				j.records[unknown[email][0].row.claim.ContactKey] = read.RecordID
			}
		}
		return nil
	}, func(emails []string, err error) {
		for _, email := range emails {
			j.failSegments(unknown[email], err)
		}
	})
}

// changeList makes one list's call. A record that the list does not know was merged or
// deleted since; its rows try again.
func (j *job) changeList(ctx context.Context, listID string, c *listChange) {
	all := slices.Concat(slices.Concat(slices.Collect(maps.Values(c.add))...), slices.Concat(slices.Collect(maps.Values(c.remove))...))
	var result hubspot.MembershipResult
	err := j.call(ctx, func(ctx context.Context) (err error) {
		result, err = j.client.AddAndRemoveMembers(ctx, listID, slices.Sorted(maps.Keys(c.add)), slices.Sorted(maps.Keys(c.remove)))
		return err
	})
	if err != nil {
		j.failSegments(all, err)
		return
	}
	for id, rows := range c.add {
		for _, w := range rows {
			if slices.Contains(result.Missing, id) {
				j.failSegments([]segmentRow{w}, errUnnamed)
				continue
			}
			j.noteSegment(w, "member", result.CorrelationID)
		}
	}
	for _, rows := range c.remove {
		for _, w := range rows {
			j.noteSegment(w, "no_member", result.CorrelationID)
		}
	}
}

func (j *job) noteSegment(w segmentRow, outcome, correlation string) {
	w.row.receipt(j.worker.NewID, "segment", w.segment.ListID, outcome, correlation, j.worker.Clock())
}

// failSegments fails the rows for which the list is required; for the others it stands in
// the ledger.
func (j *job) failSegments(wanted []segmentRow, err error) {
	for _, w := range wanted {
		if w.segment.Required {
			j.failRows([]*row{w.row}, err, true)
			continue
		}
		if f, waits := j.failOptional(w.row, err); !waits {
			j.noteSegment(w, f.code, "")
		}
	}
}
