// Package budget keeps the calls to one HubSpot app within its limits: a rolling
// window that is exact, and the day. The arithmetic is pure and stands in window.go and
// share.go; script.lua does the same inside Redis, on the server's clock, and is tested
// against it on the same random sequences. Where Redis is away, a low local rate goes on.
package budget

import (
	"cmp"
	"slices"
	"time"
)

// Lane is the urgency of a call. Lower lanes come first.
type Lane int16

// The lanes: those of events, and what only looks.
const (
	LaneOptOut Lane = iota
	LaneLive
	LaneBulk
	LaneSpare // audits: what nobody else wants
)

// The arithmetic's constants, in milliseconds where they are times. script.lua has
// the same.
const (
	slotMs   = 100  // reservations within a tenth of a second share a slot
	guardMs  = 1000 // a token is good for a second, so a call may land that much after its reservation
	recentMs = 2000 // a lane that was refused so lately is waiting
	knownMs  = 3000 // a reservation's id is known for so long: for replays and refunds
	maxKnown = 64   // and so many are: an id that is forgotten charges twice, and gives nothing back
	dayMs    = 86_400_000
	dayCapMs = 300_000 // what HubSpot said about the day is believed for so long
)

// state is a portal's budget. All times are milliseconds since 1970 on one clock, but
// for restNext.
type state struct {
	closedUntil int64 // an observed 429, or a window that is not known
	dayReset    int64 // when dayUsed returns to 0
	dayUsed     int64
	dayCap      int64 // what dayUsed may grow to, by HubSpot's count of the account's day
	dayCapUntil int64
	burstCap    int64 // what a window may hold of ours, by HubSpot's count of the app's calls
	burstUntil  int64
	wantOptOut  int64 // when an opt-out was refused last
	wantLive    int64
	restNext    int64   // microseconds: when others than opt-outs may call again at their even pace
	slots       []slot  // oldest first
	known       []known // newest last
}

// slot counts the calls that were reserved in one tenth of a second. It leaves the
// window with the last of them: the earlier ones stay a little too long, never too short.
type slot struct {
	at           int64 // of the last reservation
	optOut, rest int64
}

// known is a reservation that can be replayed or given back.
type known struct {
	at   int64
	lane Lane
	n    int64
	id   string
}

// ask is one reservation. resets are three midnights of the account's zone around now:
// the server's clock chooses, so that a skewed caller cannot reset the day early.
type ask struct {
	lane     Lane
	n        int64
	limit    int64 // calls per window
	windowMs int64 // HubSpot's window plus the guard
	daily    int64
	resets   [3]int64
	id       string
	charge   int64 // calls that this process made while Redis was away, for the day
	// elsewhere is what all processes together may have called in a window without
	// Redis, whose window must not look unused when it is back; 0: it was not away.
	elsewhere int64
}

// verdict is the answer to an ask.
type verdict struct {
	granted bool
	waitMs  int64
	reason  string
}

// The reasons of a refusal.
const (
	reasonClosed = "closed" // a 429 was seen, or the window is not known
	reasonDaily  = "daily"
	reasonBurst  = "burst" // the window is full
	reasonShare  = "share" // what is left of it belongs to more urgent lanes
	reasonPace   = "pace"  // all but opt-outs are spread
)

// reserve decides an ask. It looks at every window before it takes from any, and a
// refusal takes nothing. A replay is granted as it was; its calls count from now on,
// because now they may be made a second from now.
func (s *state) reserve(now int64, a ask) verdict {
	s.prune(now, a.windowMs)
	s.turnDay(now, a.resets)
	s.dayUsed += a.charge
	if a.elsewhere > 0 {
		s.capBurst(now, max(min(s.limit(now, a.limit), a.limit-a.elsewhere), 1), a.windowMs)
	}
	if i := s.find(a.id); i >= 0 {
		k := s.known[i]
		s.known = slices.Delete(s.known, i, i+1)
		s.drop(k.at, k.lane, k.n)
		s.take(now, k.lane, k.n, k.id)
		return verdict{granted: true}
	}
	v := s.judge(now, a)
	switch {
	case v.granted:
		s.take(now, a.lane, a.n, a.id)
		s.dayUsed += a.n
		s.spread(now, a)
	case a.lane == LaneOptOut:
		s.wantOptOut = now
	case a.lane == LaneLive:
		s.wantLive = now
	}
	return v
}

