package budget

// Who may have how much of a window.
//
// Every lane may fill it whole while nobody else wants anything: what is kept for more
// urgent lanes is not a part that stays empty, but a part that is free *or leaves
// soon*. An opt-out finds eight in a hundred of the window free or leaving within a
// second; a live call finds as much again within two. Calls that are spread evenly give
// that back by themselves (a second is 9.1 % of 11 s), so one lane alone loses nothing,
// and the others than opt-outs are spread: all lanes together 1.1 times the mean rate,
// live a second ahead of it. Opt-outs go when they want, and the others make up for it. A lane that was refused within the last two seconds is waiting: the
// others then leave it a tenth that is free at once, opt-outs leave live a tenth too.
// Audits leave half.
const (
	floorPart   = 8    // in a hundred of the window, for each more urgent lane
	floorMs     = 1000 // for each more urgent lane, how soon it may leave
	optOutDaily = 20   // one part in 20 of the day is kept for opt-outs
	liveEarlyUs = 1_000_000
	bulkEarlyUs = 200_000
	pushMostUs  = 2_000_000 // how far opt-outs put the others off
	waitShareMs = 200       // how long an opt-out leaves the tenth of a waiting live call alone
)

// paceMicros is the gap between two calls that are no opt-outs. Without it a window
// could be spent in an instant, and would come back in one, 11 s later.
func paceMicros(limit, windowMs int64) int64 {
	return max(windowMs*10_000/(limit*11), 1)
}

// limit is the window's limit, or less: what HubSpot's count leaves.
func (s *state) limit(now, limit int64) int64 {
	if now < s.burstUntil {
		return min(limit, s.burstCap)
	}
	return limit
}

// judgeDay returns the refusal of the day, or none.
func (s *state) judgeDay(now int64, a ask) verdict {
	used := s.dayUsed + a.n
	if a.lane != LaneOptOut {
		used += a.daily / optOutDaily
	}
	if used > a.daily {
		return verdict{waitMs: s.dayReset - now, reason: reasonDaily}
	}
	if now < s.dayCapUntil && used > s.dayCap {
		return verdict{waitMs: min(s.dayCapUntil, s.dayReset) - now, reason: reasonDaily}
	}
	return verdict{}
}

// judgeWindow returns the refusal of the rolling window, or none.
func (s *state) judgeWindow(now int64, a ask) verdict {
	limit := s.limit(now, a.limit)
	var optOuts, rest int64
	for _, x := range s.slots {
		optOuts += x.optOut
		rest += x.rest
	}
	used := optOuts + rest
	within := a.lane == LaneLive && rest+a.n <= limit/10 // the tenth that is live's whatever opt-outs do
	share := limit
	if !within {
		share = s.share(now, a.lane, limit)
	}
	if missing := used + a.n - share; missing > 0 {
		reason := reasonShare
		if share == limit {
			reason = reasonBurst
		}
		return verdict{waitMs: s.waitFor(now, 0, missing, a.windowMs), reason: reason}
	}
	if a.lane == LaneOptOut {
		if s.isRecent(now, s.wantLive) && optOuts+a.n > limit-limit/10 {
			return verdict{waitMs: waitShareMs, reason: reasonShare}
		}
		return verdict{}
	}
	if within {
		return verdict{}
	}
	for urgent := int64(1); urgent <= min(int64(a.lane), 2); urgent++ {
		soon := urgent * floorMs
		missing := floor(urgent, limit) - (limit - used - a.n) - s.leaving(now+soon, a.windowMs)
		if missing > 0 {
			return verdict{waitMs: s.waitFor(now, soon, missing, a.windowMs), reason: reasonShare}
		}
	}
	if early := s.restNext - now*1000 - mayBeEarly(a.lane); early > 0 {
		return verdict{waitMs: (early + 999) / 1000, reason: reasonPace}
	}
	return verdict{}
}

// floor is what must be free or leave soon for so many more urgent lanes.
func floor(urgent, limit int64) int64 {
	return min(urgent*max(limit*floorPart/100, 1), max(limit-1, 0))
}

// spread moves the time of the next call that is no opt-out.
func (s *state) spread(now int64, a ask) {
	next := max(s.restNext, now*1000) + a.n*paceMicros(a.limit, a.windowMs)
	if a.lane == LaneOptOut {
		next = max(s.restNext, min(next, now*1000+pushMostUs))
	}
	s.restNext = next
}

func mayBeEarly(lane Lane) int64 {
	if lane == LaneLive {
		return liveEarlyUs
	}
	return bulkEarlyUs
}

// share is how full the window may be for a lane.
func (s *state) share(now int64, lane Lane, limit int64) int64 {
	if lane == LaneOptOut {
		return limit
	}
	share := limit
	if s.isRecent(now, s.wantOptOut) {
		share -= limit / 10
	}
	if lane >= LaneBulk && s.isRecent(now, s.wantLive) {
		share -= limit / 10
	}
	if lane == LaneSpare {
		share -= limit / 2
	}
	return max(share, min(limit, 1))
}

func (s *state) isRecent(now, at int64) bool { return at > 0 && now-at < recentMs }

// leaving counts the calls that will have left the window by then.
func (s *state) leaving(then, windowMs int64) (n int64) {
	for _, x := range s.slots {
		if x.at+windowMs <= then {
			n += x.optOut + x.rest
		}
	}
	return n
}

// waitFor is how long it takes until so many calls more will leave within soonMs.
func (s *state) waitFor(now, soonMs, missing, windowMs int64) int64 {
	for _, x := range s.slots {
		leaves := x.at + windowMs - soonMs
		if leaves <= now {
			continue
		}
		missing -= x.optOut + x.rest
		if missing <= 0 {
			return leaves - now
		}
	}
	return max(s.burstUntil-now, slotMs)
}

// maxN is the most that one reservation of a lane can get, with every other lane
// waiting.
func maxN(lane Lane, limit, windowMs int64) int64 {
	if lane == LaneOptOut {
		return limit - limit/10
	}
	waiting := state{wantOptOut: 1}
	if lane >= LaneBulk {
		waiting.wantLive = 1
	}
	n := min(waiting.share(1, lane, limit), limit-floor(min(int64(lane), 2), limit))
	return min(n, max(1_000_000/paceMicros(limit, windowMs), 1)) // a second's worth
}
