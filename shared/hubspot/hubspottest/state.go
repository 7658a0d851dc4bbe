package hubspottest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// State is what an account's people and preferences were before: the format of
// hubspot.json.
type State struct {
	Contacts []StateContact `json:"contacts"`
	Statuses []StateStatus  `json:"statuses"`
}

// StateContact is a contact; it exists in every portal.
type StateContact struct {
	Email            string            `json:"email"`
	AdditionalEmails []string          `json:"additionalEmails"`
	Properties       map[string]string `json:"properties,omitempty"`
}

// StateStatus is a preference; it belongs to the portals that define its subscription.
type StateStatus struct {
	Email          string    `json:"email"`
	SubscriptionID int64     `json:"subscriptionId"`
	Status         string    `json:"status"`
	Timestamp      time.Time `json:"timestamp"`
}

// LoadState adds contacts and statuses; loaded statuses keep their times.
func (s *Server) LoadState(r io.Reader) error {
	var state State
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&state); err != nil {
		return fmt.Errorf("HubSpot state: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.byID {
		c := &call{s: s, a: a, now: s.opts.Now()}
		for _, k := range state.Contacts {
			if err := c.load(k); err != nil {
				return err
			}
		}
		for _, st := range state.Statuses {
			if _, defined := a.defs[st.SubscriptionID]; defined {
				a.statuses[cell{strings.ToLower(st.Email), st.SubscriptionID}] = &status{state: st.Status, source: "SUBSCRIPTION_STATUS", at: st.Timestamp}
			}
		}
	}
	return nil
}

func (c *call) load(k StateContact) error {
	properties := maps.Clone(k.Properties)
	if properties == nil {
		properties = map[string]string{}
	}
	properties["email"] = k.Email
	record, p := c.make(properties)
	if p != nil {
		return fmt.Errorf("HubSpot state: a contact stands twice or is not valid: %s", p.category)
	}
	for _, email := range k.AdditionalEmails {
		record.additional = append(record.additional, strings.ToLower(email))
		c.a.byEmail[strings.ToLower(email)] = record
	}
	return nil
}

// Dump returns the statuses and contacts of every portal, by portal id.
func (s *Server) Dump() map[string]State {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := map[string]State{}
	for id, a := range s.byID {
		var state State
		for _, k := range a.contacts {
			state.Contacts = append(state.Contacts, StateContact{k.properties["email"], k.additional, maps.Clone(k.properties)})
		}
		for key, st := range a.statuses {
			state.Statuses = append(state.Statuses, StateStatus{key.email, key.subscription, st.state, st.at})
		}
		states[id] = state
	}
	return states
}

// StatusView is one preference as a test sees it.
type StatusView struct {
	State       string
	At          time.Time
	Explanation string
}

// Status returns a preference of an address; false: it was never set.
func (s *Server) Status(portal, email string, subscription int64) (StatusView, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.account(portal).statuses[cell{strings.ToLower(email), subscription}]
	if st == nil {
		return StatusView{}, false
	}
	return StatusView{st.state, st.at, st.explanation}, true
}

// SetStatus is a person's act inside HubSpot at a time.
func (s *Server) SetStatus(portal, email string, subscription int64, state string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account(portal).statuses[cell{strings.ToLower(email), subscription}] = &status{state: state, source: "SUBSCRIPTION_STATUS", at: at}
}

// OptOutOfAll is a person's wide opt-out inside HubSpot: of a brand, or (0) of the
// whole portal.
func (s *Server) OptOutOfAll(portal, email string, businessUnit int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account(portal).wide[wideCell{strings.ToLower(email), businessUnit}] = &wideStatus{stateUnsubscribed, at}
}

// LiftOptOutOfAll takes a wide opt-out back, as a person inside HubSpot can.
func (s *Server) LiftOptOutOfAll(portal, email string, businessUnit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.account(portal).wide, wideCell{strings.ToLower(email), businessUnit})
}

// OptedOutOfAll reports whether a wide opt-out is shown: of a brand, or (0) of the whole
// portal.
func (s *Server) OptedOutOfAll(portal, email string, businessUnit int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.account(portal).wide[wideCell{strings.ToLower(email), businessUnit}]
	return w != nil && w.state == stateUnsubscribed
}

// ContactView is one record as a test sees it.
type ContactView struct {
	ID         string
	Email      string
	Additional []string
	Properties map[string]string
}

// Contact returns the record that owns an address, primary or secondary.
func (s *Server) Contact(portal, email string) (ContactView, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.account(portal).byEmail[strings.ToLower(email)]
	if k == nil {
		return ContactView{}, false
	}
	return k.see(), true
}

// Contacts returns every record of a portal.
func (s *Server) Contacts(portal string) []ContactView {
	s.mu.Lock()
	defer s.mu.Unlock()
	var views []ContactView
	for _, k := range s.account(portal).contacts {
		views = append(views, k.see())
	}
	return views
}

func (k *contact) see() ContactView {
	return ContactView{k.id, k.properties["email"], slices.Clone(k.additional), maps.Clone(k.properties)}
}

// SetProperty sets a property of a contact, as a person in HubSpot would.
func (s *Server) SetProperty(portal, email, name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.account(portal).byEmail[strings.ToLower(email)]; k != nil {
		k.properties[name] = value
	}
}

// ListMembers returns the record ids of a list.
func (s *Server) ListMembers(portal, list string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.account(portal).members[list]))
}

// SetToken makes an account answer to another token only.
func (s *Server) SetToken(portal, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(portal)
	delete(s.accounts, a.Token)
	a.Token = token
	s.accounts[token] = a
}

// SetLimits changes an account's limits.
func (s *Server) SetLimits(portal string, burst, daily int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(portal)
	a.BurstLimit, a.DailyLimit = burst, daily
}
