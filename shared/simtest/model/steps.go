package model

import "fmt"

// step is one thing that can happen next, in words, and the state after it.
type step struct {
	words string
	next  state
}

// bounds of an exploration.
type bounds struct {
	decisions, workers            int
	crashes, lost, stalls, repair uint8
}

// steps lists everything that can happen in a state.
func steps(s state, d design, b bounds) []step {
	var all []step
	add := func(next state, format string, args ...any) {
		all = append(all, step{fmt.Sprintf(format, args...), next})
	}
	accept(s, b, add)
	for w := range b.workers {
		switch s.workers[w].state {
		case idle:
			for e := range s.latest {
				claim(s, d, w, e, add)
			}
		case claimed:
			startCall(s, b, w, add)
		case calling:
			giveUp(s, b, w, add)
		case replied, unsure:
			commit(s, d, w, add)
		}
		// A process that is frozen beyond L and dies right after it sent leaves no trace;
		// only the audit finds that. It is the window that the limits page names.
		if s.workers[w].state != idle && !s.workers[w].stalled && s.crashes < b.crashes {
			n := s
			n.crashes++
			n.orphan(w)
			n.workers[w] = worker{}
			add(n, "worker %d dies (decision %d)", w+1, s.workers[w].event+1)
		}
	}
	calls(s, b, add)
	expire(s, add)
	sweep(s, d, add)
	check(s, d, b, add)
	return all
}

type adder func(next state, format string, args ...any)

func accept(s state, b bounds, add adder) {
	if int(s.latest) >= b.decisions {
		return
	}
	for _, value := range []side{subscribed, unsubscribed} {
		n := s
		n.decisions[n.latest], n.events[n.latest] = value, waiting
		n.latest++
		add(n, "decision %d is accepted: %s", n.latest, value)
	}
}

// claim is the arrival of a message for event e at an idle worker.
func claim(s state, d design, w int, e uint8, add adder) {
	live := s.leased && !s.expired
	n := s
	switch {
	case s.events[e] == settled, s.events[e] == processing && live && s.leaseEvent == e:
		return // nothing to do, or busy with itself
	case e+1 < s.latest && d[SequenceAtClaim]:
		n.events[e] = settled
		if !d[HolderReleases] {
			n.leased, n.expired = false, false
		}
		add(n, "a message for decision %d arrives: superseded", e+1)
	case s.applied >= e+1 && d[SequenceAtClaim]:
		n.events[e] = settled
		add(n, "a message for decision %d arrives: applied already", e+1)
	case live:
		return // busy behind another event
	default:
		taken := ""
		if s.leased {
			taken = ", a takeover"
			if d[TakeoverRaises] {
				n.uncertain = min(n.uncertain+1, 3)
			}
		}
		n.fence++
		n.leased, n.expired, n.leaseEvent, n.events[e] = true, false, e, processing
		n.workers[w] = worker{state: claimed, event: e, fence: n.fence}
		add(n, "worker %d claims decision %d%s", w+1, e+1, taken)
	}
}

// startCall sends the write. It is started only while its timeout fits into the
// lease by the worker's own clock, which runs out before the lease does. A worker
// that is frozen between that look and the sending sends late all the same.
func startCall(s state, b bounds, w int, add adder) {
	me := s.workers[w]
	if me.late {
		n := s
		n.workers[w].state = unsure
		add(n, "worker %d has no time left for its call", w+1)
		if s.stalls >= b.stalls {
			return
		}
	} else {
		n := s
		n.workers[w].late = true
		add(n, "worker %d is slow: by its clock the lease is over", w+1)
	}
	for i := range s.calls {
		if s.calls[i].value != nothing {
			continue
		}
		n := s
		n.calls[i] = call{s.decisions[me.event], uint8(w)}
		n.workers[w].state = calling
		if me.late {
			n.stalls++
			n.workers[w].stalled = true
			add(n, "worker %d was frozen before it sent: it sends %s now", w+1, s.decisions[me.event])
			return
		}
		add(n, "worker %d sends %s", w+1, s.decisions[me.event])
		return
	}
}

// expire: the lease runs out, but not before its holder's own clock has.
func expire(s state, add adder) {
	if !s.leased || s.expired {
		return
	}
	for _, w := range s.workers {
		if w.state == claimed && w.fence == s.fence && !w.late {
			return
		}
	}
	n := s
	n.expired = true
	add(n, "the lease of decision %d runs out", s.leaseEvent+1)
}

