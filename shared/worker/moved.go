package worker

import (
	"context"
	"strings"

	"hubsync/shared/hubspot"
	"hubsync/shared/postgres"
)

// findMoved looks for contacts by our key whose address HubSpot does not know any more:
// somebody changed it there. The new address is not ours to write back or to keep, but
// the person has opted out: the opt-out goes to it too, and the case is listed for a
// person to decide. It returns those whose record exists, to be written.
func (j *job) findMoved(ctx context.Context, contacts []*contactWork) []*contactWork {
	var found []*contactWork
	shown := map[*contactWork]string{}
	inBatches(ctx, j, contacts, func(ctx context.Context, chunk []*contactWork) error {
		keys := make([]string, len(chunk))
		for i, c := range chunk {
			keys[i] = c.ContactKey
		}
		records, err := j.client.ReadContacts(ctx, keys, contactKeyProperty, []string{"email"})
		if err != nil {
			return err
		}
		for _, c := range chunk {
			switch read, named := records[c.ContactKey]; {
			case !named:
				j.failContacts([]*contactWork{c}, errUnnamed)
			case read.Err != nil:
				j.failContacts([]*contactWork{c}, read.Err)
			case read.Found: // otherwise the record was deleted: nothing is left to show
				c.recordID = read.RecordID
				found = append(found, c)
				if email := strings.ToLower(read.Properties["email"]); email != "" && email != c.Email {
					shown[c] = email
				}
			}
		}
		return nil
	}, j.failContacts)
	j.optOutMoved(ctx, shown)
	return found
}

// optOutMoved writes the rows' opt-outs for the addresses that HubSpot shows instead of
// ours. They are required: an address that still gets mail is a broken promise.
func (j *job) optOutMoved(ctx context.Context, shown map[*contactWork]string) {
	type cell struct {
		row   *row
		email string
	}
	var cells []cell
	for c, email := range shown {
		for _, r := range c.rows {
			if r.open() && r.optsOut() {
				cells = append(cells, cell{r, email})
			}
		}
	}
	if len(cells) == 0 {
		return
	}
	for c := range shown {
		if err := j.worker.DB.NoteConflict(ctx, c.ContactKey, postgres.ConflictMoved, "portal "+j.portal.ID+", record "+c.recordID); err != nil {
			j.worker.Logger.Error("conflict not listed", "portal", j.portal.ID, "error", err.Error())
		}
		j.worker.Logger.Warn("a contact's address was changed inside HubSpot: its opt-out goes to both, and it is listed",
			"portal", j.portal.ID, "record", c.recordID)
	}
	write := func(ctx context.Context, c cell) error {
		p := c.row.item.Preference(j.worker.Env)
		p.Email = c.email
		result, err := j.client.WriteStatus(ctx, statusWrite(p))
		if err != nil {
			return err
		}
		if !result.Confirmed {
			return result.Err
		}
		j.keep(func() {
			c.row.receipt(j.worker.NewID, "preference_of_changed_address", string(hubspot.Unsubscribed), string(result.Status.Reason), result.CorrelationID, result.Status.At)
		})
		return nil
	}
	inSingles(ctx, j, cells, write, func(cells []cell, err error) { j.failRows([]*row{cells[0].row}, err, true) })
}
