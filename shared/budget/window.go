// Package budget keeps the calls to one HubSpot app within its limits: a rolling
// window that is exact, and the day. The window's arithmetic is pure and stands here;
// script.lua does the same inside Redis, on the server's clock, and is tested against
// it on the same random sequences. Where Redis is away, a low local rate goes on.
package budget

import (
	"slices"
	"strconv"
	"strings"
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

// The arithmetic's constants, in milliseconds where they are times.
const (
	slotMs      = 50   // a slot's tokens return together, when its end is older than the window
	guardMs     = 1000 // a token is good for a second, so a call may land that much after its reservation
	recentMs    = 2000 // a lane that was refused so lately is waiting
	paceMs      = 1000 // bulk spreads its calls: it may use 1.1 times the mean rate in a second
	maxIDs      = 32   // reservations whose replay is recognised
	dayMs       = 86_400_000
	optOutDaily = 20 // one part in 20 of the day is kept for opt-outs
)

// state is a portal's budget. All times are milliseconds since 1970 on one clock.
type state struct {
	closedUntil int64 // an observed 429, or a window that is not known
	dayReset    int64 // when dayUsed returns to 0
	dayUsed     int64
	others      int64 // calls of other apps, seen in HubSpot's headers
	othersUntil int64
	wantOptOut  int64 // when an opt-out was refused last
	wantLive    int64
	slots       []slot   // oldest first
	ids         []string // newest last
}

// slot counts what was reserved in a twentieth of a second.
type slot struct {
	index, optOut, rest int64
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
	charge   int64 // calls made on the local rate while Redis was away
}

// verdict is the answer to an ask.
type verdict struct {
	granted bool
	waitMs  int64
	reason  string
}

// The reasons of a refusal.
const (
	reasonClosed = "closed"
	reasonDaily  = "daily"
	reasonBurst  = "burst"
	reasonShare  = "share"
	reasonPace   = "pace"
)

// reserve decides an ask. It looks at every window before it takes from any, and a
// refusal takes nothing.
func (s *state) reserve(now int64, a ask) verdict {
	s.prune(now, a.windowMs)
	s.turnDay(now, a.resets)
	if a.charge > 0 {
		s.take(now, LaneBulk, a.charge)
	}
	if slices.Contains(s.ids, a.id) {
		return verdict{granted: true}
	}
	v := s.judge(now, a)
	switch {
	case v.granted:
		s.take(now, a.lane, a.n)
		s.ids = append(s.ids, a.id)
		if len(s.ids) > maxIDs {
			s.ids = slices.Delete(s.ids, 0, len(s.ids)-maxIDs)
		}
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
	daily := a.daily
	if a.lane != LaneOptOut {
		daily -= a.daily / optOutDaily
	}
	if s.dayUsed+a.n > daily {
		return verdict{waitMs: s.dayReset - now, reason: reasonDaily}
	}
	used, optOuts, others := s.used(now)
	if limit := s.share(now, a); used+a.n > limit {
		reason := reasonShare
		if limit == a.limit {
			reason = reasonBurst
		}
		return verdict{waitMs: s.waitFor(now, used+a.n-limit, a.windowMs), reason: reason}
	}
	if a.lane == LaneOptOut && s.isRecent(now, s.wantLive) && optOuts+a.n > a.limit-a.limit/10 {
		return verdict{waitMs: 2 * slotMs, reason: reasonShare}
	}
	lately, optOutsLately := s.paced(now)
	left := a.limit - others - max(optOuts, optOutsLately*a.windowMs/paceMs)
	if a.lane >= LaneBulk && lately+a.n > pace(left, a.windowMs) {
		return verdict{waitMs: slotMs, reason: reasonPace}
	}
	return verdict{granted: true}
}

// share is how full the window may be for a lane. Every lane may use nearly all while
// the others want nothing: one call in a hundred is left for an opt-out, a tenth for
// each more urgent lane that was refused lately, and an audit leaves half.
func (s *state) share(now int64, a ask) int64 {
	limit := a.limit
	if a.lane == LaneOptOut {
		return limit
	}
	limit -= max(a.limit/100, 1)
	if s.isRecent(now, s.wantOptOut) {
		limit -= a.limit / 10
	}
	if a.lane >= LaneBulk && s.isRecent(now, s.wantLive) {
		limit -= a.limit / 10
	}
	if a.lane == LaneSpare {
		limit -= a.limit / 2
	}
	return limit
}

// pace is what bulk may reserve within a second: 1.1 times the mean rate of what
// other apps leave, and opt-outs at the rate that they show now. Without it a window could be spent in an instant, and
// an opt-out would find nothing for the rest of it.
func pace(left, windowMs int64) int64 {
	return max((max(left, 0)*1100+windowMs-1)/windowMs, 1)
}

func (s *state) isRecent(now, at int64) bool { return at > 0 && now-at < recentMs }

func (s *state) prune(now, windowMs int64) {
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool { return (x.index+1)*slotMs+windowMs <= now })
}

func (s *state) turnDay(now int64, resets [3]int64) {
	if now < s.dayReset {
		return
	}
	s.dayUsed, s.dayReset = 0, now+dayMs
	for _, r := range resets {
		if r > now {
			s.dayReset = r
			return
		}
	}
}

func (s *state) used(now int64) (all, optOuts, others int64) {
	for _, x := range s.slots {
		all += x.optOut + x.rest
		optOuts += x.optOut
	}
	if now < s.othersUntil {
		others = s.others
	}
	return all + others, optOuts, others
}

// paced counts the last second.
func (s *state) paced(now int64) (rest, optOuts int64) {
	for _, x := range s.slots {
		if (x.index+1)*slotMs+paceMs > now {
			rest += x.rest
			optOuts += x.optOut
		}
	}
	return rest, optOuts
}

// waitFor is when enough slots will have left.
func (s *state) waitFor(now, missing, windowMs int64) int64 {
	for _, x := range s.slots {
		missing -= x.optOut + x.rest
		if missing <= 0 {
			return max((x.index+1)*slotMs+windowMs-now, 1)
		}
	}
	return max(s.othersUntil-now, slotMs)
}

func (s *state) take(now int64, lane Lane, n int64) {
	index := now / slotMs
	if len(s.slots) == 0 || s.slots[len(s.slots)-1].index != index {
		s.slots = append(s.slots, slot{index: index})
	}
	last := &s.slots[len(s.slots)-1]
	if lane == LaneOptOut {
		last.optOut += n
	} else {
		last.rest += n
	}
	s.dayUsed += n
}

// refund gives back tokens that were not used, from the newest slot on.
func (s *state) refund(n int64, lane Lane) {
	for i := len(s.slots) - 1; i >= 0 && n > 0; i-- {
		count := &s.slots[i].rest
		if lane == LaneOptOut {
			count = &s.slots[i].optOut
		}
		back := min(n, *count)
		*count -= back
		n -= back
		s.dayUsed = max(s.dayUsed-back, 0)
	}
}

// learn takes HubSpot's own count: what it has seen beyond our reservations was spent
// by other apps, and shrinks ours for a window. spent is Max − Remaining; below 0: not
// stated.
func (s *state) learn(now, spent, closeMs, windowMs int64) {
	s.prune(now, windowMs)
	if closeMs > 0 {
		s.closedUntil = max(s.closedUntil, now+closeMs)
	}
	if spent < 0 {
		return
	}
	var ours int64
	for _, x := range s.slots {
		ours += x.optOut + x.rest
	}
	s.others, s.othersUntil = max(spent-ours, 0), now+windowMs-guardMs
}

// encode writes a state as one text, the value of its key in Redis:
// closedUntil,dayReset,dayUsed,others,othersUntil,wantOptOut,wantLive|index:optOut:rest …|id …
func (s *state) encode() string {
	numbers := []int64{s.closedUntil, s.dayReset, s.dayUsed, s.others, s.othersUntil, s.wantOptOut, s.wantLive}
	head := make([]string, len(numbers))
	for i, n := range numbers {
		head[i] = strconv.FormatInt(n, 10)
	}
	slots := make([]string, len(s.slots))
	for i, x := range s.slots {
		slots[i] = strconv.FormatInt(x.index, 10) + ":" + strconv.FormatInt(x.optOut, 10) + ":" + strconv.FormatInt(x.rest, 10)
	}
	return strings.Join(head, ",") + "|" + strings.Join(slots, " ") + "|" + strings.Join(s.ids, " ")
}

// midnights returns three resets of the day around now in the account's zone; zones
// with daylight saving have days of 23 and 25 hours.
func midnights(now time.Time, zone *time.Location) [3]int64 {
	local := now.In(zone)
	var resets [3]int64
	for i := range resets {
		resets[i] = time.Date(local.Year(), local.Month(), local.Day()+i, 0, 0, 0, 0, zone).UnixMilli()
	}
	return resets
}
