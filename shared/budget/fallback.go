package budget

import "time"

// localBudget is what this process grants while Redis is away: half of what all
// processes together may do, divided by how many there can be. It never stops whole,
// and opt-outs come first by the same arithmetic as ever.
type localBudget struct {
	state state
	spent int64 // not yet charged to Redis
	since time.Time
}

// localLimit is one process's share of a window.
func (l *Limiter) localLimit(limit int64) int64 {
	return max(limit/int64(2*l.cfg.Parallelism), 2)
}

func (l *Limiter) reserveLocally(r Request, now time.Time) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.local[r.Portal]
	if b == nil {
		b = &localBudget{}
		l.local[r.Portal] = b
	}
	a := r.ask(now)
	a.limit = l.localLimit(a.limit)
	a.n = min(a.n, a.limit) // a request of more calls than the local window must not wait for ever
	v := b.state.reserve(now.UnixMilli(), a)
	if v.granted {
		b.spent += int64(r.N)
		b.since = now
	}
	return v
}

// takeCharge returns what was spent locally and not told to Redis yet: when Redis is
// back, its window must not look unused.
func (l *Limiter) takeCharge(portal string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.local[portal]
	if b == nil {
		return 0
	}
	charge := b.spent
	b.spent = 0
	return charge
}

func (l *Limiter) returnCharge(portal string, charge int64) {
	if charge == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.local[portal].spent += charge
}

func (l *Limiter) refundLocally(g Grant, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.local[g.Request.Portal]; b != nil {
		b.state.refund(int64(n), g.Request.Lane)
		b.spent = max(b.spent-int64(n), 0)
	}
}