func (s *state) judge(now int64, a ask) verdict {
	if now < s.closedUntil {
		return verdict{waitMs: s.closedUntil - now, reason: reasonClosed}
	}
	return cmp.Or(s.judgeDay(now, a), s.judgeWindow(now, a), verdict{granted: true})
}

func (s *state) prune(now, windowMs int64) {
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool { return x.at+windowMs <= now })
	s.known = slices.DeleteFunc(s.known, func(k known) bool { return k.at+knownMs <= now })
}

func (s *state) turnDay(now int64, resets [3]int64) {
	if now < s.dayReset {
		return
	}
	s.dayUsed, s.dayCapUntil, s.dayReset = 0, 0, now+dayMs
	for _, r := range resets {
		if r > now {
			s.dayReset = r
			return
		}
	}
}

func (s *state) find(id string) int {
	return slices.IndexFunc(s.known, func(k known) bool { return k.id == id })
}

func (s *state) take(now int64, lane Lane, n int64, id string) {
	last := len(s.slots) - 1
	if last < 0 || s.slots[last].at/slotMs != now/slotMs {
		s.slots = append(s.slots, slot{})
		last++
	}
	s.slots[last].at = now
	if lane == LaneOptOut {
		s.slots[last].optOut += n
	} else {
		s.slots[last].rest += n
	}
	s.known = append(s.known, known{now, lane, n, id})
	if extra := len(s.known) - maxKnown; extra > 0 {
		s.known = slices.Delete(s.known, 0, extra)
	}
}

// drop takes n calls out of the slot that a reservation at a time went into.
func (s *state) drop(at int64, lane Lane, n int64) {
	for i := range s.slots {
		if s.slots[i].at/slotMs != at/slotMs {
			continue
		}
		count := &s.slots[i].rest
		if lane == LaneOptOut {
			count = &s.slots[i].optOut
		}
		*count = max(*count-n, 0)
		return
	}
}

// refund leaves keep calls of a reservation. It says what stays and not what goes, so
// that a refund that is sent twice gives back once.
func (s *state) refund(id string, keep int64) {
	i := s.find(id)
	if i < 0 || s.known[i].n <= keep {
		return
	}
	k := &s.known[i]
	s.drop(k.at, k.lane, k.n-keep)
	s.dayUsed = max(s.dayUsed-(k.n-keep), 0)
	k.n = keep
	if keep == 0 {
		s.known = slices.Delete(s.known, i, i+1)
	}
}

// news is what HubSpot's answer said; -1 where it said nothing.
type news struct {
	remaining int64 // calls left in its window, all that use the app counted
	dayLeft   int64 // calls left of the account's day
	closeMs   int64
	windowMs  int64
}

// learn takes HubSpot's own count. What it has left, added to what we reserved, is all
// that we may have; others' calls make it less than our limit. Our calls count for the
// guard too, so that they are never taken for others': those are seen too small by at
// most what we reserve in a second.
func (s *state) learn(now int64, f news) {
	if f.closeMs > 0 {
		s.closedUntil = max(s.closedUntil, now+f.closeMs)
	}
	if f.remaining >= 0 {
		ours := f.remaining
		for _, x := range s.slots {
			if x.at+f.windowMs > now {
				ours += x.optOut + x.rest
			}
		}
		s.capBurst(now, ours, f.windowMs-guardMs)
	}
	if f.dayLeft >= 0 {
		s.dayCap, s.dayCapUntil = s.dayUsed+f.dayLeft, now+dayCapMs
	}
}

func (s *state) capBurst(now, n, forMs int64) { s.burstCap, s.burstUntil = n, now+forMs }

// midnights returns three resets of the day around now in the account's zone; zones
// with daylight saving have days of 23 and 25 hours, and some begin a day at 01:00.
func midnights(now time.Time, zone *time.Location) [3]int64 {
	local := now.In(zone)
	var resets [3]int64
	for i := range resets {
		at := time.Date(local.Year(), local.Month(), local.Day()+i, 0, 0, 0, 0, zone)
		if at.Hour() > 12 { // there is no midnight, and the hour before it was chosen
			at = at.Add(time.Hour)
		}
		resets[i] = at.UnixMilli()
	}
	return resets
}
