// Package model explores the protocol of one subscription exhaustively: decisions
// are accepted, workers claim, call HubSpot, commit, crash or freeze past their
// lease; calls land late or lose their reply; the sweep re-sends; the check reads,
// corrects and clears. Every interleaving within the bounds is visited. Where
// everything is settled, HubSpot must show the latest decision. With a rule of the
// design taken out, the shortest way to a wrong end is printed in words.
package model

import "fmt"

// The arrays' bounds; an exploration uses a part of them.
const (
	maxDecisions = 3
	maxWorkers   = 3
	maxCalls     = 3
)

// side is what a decision asks for, or what HubSpot shows.
type side uint8

const (
	nothing side = iota
	subscribed
	unsubscribed
)

func (s side) String() string { return [...]string{"nothing", "SUBSCRIBED", "UNSUBSCRIBED"}[s] }

// eventState is an event's state, as far as order depends on it.
type eventState uint8

const (
	absent     eventState = iota
	waiting               // pending, queued or process_retry: a message may arrive any time
	processing            // held by a worker
	settled               // synced or superseded
)

// workerState is where a worker stands with its claim.
type workerState uint8

const (
	idle    workerState = iota
	claimed             // before its call
	calling             // the call is on its way
	replied             // HubSpot confirmed
	unsure              // timed out, or the reply was lost
)

// worker is one run of the worker on one event.
type worker struct {
	state   workerState
	event   uint8
	fence   uint8
	late    bool // by its own clock the lease is over
	stalled bool // it was frozen between looking at its clock and sending
}

// call is a write on its way to HubSpot.
type call struct {
	value side  // nothing: this slot is free
	owner uint8 // worker that waits for the reply; nobody if it has given up
}

const nobody = 255

// checkRead is a check between its read and its write.
type checkRead struct {
	active    bool
	latest    uint8
	fence     uint8
	shown     side
	raised    uint8 // the uncertainty that it saw
	afterLate bool  // L had passed at the read: no call could land any more
}

// state is one subscription with everything that can still happen to it. Time is
// reduced to what the protocol can tell: whether the lease has run out, and whether
// a call may still land (L has passed when none may).
type state struct {
	decisions  [maxDecisions]side // in the order of their sequence, an event each
	events     [maxDecisions]eventState
	latest     uint8 // decisions accepted
	applied    uint8
	fence      uint8
	leased     bool // lease_expires_at is set
	expired    bool // … and past
	leaseEvent uint8
	uncertain  uint8 // 0: certain; else how often it was raised
	hubspot    side
	workers    [maxWorkers]worker
	calls      [maxCalls]call
	read       checkRead
	crashes    uint8 // used up
	lost       uint8 // replies and calls lost or late, used up
	stalls     uint8 // used up
	repairs    uint8 // corrections, used up
}

// canonical renames what only equality can tell apart: fences become ranks, the
// count of raises becomes "as read" or "raised since", and workers are sorted. It
// keeps the space finite without joining states that differ.
func (s state) canonical() state {
	rank := func(f uint8) (r uint8) {
		seen := [maxWorkers + 1]uint8{}
		n := 0
		for _, other := range append(s.fences(), s.read.fence) {
			if other < f && !contains(seen[:n], other) {
				seen[n], n = other, n+1
			}
		}
		return uint8(n)
	}
	n := s
	n.fence = rank(s.fence)
	n.read.fence = rank(s.read.fence)
	for i := range n.workers {
		if n.workers[i].state == idle {
			n.workers[i] = worker{}
			continue
		}
		n.workers[i].fence = rank(s.workers[i].fence)
	}
	if !n.read.active {
		n.read = checkRead{}
		n.uncertain = min(n.uncertain, 1)
	} else if n.read.raised == n.uncertain {
		n.read.raised, n.uncertain = 1, 1
	} else {
		n.read.raised, n.uncertain = 1, min(n.uncertain, 1)*2
	}
	n.sortWorkers()
	return n
}

func (s *state) fences() []uint8 {
	fences := []uint8{s.fence}
	for _, w := range s.workers {
		if w.state != idle {
			fences = append(fences, w.fence)
		}
	}
	return fences
}

func contains(list []uint8, v uint8) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// sortWorkers orders the workers, and the calls that name them.
func (s *state) sortWorkers() {
	for i := 1; i < maxWorkers; i++ {
		for j := i; j > 0 && s.workers[j].key() > s.workers[j-1].key(); j-- {
			s.workers[j], s.workers[j-1] = s.workers[j-1], s.workers[j]
			for c := range s.calls {
				switch {
				case s.calls[c].value == nothing:
				case s.calls[c].owner == uint8(j):
					s.calls[c].owner = uint8(j - 1)
				case s.calls[c].owner == uint8(j-1):
					s.calls[c].owner = uint8(j)
				}
			}
		}
	}
	for i := 1; i < maxCalls; i++ {
		for j := i; j > 0 && s.calls[j].key() > s.calls[j-1].key(); j-- {
			s.calls[j], s.calls[j-1] = s.calls[j-1], s.calls[j]
		}
	}
}

func (w worker) key() int {
	k := int(w.state)<<16 | int(w.fence)<<8 | int(w.event)<<2
	if w.late {
		k |= 2
	}
	if w.stalled {
		k |= 1
	}
	return k
}

func (c call) key() int { return int(c.value)<<8 | int(c.owner) }

func (s *state) desired() side {
	if s.latest == 0 {
		return nothing
	}
	return s.decisions[s.latest-1]
}

// quiet: nothing is on its way and nothing is due.
func (s *state) quiet() bool {
	for i := range s.latest {
		if s.events[i] != settled {
			return false
		}
	}
	for _, w := range s.workers {
		if w.state != idle {
			return false
		}
	}
	return !s.callMayLand() && s.uncertain == 0 && !s.read.active
}

func (s *state) callMayLand() bool {
	for _, c := range s.calls {
		if c.value != nothing {
			return true
		}
	}
	return false
}

func (s *state) describe() string {
	return fmt.Sprintf("decision %d asks for %s, HubSpot shows %s, and nothing is left that would notice",
		s.latest, s.desired(), s.hubspot)
}
