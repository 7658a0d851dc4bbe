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

// contactCreationLease is longer than the calls that make a contact take.
const contactCreationLease = 45 * time.Second

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
	var known, unknown, updates []*contactWork
	for _, write := range plan.Contacts(items) {
		c := &contactWork{ContactWrite: write}
		for _, id := range write.Events {
			c.rows = append(c.rows, rows[id])
			c.recordID = rows[id].claim.RecordID
		}
		switch {
		case !write.MayCreate:
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

// begin asks for the right to make contacts. It returns those that this worker makes,
// and those that somebody else has made meanwhile; one that is being made waits.
func (j *job) begin(ctx context.Context, unknown []*contactWork) (created, known []*contactWork) {
	if len(unknown) == 0 {
		return nil, nil
	}
	keys := make([]string, len(unknown))
	for i, c := range unknown {
		keys[i] = c.ContactKey
	}
	records, err := j.worker.DB.BeginContacts(ctx, j.portal.ID, keys, contactCreationLease)
	if err != nil {
		j.worker.Logger.Error("contacts not begun", "portal", j.portal.ID, "error", err.Error())
	}
	for _, c := range unknown {
		switch record := records[c.ContactKey]; {
		case record.MayCreate:
			created = append(created, c)
		case record.RecordID != "":
			c.recordID = record.RecordID
			known = append(known, c)
		default:
			j.failRequired(c, j.waiting("contact_busy", "another message of this contact makes it just now", contactBusyDelay))
		}
	}
	return created, known
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

// create upserts contacts by our key, and adopts those whose address belongs to a record
// that HubSpot had before: our key and the properties are written onto it, never an
// address, which would change the person's primary one where ours is secondary. The
// adoption is noted before it is made, so that a crash in between leads here again.
func (j *job) create(ctx context.Context, contacts []*contactWork) {
	if len(contacts) == 0 {
		return
	}
	taken := j.upsert(ctx, contacts)
	if !j.note(ctx, taken, true) {
		for _, c := range taken {
			j.failRequired(c, j.waiting("database_away", "the adoption could not be noted", 0))
		}
		return
	}
	for _, c := range taken {
		c.Properties[contactKeyProperty] = c.ContactKey
	}
	j.updateRecords(ctx, taken, func(c *contactWork) {
		c.recordID = ""
		j.failRequired(c, j.guilty(c.rows[0].claim.Attempts, "hubspot_record_gone", "the record that owned the address is gone", ""))
	})
	// A note that fails costs the next message of the contact a look, and no more.
	j.note(ctx, contacts, false)
}

// note records what is known of the contacts' records; false: it could not.
func (j *job) note(ctx context.Context, contacts []*contactWork, adopted bool) bool {
	records := make(map[string]string, len(contacts))
	for _, c := range contacts {
		records[c.ContactKey] = c.recordID
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := j.worker.DB.NoteContacts(ctx, j.portal.ID, records, adopted); err != nil {
		j.worker.Logger.Error("contacts not noted", "portal", j.portal.ID, "error", err.Error())
		return false
	}
	return true
}

// upsert writes contacts by our key, and returns those whose address already belongs
// to a record of HubSpot's.
func (j *job) upsert(ctx context.Context, contacts []*contactWork) []*contactWork {
	var taken []*contactWork
	inBatches(ctx, j, contacts, func(ctx context.Context, chunk []*contactWork) error {
		writes := make([]hubspot.ContactWrite, len(chunk))
		for i, c := range chunk {
			writes[i] = hubspot.ContactWrite{
				ExternalID: c.ContactKey, Email: c.Email, Properties: c.Properties, TraceID: c.Events[0].String(),
			}
		}
		results, err := j.client.UpsertContacts(ctx, writes)
		if err != nil {
			return err
		}
		for i, c := range chunk {
			if he := results[i].Err; he != nil && he.Kind == hubspot.KindConflict && he.ExistingID != "" {
				c.recordID = he.ExistingID
				taken = append(taken, c)
				continue
			}
			j.noteContact(c, results[i], "contact_upsert")
		}
		return nil
	}, func(chunk []*contactWork, err error) {
		if existing := conflictOf(err); existing != "" && len(chunk) == 1 {
			chunk[0].recordID = existing
			taken = append(taken, chunk[0])
			return
		}
		j.failContacts(chunk, err)
	})
	return taken
}

func conflictOf(err error) string {
	var he *hubspot.Error
	if errors.As(err, &he) && he.Kind == hubspot.KindConflict {
		return he.ExistingID
	}
	return ""
}

// updateExisting writes opt-outs' properties onto contacts that HubSpot knows by
// address; a person whom it does not know needs no property.
func (j *job) updateExisting(ctx context.Context, contacts []*contactWork) {
	var existing []*contactWork
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
			}
		}
		return nil
	}, j.failContacts)
	j.updateRecords(ctx, existing, func(*contactWork) {}) // gone since the read: nothing left to show
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
