package hubspottest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// What people do inside HubSpot, behind our back.

// ChangeEmail changes a contact's primary address; the old one is forgotten, or kept as
// a secondary one.
func (s *Server) ChangeEmail(portal, from, to string, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(portal)
	k := a.byEmail[strings.ToLower(from)]
	if k == nil {
		return
	}
	from, to = strings.ToLower(from), strings.ToLower(to)
	k.additional = slices.DeleteFunc(k.additional, func(address string) bool { return address == to })
	if keep {
		k.additional = append(k.additional, from)
	} else {
		delete(a.byEmail, from)
	}
	k.properties["email"] = to
	a.byEmail[to] = k
}

// Merge merges one contact into another one: a record with a new id, the winner's
// properties before the loser's, and all addresses.
func (s *Server) Merge(portal, winner, loser string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(portal)
	w, l := a.byEmail[strings.ToLower(winner)], a.byEmail[strings.ToLower(loser)]
	if w == nil || l == nil || w == l {
		return
	}
	s.nextID++
	merged := &contact{
		id: strconv.FormatInt(s.nextID, 10), properties: maps.Clone(l.properties), created: w.created, updated: s.opts.Now(),
		additional: slices.Concat(w.additional, l.additional, []string{l.properties["email"]}),
	}
	maps.Copy(merged.properties, w.properties)
	for _, old := range []*contact{w, l} {
		for email, owner := range a.byEmail {
			if owner == old {
				a.byEmail[email] = merged
			}
		}
		for _, members := range a.members {
			if members[old.id] {
				members[merged.id] = true
			}
		}
		a.remove(old)
	}
	for _, email := range append(slices.Clone(merged.additional), merged.properties["email"]) {
		a.byEmail[email] = merged
	}
	for name, p := range a.properties {
		if value := merged.properties[name]; p.HasUniqueValue && value != "" {
			a.byUnique[name+"\x00"+value] = merged
		}
	}
	a.contacts[merged.id] = merged
}

// DeleteContact deletes a contact.
func (s *Server) DeleteContact(portal, email string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.account(portal); a.byEmail[strings.ToLower(email)] != nil {
		a.remove(a.byEmail[strings.ToLower(email)])
	}
}

// SetPropertyOptions changes the values that a property of an account takes.
func (s *Server) SetPropertyOptions(portal, name string, options ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(portal)
	p := a.properties[name]
	p.Options = options
	a.properties[name] = p
}
