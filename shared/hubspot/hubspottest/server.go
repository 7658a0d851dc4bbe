// Package hubspottest is a HubSpot that runs on this machine: contacts, communication
// preferences, lists, definitions and limits of several accounts, over the real wire
// protocol on a real socket. It behaves as the documents and public reports say, plays
// either way where they leave a behaviour open, misbehaves on command, and keeps a
// ledger of every call, from which order and limits are checked.
package hubspottest

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Plan is what an account may use.
type Plan string

// The plans that differ here: batch preferences need Enterprise.
const (
	Enterprise   Plan = "enterprise"
	Professional Plan = "professional"
)

// Options describe the accounts.
type Options struct {
	Portals []Portal
	Now     func() time.Time // the accounts' clock; default the machine's
	Seed    uint64           // of the faults' randomness and of the order of results
	Latency time.Duration    // of every answer
}

// Portal is one account; its token selects it.
type Portal struct {
	ID            string
	HubID         int64
	Token         string
	Plan          Plan // default Enterprise
	BurstLimit    int  // default 190
	BurstWindow   time.Duration
	DailyLimit    int
	TimeZone      *time.Location
	Definitions   []Definition
	Properties    []Property
	Lists         []List
	BusinessUnits []int64
	Scopes        []string // what the token says it may do; nil: it does not say

	// Where documents are silent:
	NoChangeMovesTimestamp  bool // NO_STATUS_CHANGE moves the status's time
	NoChangeTakesText       bool // NO_STATUS_CHANGE takes the write's legalBasisExplanation
	HidesExplanation        bool // statuses come back without legalBasisExplanation
	SubscribeClearsWide     bool // SUBSCRIBED lifts a wide opt-out
	HidesUnspecified        bool // batch reads leave out what was never set
	ReadsMissSecondaryEmail bool // batch read by email finds primary addresses only
}

// Definition is one subscription type.
type Definition struct {
	ID             int64
	Name           string
	BusinessUnitID int64
	Inactive       bool
}

// Property is one property of contacts.
type Property struct {
	Name           string
	Type           string // string, enumeration, bool, date, datetime, number
	HasUniqueValue bool
	Options        []string
	Multi          bool // several checkboxes
	ReadOnly       bool
}

// List is one list. Only MANUAL and SNAPSHOT ones take members.
type List struct {
	ID             string
	ProcessingType string
}

// Server simulates HubSpot.
type Server struct {
	opts Options

	mu       sync.Mutex
	random   *rand.Rand
	accounts map[string]*account // by token
	byID     map[string]*account
	ledger   []Call
	rules    []*Fault
	nextID   int64
	late     sync.WaitGroup
}

// account is one portal's state.
type account struct {
	Portal
	contacts   map[string]*contact // by record id
	byEmail    map[string]*contact // primary and secondary, lower-cased
	byUnique   map[string]*contact // property + NUL + value
	properties map[string]Property
	defs       map[int64]Definition
	statuses   map[cell]*status
	wide       map[wideCell]*wideStatus
	members    map[string]map[string]bool // list → record ids
	admitted   []time.Time                // calls that were let through, for the limit
	day        string
	dayCount   int
}

// New returns a server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		opts: o, random: rand.New(rand.NewPCG(o.Seed, 2)), accounts: map[string]*account{}, byID: map[string]*account{}, nextID: 1000,
	}
	for _, p := range o.Portals {
		a := newAccount(p)
		s.accounts[p.Token], s.byID[p.ID] = a, a
	}
	return s
}

func newAccount(p Portal) *account {
	if p.Plan == "" {
		p.Plan = Enterprise
	}
	if p.BurstLimit == 0 {
		p.BurstLimit = 190
	}
	if p.BurstWindow == 0 {
		p.BurstWindow = 10 * time.Second
	}
	if p.DailyLimit == 0 {
		p.DailyLimit = 1_000_000
	}
	if p.TimeZone == nil {
		p.TimeZone = time.UTC
	}
	a := &account{
		Portal: p, contacts: map[string]*contact{}, byEmail: map[string]*contact{}, byUnique: map[string]*contact{},
		properties: map[string]Property{}, defs: map[int64]Definition{}, statuses: map[cell]*status{},
		wide: map[wideCell]*wideStatus{}, members: map[string]map[string]bool{},
	}
	for _, name := range []string{"email", "firstname", "lastname", "hs_additional_emails", "hs_object_id"} {
		a.properties[name] = Property{Name: name, Type: "string"}
	}
	brands := Property{Name: "hs_all_assigned_business_unit_ids", Type: "enumeration", Multi: true}
	for _, id := range p.BusinessUnits {
		brands.Options = append(brands.Options, strconv.FormatInt(id, 10))
	}
	a.properties[brands.Name] = brands
	for _, property := range p.Properties {
		a.properties[property.Name] = property
	}
	for _, d := range p.Definitions {
		a.defs[d.ID] = d
	}
	for _, l := range p.Lists {
		a.members[l.ID] = map[string]bool{}
	}
	return a
}

// Wait returns when every write that was told to land late has landed.
func (s *Server) Wait() {
	s.mu.Lock()   // a call that is being answered has announced its write by then
	s.mu.Unlock() //nolint:staticcheck // the lock is the wait
	s.late.Wait()
}

// Portal returns an account's configuration.
func (s *Server) account(id string) *account {
	a := s.byID[id]
	if a == nil {
		panic("hubspottest: no portal " + id)
	}
	return a
}

// MaxInWindow returns the most calls that an account let through in any window of this
// length, counted over the ledger by arrival.
func (s *Server) MaxInWindow(portal string, window time.Duration) int {
	var times []time.Time
	for _, c := range s.Ledger() {
		if c.Portal == portal {
			times = append(times, c.At)
		}
	}
	sort.Slice(times, func(i, j int) bool { return times[i].Before(times[j]) })
	most, from := 0, 0
	for to := range times {
		for times[to].Sub(times[from]) >= window {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// Call is one line of the ledger. It holds no address but in Writes, which a test needs.
type Call struct {
	At     time.Time `json:"at"`
	Portal string    `json:"portal"`
	Method string    `json:"method"`
	Route  string    `json:"route"`
	Inputs int       `json:"inputs"`
	Status int       `json:"status"`
	Writes []Write   `json:"writes,omitempty"`
}

// Write is one preference that a call wrote.
type Write struct {
	Email          string `json:"email"`
	SubscriptionID int64  `json:"subscriptionId"`
	State          string `json:"state"`
	Reason         string `json:"reason"`
	Explanation    string `json:"explanation,omitempty"`
}

// Ledger returns every call so far, in the order of arrival.
func (s *Server) Ledger() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ledger)
}

// CallCount returns how many calls an account got.
func (s *Server) CallCount(portal string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.ledger {
		if c.Portal == portal {
			n++
		}
	}
	return n
}

// Handler serves the API of every account, and the simulator's own verbs.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/__sim/") {
			s.admin(w, r)
			return
		}
		if s.opts.Latency > 0 {
			time.Sleep(s.opts.Latency)
		}
		s.serve(w, r)
	})
}