// giveUp: the call times out while the write is still on its way.
func giveUp(s state, b bounds, w int, add adder) {
	if s.lost >= b.lost {
		return
	}
	n := s
	n.lost++
	n.orphan(w)
	n.workers[w].state = unsure
	add(n, "worker %d's call times out and may land late", w+1)
}

func (s *state) orphan(w int) {
	for i := range s.calls {
		if s.calls[i].value != nothing && s.calls[i].owner == uint8(w) {
			s.calls[i].owner = nobody
		}
	}
}

// calls land, with or without their reply, or never arrive.
func calls(s state, b bounds, add adder) {
	for i, c := range s.calls {
		if c.value == nothing {
			continue
		}
		landed := s
		landed.hubspot, landed.calls[i] = c.value, call{}
		if c.owner == nobody {
			add(landed, "a late call lands: HubSpot shows %s", c.value)
		} else {
			landed.workers[c.owner].state = replied
			add(landed, "HubSpot takes worker %d's %s and confirms", c.owner+1, c.value)
		}
		if c.owner != nobody && s.lost < b.lost {
			silent := s
			silent.hubspot, silent.calls[i] = c.value, call{}
			silent.workers[c.owner].state = unsure
			silent.lost++
			add(silent, "HubSpot takes worker %d's %s and the reply is lost", c.owner+1, c.value)
		}
		gone := s
		gone.calls[i] = call{}
		if c.owner != nobody {
			if s.lost >= b.lost {
				continue
			}
			gone.lost++
			gone.workers[c.owner].state = unsure
		}
		add(gone, "a call with %s is lost on its way", c.value)
	}
}

func commit(s state, d design, w int, add adder) {
	me := s.workers[w]
	n := s
	n.workers[w] = worker{}
	held := s.events[me.event] == processing && (s.fence == me.fence || !d[CommitIsFenced])
	if !held {
		if d[ZeroRowsRaise] {
			n.uncertain = min(n.uncertain+1, 3)
		}
		add(n, "worker %d's commit finds its claim of decision %d lost", w+1, me.event+1)
		return
	}
	n.leased, n.expired = false, false
	if me.state == unsure && d[UnknownRaises] {
		n.uncertain = min(n.uncertain+1, 3)
	}
	switch {
	case me.state == replied:
		n.applied = max(n.applied, me.event+1)
		n.events[me.event] = settled
		add(n, "worker %d commits decision %d as synced", w+1, me.event+1)
	case me.event+1 < s.latest:
		n.events[me.event] = settled
		add(n, "worker %d gives decision %d up: a newer one exists", w+1, me.event+1)
	default:
		n.events[me.event] = waiting
		add(n, "worker %d schedules decision %d again", w+1, me.event+1)
	}
}

// sweep makes an event due again whose worker's lease ran out.
func sweep(s state, d design, add adder) {
	for e := range s.latest {
		if s.events[e] != processing || (s.leased && !s.expired && s.leaseEvent == e) {
			continue
		}
		n := s
		n.events[e] = waiting
		if !d[HolderReleases] {
			n.leased, n.expired = false, false
		}
		add(n, "the sweep re-sends decision %d", e+1)
	}
}

// check reads what HubSpot shows when a subscription is uncertain, settled and not
// leased; under the lock it corrects a difference, or clears the uncertainty.
func check(s state, d design, b bounds, add adder) {
	if !s.read.active {
		if s.uncertain == 0 || (s.leased && !s.expired) || s.latest == 0 || s.events[s.latest-1] != settled {
			return
		}
		n := s
		n.read = checkRead{true, s.latest, s.fence, s.hubspot, s.uncertain, !s.callMayLand()}
		add(n, "the check reads: HubSpot shows %s", s.hubspot)
		return
	}
	n := s
	n.read = checkRead{}
	r := s.read
	switch {
	case r.latest != s.latest || r.fence != s.fence:
		add(n, "the check sees that something was claimed or accepted since its read, and leaves it")
	case r.shown != s.desired():
		if s.repairs >= b.repair {
			return // out of bounds: this branch is not explored further
		}
		// A correction is a new sequence with the latest desired state; here the newest
		// event stands for it.
		n.repairs++
		n.events[s.latest-1], n.applied = waiting, s.latest-1
		add(n, "the check corrects: %s is asked for again", s.desired())
	case d[ClearAfterLate] && !r.afterLate:
		add(n, "the check sees what it wants, but a call may still land: it will look again")
	case d[ClearComparesAndSets] && r.raised != s.uncertain:
		add(n, "the check finds the uncertainty raised again since its read")
	default:
		n.uncertain = 0
		add(n, "the check sees %s and clears the uncertainty", r.shown)
	}
}
