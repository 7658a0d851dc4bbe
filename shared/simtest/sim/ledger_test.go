package sim

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ledger is what the world saw from outside of hubsync.
type ledger struct {
	violations []string
	tries      map[string]*try // by idempotency key and cell
	accepted   []accepted      // in the order in which the database took them
	acts       []*acted
	calls      []*sent
	published  []string // bodies of publishes
	deliveries int
	refused    map[int]int // answers of HubSpot's that a fault made, by status
	cells      map[address]*shown
	overtook   []overtaking
}

// try is one key's way through intake.
type try struct {
	decision decision
	executed []moment // when the database carried out an attempt
	receipt  string
}

// accepted is a decision that counts.
type accepted struct {
	decision
	moment
}

// moment is a step of the run, by the database's clock.
type moment struct {
	at   time.Time
	step int
}

// acted is an act inside HubSpot.
type acted struct {
	act
	at     time.Time // by HubSpot's clock, as it shows it
	step   int
	erased string // by what, where it does not show any more
}

// address is one preference in HubSpot.
type address struct {
	email        string
	subscription int64
}

// shown is what made a preference look as it does.
type shown struct {
	state string
	act   *acted // nil: a write of ours
}

// overtaking is a SUBSCRIBED that landed on an opt-out.
type overtaking struct {
	event string
	act   *acted
	read  int // step of the last consent read of the process that sent it; -1: none
	call  *sent
}

func newLedger() ledger {
	return ledger{tries: map[string]*try{}, cells: map[address]*shown{}, refused: map[int]int{}}
}

// executed is told of every statement that the database carried out.
func (w *world) executed(a *actor, sql string) {
	if a.try != nil && strings.Contains(sql, "hubsync.accept_v") {
		a.try.executed = append(a.try.executed, moment{w.now, w.steps})
	}
}

// note writes down a call that HubSpot carried out.
func (l *ledger) note(c *sent, content []byte) {
	l.calls = append(l.calls, c)
	for _, write := range c.writes {
		l.wrote(c, address{write.Email, write.SubscriptionID}, write.State, write.Reason, content)
	}
}

func (l *ledger) wrote(c *sent, to address, state, reason string, content []byte) {
	if reason == "NO_STATUS_CHANGE" {
		return
	}
	before := l.cells[to]
	if state == "SUBSCRIBED" {
		for _, a := range l.acts {
			covers := a.kind == "wide" && a.email == to.email && a.covers(to)
			if covers || (before != nil && before.act == a && before.state == "UNSUBSCRIBED") {
				l.overtook = append(l.overtook, overtaking{eventOf(content, to), a, c.readStep(to.email), c})
			}
		}
		if before != nil && before.act != nil && before.state == "UNSUBSCRIBED" {
			before.act.erased = "a write that overtook it"
		}
	}
	l.cells[to] = &shown{state: state}
}

// covers reports whether a wide opt-out covers a preference.
func (a *acted) covers(to address) bool {
	for _, p := range places {
		if p.subscription == to.subscription {
			return p.portal == placeOf(a.brand, a.product).portal && (a.unit == 0 || a.unit == p.unit)
		}
	}
	return false
}

// readStep is when the sender of a call had read an address last; -1: never.
func (c *sent) readStep(email string) int {
	if step, ok := c.reads[email]; ok {
		return step
	}
	return -1
}

var subscribeMarker = regexp.MustCompile(`\[hubsync:sim:s:([0-9a-f-]{36})\.[0-9]+\]`)

// eventOf finds the event whose marker a write of a preference carries: one message may
// write several preferences of one address.
func eventOf(content []byte, to address) string {
	preference := regexp.MustCompile(fmt.Sprintf(`"subscriptionId":%d\b`, to.subscription))
	for _, part := range strings.SplitAfter(string(content), "}") {
		m := subscribeMarker.FindStringSubmatch(part)
		if m != nil && preference.MatchString(part) && (strings.Contains(part, to.email) || !strings.Contains(part, "subscriberIdString")) {
			return m[1]
		}
	}
	return ""
}

// happens carries out an act inside HubSpot.
func (w *world) happens(a act) {
	p := placeOf(a.brand, a.product)
	at := w.clockOf("hubspot")().Truncate(time.Millisecond)
	done := &acted{act: a, at: at, step: w.steps}
	w.ledger.acts = append(w.ledger.acts, done)
	to := address{a.email, p.subscription}
	switch a.kind {
	case "wide":
		w.hubspot.OptOutOfAll(p.portal, a.email, a.unit, at)
		w.trace("somebody opts out of %d", a.unit)
		return
	case "optout":
		w.hubspot.SetStatus(p.portal, a.email, p.subscription, "UNSUBSCRIBED", at)
		w.ledger.cells[to] = &shown{"UNSUBSCRIBED", done}
	case "subscribe":
		if s := w.ledger.cells[to]; s != nil && s.act != nil {
			s.act.erased = "somebody inside HubSpot"
		}
		w.hubspot.SetStatus(p.portal, a.email, p.subscription, "SUBSCRIBED", at)
		w.ledger.cells[to] = &shown{"SUBSCRIBED", done}
	}
	w.trace("somebody does %s inside HubSpot", a.kind)
}
