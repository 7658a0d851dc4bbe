package local

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// AuditReport is what live decisions took with and without an audit of every subscription
// beside them, in turns, and what the audit cost.
type AuditReport struct {
	Audited              int     `json:"audited"` // looks at a subscription
	Calls                int     `json:"calls"`   // that only looked
	CallsPerSubscription float64 `json:"callsPerSubscription"`
	Probes               int     `json:"probes"`
	WithoutMs            Latency `json:"withoutMs"`
	WithMs               Latency `json:"withMs"`
}

const (
	auditRounds = 4
	auditTurn   = 20 * time.Second
)

const (
	auditNow = `UPDATE contact_subscription_state SET check_at = hubsync.now() - interval '1 day' WHERE uncertain_until IS NULL`
	audited  = `SELECT coalesce(sum(checked), 0) FROM reconcile_runs WHERE kind = 'check'`
)

// audits sends live subscribes, and in every second turn has the whole world audited. The
// turns alternate, because a machine's noise does not.
func (s *soak) audits(ctx context.Context) (*AuditReport, error) {
	var r AuditReport
	var with, without []probe
	if err := s.world.pool.QueryRow(ctx, audited).Scan(&r.Audited); err != nil {
		return nil, err
	}
	before, started := r.Audited, len(s.world.HubSpot.Ledger())
	for turn := range 2 * auditRounds {
		say(s.progress, "\rturn %d of %d   ", turn+1, 2*auditRounds)
		if turn%2 == 1 {
			if _, err := s.world.pool.Exec(ctx, auditNow); err != nil {
				return nil, fmt.Errorf("make everything due for an audit: %w", err)
			}
		}
		stop := s.probe(ctx, fmt.Sprintf("turn-%d", turn), "subscribed")
		select {
		case <-ctx.Done():
		case <-time.After(auditTurn):
		}
		sent := stop()
		if turn%2 == 1 {
			with = append(with, sent...)
		} else {
			without = append(without, sent...)
		}
		if err := s.world.Quiet(ctx); err != nil {
			return nil, err
		}
	}
	ledger := s.world.HubSpot.Ledger()
	_, r.WithoutMs = waits(ledger, without)
	r.Probes, r.WithMs = waits(ledger, with)
	if err := s.world.pool.QueryRow(ctx, audited).Scan(&r.Audited); err != nil {
		return nil, err
	}
	r.Audited -= before
	// A consent read of a live subscribe is not told apart from a look; the contacts' batch
	// read is the audit's alone, and each look of a hundred makes one of its three calls.
	for _, c := range ledger[started:] {
		if strings.HasSuffix(c.Route, "contacts/batch/read") {
			r.Calls += 3
		}
	}
	r.CallsPerSubscription = float64(r.Calls) / float64(max(r.Audited, 1))
	return &r, nil
}
