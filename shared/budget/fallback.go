package budget

import "time"

// redisRest is how long Redis is left alone after a failure: a dead one then costs one
// timeout in so long.
const redisRest = 3 * time.Second

// localBudget is what this process grants while Redis is away: half of what all
// processes together may do, divided by how many there can be. It never stops for good,
// and opt-outs come first by the same arithmetic as ever.
type localBudget struct {
	state state
	debt  debt
}

// debt is what a process has to tell Redis when it is back.
type debt struct {
	fell  bool // the local rate was open: other processes' was too
	spent int64
}

// localLimit is one process's share of a window: 6 of 150. Two is the least, or nothing
// would be left beside opt-outs; a burst limit below 2 × Parallelism can be exceeded so.
func (l *Limiter) localLimit(limit int64) int64 {
	return max(limit/int64(2*l.cfg.Parallelism), 2)
}

// reserveLocally decides on the local rate. Redis may have granted a full window until
// it went away, so until that is over only opt-outs are granted: few calls more than a
// window, at worst, and HubSpot's 429 is heeded.
func (l *Limiter) reserveLocally(r Request, now time.Time) Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := r.ask(now)
	if since := now.Sub(l.fellAt).Milliseconds(); a.lane != LaneOptOut && since < a.windowMs {
		g := grantOf(r, verdict{waitMs: a.windowMs - since, reason: reasonClosed}, now)
		g.Fallback = true
		return g
	}
	b := l.localOf(r.Portal)
	b.debt.fell = true
	a.limit = min(a.limit, l.localLimit(a.limit))
	a.n = min(a.n, maxN(a.lane, a.limit, a.windowMs)) // what never fits would wait for ever
	r.N = int(a.n)
	before := b.state.dayUsed
	g := grantOf(r, b.state.reserve(now.UnixMilli(), a), now)
	g.Fallback = true
	b.debt.spent += max(b.state.dayUsed-before, 0) // a replay spends nothing
	return g
}

// localOf returns a portal's local budget; the caller holds mu.
func (l *Limiter) localOf(portal string) *localBudget {
	b := l.local[portal]
	if b == nil {
		b = &localBudget{}
		l.local[portal] = b
	}
	return b
}

func (l *Limiter) takeDebt(portal string) debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.localOf(portal)
	d := b.debt
	b.debt = debt{}
	return d
}

func (l *Limiter) returnDebt(portal string, d debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.localOf(portal)
	b.debt = debt{fell: b.debt.fell || d.fell, spent: b.debt.spent + d.spent}
}

func (l *Limiter) refundLocally(g Grant, keep int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.localOf(g.Request.Portal)
	before := b.state.dayUsed
	b.state.refund(shortID(g.Request.ID), int64(keep))
	b.debt.spent = max(b.debt.spent-(before-b.state.dayUsed), 0)
}

func (l *Limiter) resting(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.restedAt)
}

func (l *Limiter) rest(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fellAt.IsZero() {
		l.fellAt = now
	}
	l.restedAt = now.Add(redisRest)
}

func (l *Limiter) restored() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fellAt = time.Time{}
}
