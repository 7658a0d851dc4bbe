package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// twoPortals has a second portal, to be paused with a backlog of its own.
const twoPortals = `
portals:
  - {id: main, hubId: 1, burst: {limit: 150, window: 10s}, daily: 100000000}
  - {id: paused, hubId: 2, burst: {limit: 150, window: 10s}, daily: 100000000}
brands:
  - {id: acme, portal: main, products: [{id: newsletter, subscriptionTypeId: 2239644020, legalBasis: CONSENT_WITH_NOTICE}]}
  - {id: other, portal: paused, products: [{id: newsletter, subscriptionTypeId: 2239644021, legalBasis: CONSENT_WITH_NOTICE}]}
`

const (
	claimSize     = 100
	claimsARound  = 25
	pausedInFront = 2 // fifths of the large backlog: 2 million of 5
)

// relayRoutes are the relay's own bounds: a minute of budget, a full message in six calls.
var relayRoutes = postgres.RouteOptions{RateScale: 1, Ahead: time.Minute, EventsPerCall: 100.0 / 6, Least: claimSize}

// benchClaim measures one claim of a hundred events of one route as the backlog grows.
func benchClaim(ctx context.Context, b *bench) ([]row, error) {
	small, large := backlog{portal: "main", brand: "acme", pending: b.form.small}, backlog{portal: "main", brand: "acme", pending: b.form.large}
	front := backlog{portal: "paused", brand: "other", pending: b.form.large * pausedInFront / 5, olderBy: 86400}
	var contenders []contender
	for _, c := range []struct {
		name  string
		fills []backlog
	}{
		{"small", []backlog{small}}, {"large", []backlog{large}}, {"paused", []backlog{front, large}},
	} {
		db, pool, err := claimWorld(ctx, b, c.fills)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		defer func() { _ = db.drop(context.WithoutCancel(ctx)) }() // the server goes too
		contenders = append(contenders, contender{c.name, func(ctx context.Context) (float64, error) { return claimRound(ctx, postgres.New(pool)) }})
	}
	s, err := interleave(ctx, b.form.rounds+2, contenders)
	if err != nil {
		return nil, err
	}
	of := fmt.Sprintf("claim of 100, %s pending", short(b.form.large))
	return []row{
		{what: of, target: "≤ 5 ms", unit: "ms", measured: s["large"], ratio: s["large"].per(5), want: 1, atMost: true},
		{what: of + fmt.Sprintf(", %s paused in front", short(front.pending)), target: "≤ 8 ms", unit: "ms", measured: s["paused"], ratio: s["paused"].per(8), want: 1, atMost: true},
		{what: of, target: fmt.Sprintf("≤ 2 × that at %s", short(small.pending)), unit: "ms", measured: s["large"], ratio: s["large"].over(s["small"]),
			want: 2, gate: 4, atMost: true, short: "claim growth", note: figure(s["small"].median()) + " ms at " + short(small.pending)},
		{what: of + ", paused in front", target: "", unit: "ms", measured: s["paused"], ratio: s["paused"].over(s["large"]),
			gate: 4, atMost: true, note: "÷ without the paused portal"},
	}, nil
}

func claimWorld(ctx context.Context, b *bench, fills []backlog) (*database, *pgxpool.Pool, error) {
	routes, err := parseRoutes(twoPortals)
	if err != nil {
		return nil, nil, err
	}
	db, err := b.pg.hubsync(ctx, routes)
	if err != nil {
		return nil, nil, err
	}
	if err := db.exec(ctx, `UPDATE hubspot_portals SET paused_until = 'infinity', pause_opt_outs = true WHERE id = 'paused'`); err != nil {
		return nil, nil, err
	}
	if err := db.fill(ctx, fills...); err != nil {
		return nil, nil, err
	}
	pool, err := db.pool(ctx, 1, pgx.QueryExecModeExec)
	return db, pool, err
}

// claimRound is the median of some claims of the live lane's route, in milliseconds.
func claimRound(ctx context.Context, db *postgres.DB) (float64, error) {
	options := relayRoutes
	options.RateScale = 10 // so that what these rounds claim never fills the room
	routes, err := db.Routes(ctx, options)
	if err != nil {
		return 0, err
	}
	live := routes[:0]
	for _, r := range routes {
		if r.Lane == outbox.LaneLive {
			live = append(live, r)
		}
	}
	took := make([]time.Duration, claimsARound)
	for i := range took {
		started := time.Now()
		events, err := db.ClaimPublishable(ctx, live, claimSize, uuid.New(), time.Hour)
		took[i] = time.Since(started)
		if err != nil {
			return 0, err
		}
		if len(events) != claimSize {
			return 0, fmt.Errorf("claimed %d events of %d: the backlog is used up", len(events), claimSize)
		}
	}
	return percentile(took, 0.5), nil
}

// short writes a count as 600k or 5M.
func short(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return fmt.Sprintf("%gM", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%gk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
