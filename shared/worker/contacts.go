package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/hubspot"
	"hubsync/shared/plan"
)

const contactKeyProperty = hubspot.ContactKeyProperty

// contactWork is one contact's write on its way.
type contactWork struct {
	plan.ContactWrite
	rows     []*row
	recordID string // to write to, where it is known
}

// contactBusyDelay is how long a row waits for another worker that makes its contact.
const contactBusyDelay = 2 * time.Second

// writeContacts writes the properties of every contact whose preference was
// confirmed. A known record is updated by our key, without an address; an unknown one
// is upserted by the one worker that may make it; opt-outs alone only update a contact
// that exists. It comes after the preferences, so that a bad property cannot block an
// opt-out.
func (j *job) writeContacts(ctx context.Context) {
	rows := map[uuid.UUID]*row{}
	var items []plan.Item
	for _, r := range j.rows {
		if r.open() && r.confirmed && r.configuration == nil {
			rows[r.claim.EventID] = r
			items = append(items, r.item)
		}
	}
	var all, known, unknown, updates []*contactWork
	for _, write := range plan.Contacts(items) {
		c := &contactWork{ContactWrite: write}
		for _, id := range write.Events {
			c.rows = append(c.rows, rows[id])
			c.recordID = rows[id].claim.RecordID
		}
		all = append(all, c)
	}
	for _, c := range j.takeOut(ctx, all) {
		switch {
		case !c.MayCreate:
			updates = append(updates, c)
		case c.recordID != "":
			known = append(known, c)
		default:
			unknown = append(unknown, c)
		}
	}
	created, others := j.begin(ctx, unknown)
	gone := j.updateKnown(ctx, append(known, others...))
	j.create(ctx, append(created, gone...))
	j.updateExisting(ctx, updates)
}

// updateKnown writes contacts by our key, which survives a merge. One that HubSpot does
// not know by it is written by its record id, with our key; one whose record is gone too
// is returned, to be made anew.
func (j *job) updateKnown(ctx context.Context, contacts []*contactWork) []*contactWork {
	var strangers, gone []*contactWork
	j.update(ctx, contacts, contactKeyProperty, func(c *contactWork) string { return c.ContactKey },
		func(c *contactWork) { strangers = append(strangers, c) })
	for _, c := range strangers {
		c.Properties[contactKeyProperty] = c.ContactKey
	}
	j.updateRecords(ctx, strangers, func(c *contactWork) { gone = append(gone, c) })
	return gone
}

// updateExisting writes opt-outs' properties onto contacts that HubSpot knows by
// address; a person whom it does not know needs no property. One whom another worker
// makes just now does, and that worker may have looked before the opt-out came: its row
// waits. This is asked before the read, so that whoever begins later sees the opt-out.
func (j *job) updateExisting(ctx context.Context, contacts []*contactWork) {
	if len(contacts) == 0 {
		return
	}
	keys := make([]string, len(contacts))
	for i, c := range contacts {
		keys[i] = c.ContactKey
	}
	making, err := j.worker.DB.ContactsBeingMade(ctx, j.portal.ID, keys)
	if err != nil {
		j.worker.Logger.Error("contacts being made not read", "portal", j.portal.ID, "error", err.Error())
	}
	var existing, moved []*contactWork
	inBatches(ctx, j, contacts, func(ctx context.Context, chunk []*contactWork) error {
		addresses := make([]string, len(chunk))
		for i, c := range chunk {
			addresses[i] = c.Email
		}
		found, err := j.client.ReadContacts(ctx, addresses, "email", []string{contactKeyProperty})
		if err != nil {
			return err
		}
		for _, c := range chunk {
			read, named := found[c.Email]
			switch {
			case !named:
				j.failContacts([]*contactWork{c}, errUnnamed)
			case read.Err != nil:
				j.failContacts([]*contactWork{c}, read.Err)
			case read.Found:
				c.recordID = read.RecordID
				existing = append(existing, c)
			case c.recordID != "":
				moved = append(moved, c)
			case making[c.ContactKey]:
				j.failRequired(c, j.contactBusy())
			}
		}
		return nil
	}, j.failContacts)
	existing = append(existing, j.findMoved(ctx, moved)...)
	j.updateRecords(ctx, existing, func(*contactWork) {}) // gone since the read: nothing left to show
}

func (j *job) contactBusy() failure {
	return j.waiting("contact_busy", "another message of this contact makes it just now", contactBusyDelay)
}

// updateRecords writes contacts by record id. Two of ours may be one record of
// HubSpot's (a merge), and an id may stand only once in a batch.
func (j *job) updateRecords(ctx context.Context, contacts []*contactWork, gone func(*contactWork)) {
	for len(contacts) > 0 {
		seen := map[string]bool{}
		var now, later []*contactWork
		for _, c := range contacts {
			if seen[c.recordID] {
				later = append(later, c)
				continue
			}
			seen[c.recordID] = true
			now = append(now, c)
		}
		j.update(ctx, now, "", func(c *contactWork) string { return c.recordID }, gone)
		contacts = later
	}
}

func (j *job) update(ctx context.Context, contacts []*contactWork, idProperty string, id func(*contactWork) string, gone func(*contactWork)) {
	inBatches(ctx, j, contacts, func(ctx context.Context, chunk []*contactWork) error {
		updates := make([]hubspot.ContactUpdate, len(chunk))
		for i, c := range chunk {
			updates[i] = hubspot.ContactUpdate{
				ID: id(c), IDProperty: idProperty, Properties: c.Properties, TraceID: c.Events[0].String(),
			}
		}
		results, err := j.client.UpdateContacts(ctx, updates)
		if err != nil {
			return err
		}
		for i, c := range chunk {
			if he := results[i].Err; he != nil && he.Kind == hubspot.KindNotFound {
				gone(c)
				continue
			}
			j.noteContact(c, results[i], "contact_update")
		}
		return nil
	}, func(chunk []*contactWork, err error) {
		var he *hubspot.Error
		if len(chunk) == 1 && errors.As(err, &he) && he.Kind == hubspot.KindNotFound {
			gone(chunk[0])
			return
		}
		j.failContacts(chunk, err)
	})
}

func (j *job) noteContact(c *contactWork, result hubspot.ContactResult, operation string) {
	if !result.Confirmed {
		j.failContacts([]*contactWork{c}, result.Err)
		return
	}
	c.recordID = result.RecordID
	j.records[c.ContactKey] = result.RecordID
	for _, r := range c.rows {
		r.receipt(j.worker.NewID, operation, propertiesText(c.Properties), "confirmed", result.CorrelationID, result.UpdatedAt)
	}
}

// propertiesText is the desired state of a contact write as the ledger hashes it.
func propertiesText(properties map[string]string) string {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	text := ""
	for _, name := range names {
		text += name + "=" + properties[name] + "\n"
	}
	return text
}

// failContacts fails the events for which a contact write is required; a failed
// optional target does not keep an event from being synced.
func (j *job) failContacts(contacts []*contactWork, err error) {
	for _, c := range contacts {
		for _, r := range c.rows {
			if slices.Contains(c.Required, r.claim.EventID) {
				j.failRows([]*row{r}, err, true)
			} else {
				j.failOptional(r, err)
			}
		}
	}
}

func (j *job) failRequired(c *contactWork, f failure) {
	for _, r := range c.rows {
		if slices.Contains(c.Required, r.claim.EventID) {
			r.fail(f)
		}
	}
}
