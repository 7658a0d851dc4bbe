package relay

import (
	"context"
	"time"

	"hubsync/shared/postgres"
)

// The breaker's times: it opens for longer while the token stays refused.
const (
	breakerFirst = 30 * time.Second
	breakerMost  = 5 * time.Minute
)

// allowance is how many events a pass may claim: none while the breaker is open, one
// as a probe after that. The breaker keeps every relay from a QStash that refuses our
// token; it stands in a row, because relays come and go.
func (r *Relay) allowance(ctx context.Context) (limit int, probe bool, err error) {
	state, err := r.DB.Breaker(ctx, postgres.QStashBreaker)
	switch {
	case err != nil, state.Open:
		return 0, false, err
	case state.Exists:
		return 1, true, nil
	}
	return r.BatchSize, false, nil
}

// noteBreaker opens the breaker after a refused token, and closes it after a success.
func (r *Relay) noteBreaker(ctx context.Context, p *publishing) error {
	switch {
	case p.unauthorized():
		r.Logger.Error("QStash refuses our token: nothing is published until it is mended")
		return r.DB.OpenBreaker(ctx, postgres.QStashBreaker, breakerFirst, breakerMost, "QStash refuses our token (401)")
	case p.probe && len(p.accepted) > 0:
		return r.DB.CloseBreaker(ctx, postgres.QStashBreaker)
	}
	return nil
}
