package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"hubsync/shared/hubspot"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
)

// contactKeyProperty is the unique property that holds our contact key: partial
// upserts are not supported by address.
const contactKeyProperty = "external_contact_id"

// contactWork is one contact's write on its way.
type contactWork struct {
	plan.ContactWrite
	rows     []*row
	adopted  bool   // HubSpot knew the contact before us: its address is never sent
	recordID string // to write to
}

// writeContacts writes the properties of every contact whose preference was
// confirmed. Subscribes upsert by our key; opt-outs alone only update a contact that
// exists. It comes after the preferences, so that a bad property cannot block an
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
	var known, upserts, updates []*contactWork
	for _, write := range plan.Contacts(items) {
		c := &contactWork{ContactWrite: write}
		for _, id := range write.Events {
			c.rows = append(c.rows, rows[id])
			c.adopted = c.adopted || rows[id].claim.AdoptedRecord != ""
		}
		switch {
		case !write.MayCreate:
			updates = append(updates, c)
		case c.adopted:
			known = append(known, c)
		default:
			upserts = append(upserts, c)
		}
	}
	upserts = append(upserts, j.updateKnown(ctx, known)...)
	j.adopt(ctx, j.upsert(ctx, upserts))
	j.updateExisting(ctx, updates)
}

// updateKnown writes adopted contacts by our key, which survives a merge, without an
// address. Those that HubSpot does not know by it any more are returned: they are
// upserted like new ones.
func (j *job) updateKnown(ctx context.Context, contacts []*contactWork) []*contactWork {
	var gone []*contactWork
	j.update(ctx, contacts, contactKeyProperty, func(c *contactWork) string { return c.ContactKey },
		func(c *contactWork) { gone = append(gone, c) })
	return gone
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

// adopt writes our key and the properties onto records that HubSpot had before. The
// adoption is noted before it is made: a crash in between must not lead to an upsert
// that matches the record by our key and sends an address, which would change the
// person's primary address where ours is a secondary one.
func (j *job) adopt(ctx context.Context, contacts []*contactWork) {
	if len(contacts) == 0 {
		return
	}
	adoptions := make([]postgres.Adoption, len(contacts))
	for i, c := range contacts {
		adoptions[i] = postgres.Adoption{ContactKey: c.ContactKey, RecordID: c.recordID}
		c.Properties[contactKeyProperty] = c.ContactKey
	}
	if err := j.worker.DB.NoteAdoptions(ctx, j.portal.ID, adoptions); err != nil {
		for _, c := range contacts {
			j.failRequired(c, j.waiting("database_away", "the adoption could not be noted", 0))
		}
		j.worker.Logger.Error("adoption not noted", "portal", j.portal.ID, "error", err.Error())
		return
	}
	j.updateRecords(ctx, contacts, func(c *contactWork) {
		j.failRequired(c, j.guilty(c.rows[0].claim.Attempts, "hubspot_record_gone", "the record that owned the address is gone", ""))
	})
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
		var required []*row
		for _, r := range c.rows {
			if slices.Contains(c.Required, r.claim.EventID) {
				required = append(required, r)
			}
		}
		j.failRows(required, err, true)
	}
}

func (j *job) failRequired(c *contactWork, f failure) {
	for _, r := range c.rows {
		if slices.Contains(c.Required, r.claim.EventID) {
			r.fail(f)
		}
	}
}

// noteSegments writes in the ledger which list memberships were asked for.
func (j *job) noteSegments() {
	for _, r := range j.rows {
		if !r.open() || !r.confirmed || r.configuration != nil {
			continue
		}
		for _, s := range r.item.Segments() {
			r.receipt(j.worker.NewID, "segment", s.ListID, "skipped", "", j.worker.Clock())
		}
	}
}
