package worker

import (
	"context"

	"hubsync/shared/plan"
	"hubsync/shared/postgres"
)

// takeOut resolves entries that leave list-valued properties into the whole remaining
// text, because HubSpot can append to such a property, but not take out of it. Entries
// that another subscription of the contact wants stay. It returns the contacts that are
// left to be written: those whose reading failed have failed, and those that had nothing
// else to write are done.
func (j *job) takeOut(ctx context.Context, contacts []*contactWork) []*contactWork {
	var leaving []*contactWork
	var memberships []postgres.Membership
	for _, c := range contacts {
		if len(c.Remove) == 0 {
			continue
		}
		leaving = append(leaving, c)
		for name, entries := range c.Remove {
			for _, entry := range entries {
				memberships = append(memberships, postgres.Membership{ContactKey: c.ContactKey, Property: name, Entry: entry})
			}
		}
	}
	if len(leaving) == 0 {
		return contacts
	}
	wanted, err := j.worker.DB.Wanted(ctx, j.portal.ID, memberships)
	if err != nil {
		j.failContacts(leaving, err)
	} else {
		j.readEntries(ctx, leaving, wanted)
	}
	var left []*contactWork
	for _, c := range contacts {
		if len(c.Remove) == 0 && (len(c.Properties) > 0 || c.MayCreate) {
			left = append(left, c)
		}
	}
	return left
}

// readEntries reads the properties as they are, and clears Remove of what was resolved.
func (j *job) readEntries(ctx context.Context, contacts []*contactWork, wanted map[postgres.Membership]bool) {
	inBatches(ctx, j, contacts, func(ctx context.Context, chunk []*contactWork) error {
		var emails, names []string
		for _, c := range chunk {
			emails = append(emails, c.Email)
			for name := range c.Remove {
				names = append(names, name)
			}
		}
		found, err := j.client.ReadContacts(ctx, emails, "email", names)
		if err != nil {
			return err
		}
		for _, c := range chunk {
			switch read, named := found[c.Email]; {
			case !named:
				j.failContacts([]*contactWork{c}, errUnnamed)
			case read.Err != nil:
				j.failContacts([]*contactWork{c}, read.Err)
			default:
				c.resolve(read.Properties, wanted)
			}
		}
		return nil
	}, j.failContacts)
}

// resolve turns what leaves a property into the text that stays. A write that also
// appends to it becomes one of the whole.
func (c *contactWork) resolve(shown map[string]string, wanted map[postgres.Membership]bool) {
	for name, entries := range c.Remove {
		var out []string
		for _, entry := range entries {
			if !wanted[postgres.Membership{ContactKey: c.ContactKey, Property: name, Entry: entry}] {
				out = append(out, entry)
			}
		}
		rest, changed := plan.Without(shown[name], out)
		if changed {
			c.Properties[name] = plan.WithEntries(rest, c.Properties[name])
		}
	}
	c.Remove = nil
}
