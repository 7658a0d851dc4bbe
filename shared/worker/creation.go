package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
	"hubsync/shared/plan"
	"hubsync/shared/routing"
)

// contactCreationLease is longer than the calls that make a contact take.
const contactCreationLease = 45 * time.Second

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
			j.failRequired(c, j.contactBusy())
		}
	}
	return created, known
}

// create upserts contacts by our key, and adopts those whose address belongs to a record
// that HubSpot had before: our key and the properties are written onto it, never an
// address, which would change the person's primary one where ours is secondary. The
// adoption is noted before it is made, so that a crash in between leads here again.
func (j *job) create(ctx context.Context, contacts []*contactWork) {
	if len(contacts) == 0 {
		return
	}
	j.addOptOuts(ctx, contacts)
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

// addOptOuts gives contacts that are made now the properties of what they opted out of
// before: an opt-out made no contact, so that its property could not be written then.
func (j *job) addOptOuts(ctx context.Context, contacts []*contactWork) {
	byKey := map[string]*contactWork{}
	for _, c := range contacts {
		byKey[c.ContactKey] = c
	}
	optOuts, err := j.worker.DB.OptOuts(ctx, j.portal.ID, slices.Sorted(maps.Keys(byKey)))
	if err != nil {
		// The audit finds what is missing.
		j.worker.Logger.Error("opt-outs of new contacts not read", "portal", j.portal.ID, "error", err.Error())
		return
	}
	for _, o := range optOuts {
		var snapshot routing.Snapshot
		if json.Unmarshal(o.Payload, &snapshot) != nil {
			continue // its own event says so
		}
		item := plan.Item{Desired: outbox.Unsubscribed, Snapshot: snapshot, ConsentAt: o.ConsentAt}
		for name, value := range item.Values() {
			if _, set := byKey[o.ContactKey].Properties[name]; !set && value != "" {
				byKey[o.ContactKey].Properties[name] = value
			}
		}
	}
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
