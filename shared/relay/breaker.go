package relay

import (
	"context"
	"sync"
	"time"

	"hubsync/shared/postgres"
)

// The breaker's times: it opens for longer while the token stays refused.
const (
	breakerFirst = 30 * time.Second
	breakerMost  = 5 * time.Minute
)

// breaker keeps every relay from a QStash that refuses our token. It stands in a row,
// because relays come and go; only the doubling is this process's.
type breaker struct {
	mu   sync.Mutex
	next time.Duration
}

// allowance is how many events a pass may claim: none while the breaker is open, one
// as a probe after that.
func (b *breaker) allowance(ctx context.Context, r *Relay) (limit int, probe bool, err error) {
	state, err := r.DB.Breaker(ctx, postgres.QStashBreaker)
	switch {
	case err != nil, state.Open:
		return 0, false, err
	case state.Exists:
		return 1, true, nil
	}
	return r.BatchSize, false, nil
}

// note opens the breaker after a refused token, and closes it after a success.
func (b *breaker) note(ctx context.Context, r *Relay, p *publishing) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	switch {
	case p.unauthorized:
		b.next = min(max(2*b.next, breakerFirst), breakerMost)
		r.Logger.Error("QStash refuses our token: nothing is published until it is mended", "retry_in", b.next)
		err = r.DB.OpenBreaker(ctx, postgres.QStashBreaker, b.next, "QStash refuses our token (401)")
	case p.probe && p.accepted:
		b.next = 0
		err = r.DB.CloseBreaker(ctx, postgres.QStashBreaker)
	}
	if err != nil {
		r.Logger.Error("breaker not written", "error", err.Error())
	}
}
