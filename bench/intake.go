package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/routing"
)

// oneRoute is a portal with HubSpot's usual limit, a brand and a product.
const oneRoute = `
portals: [{id: main, hubId: 1, burst: {limit: 150, window: 10s}, daily: 100000000}]
brands: [{id: acme, portal: main, products: [{id: newsletter, subscriptionTypeId: 2239644020, legalBasis: CONSENT_WITH_NOTICE}]}]
`

func parseRoutes(text string) (*routing.File, error) { return routing.Parse([]byte(text)) }

// The contenders of intake.
const (
	ourExec       = "hubsync exec"
	ourPrepared   = "hubsync prepared"
	ourNewcomers  = "hubsync exec, newcomers"
	riverExec     = "river exec"
	riverPrepared = "river prepared"
	pgbenchExec   = "pgbench exec"
)

// benchIntake sends decisions through the real handler, of people who are known and of
// newcomers, beside River's transactional enqueue with a business row, and pgbench with
// the handler's SQL.
func benchIntake(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for i, clients := range b.form.clients {
		s, err := intakeRounds(ctx, b, clients)
		if err != nil {
			return nil, err
		}
		rows = append(rows, intakeRows(s, clients, i == 0)...)
	}
	return rows, nil
}

func intakeRows(s map[string]series, clients int, isTarget bool) []row {
	what := fmt.Sprintf("intake, %d clients, handler", clients)
	rows := []row{
		{what: what + ", exec", target: "≥ 1.8 × River exec", want: 1.8, gate: 0.7, short: "intake÷River exec", ratio: s[ourExec].over(s[riverExec]),
			note: "River " + figure(s[riverExec].median())},
		{what: what + ", exec", target: "≥ 1.0 × River prepared", want: 1, gate: 0.35, short: "÷River prepared", ratio: s[ourExec].over(s[riverPrepared]),
			note: "River " + figure(s[riverPrepared].median())},
		{what: what + ", exec", target: "≥ 0.80 × pgbench", want: 0.8, gate: 0.4, short: "÷pgbench", ratio: s[ourExec].over(s[pgbenchExec]),
			note: "pgbench " + figure(s[pgbenchExec].median())},
	}
	for i := range rows {
		rows[i].measured, rows[i].unit = s[ourExec], "/s"
	}
	if len(s[pgbenchExec]) == 0 {
		rows[2].measured, rows[2].ratio, rows[2].note = nil, nil, "pgbench is not installed"
	}
	rows = append(rows,
		row{what: what + ", prepared", unit: "/s", measured: s[ourPrepared], ratio: s[ourPrepared].over(s[riverPrepared]), note: "÷ River prepared"},
		row{what: what + ", exec, newcomers", unit: "/s", measured: s[ourNewcomers], ratio: s[ourNewcomers].over(s[riverExec]), note: "÷ River exec"})
	if !isTarget {
		for i := range rows {
			rows[i].want, rows[i].gate, rows[i].short, rows[i].target = 0, 0, "", "("+rows[i].target+")"
		}
	}
	return rows
}

func intakeRounds(ctx context.Context, b *bench, clients int) (map[string]series, error) {
	var contenders []contender
	for _, c := range []struct {
		name string
		make func(context.Context, *bench, int, pgx.QueryExecMode) (func(context.Context, int) (int, error), func(), error)
		mode pgx.QueryExecMode
	}{
		{ourExec, knownIntake, pgx.QueryExecModeExec}, {ourPrepared, knownIntake, pgx.QueryExecModeCacheStatement},
		{ourNewcomers, newIntake, pgx.QueryExecModeExec},
		{riverExec, riverIntake, pgx.QueryExecModeExec}, {riverPrepared, riverIntake, pgx.QueryExecModeCacheStatement},
	} {
		op, closePool, err := c.make(ctx, b, clients, c.mode)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		defer closePool()
		contenders = append(contenders, contender{c.name, func(ctx context.Context) (float64, error) {
			return rate(ctx, clients, b.form.round, op)
		}})
	}
	bare, err := newPgbench(ctx, b, clients)
	if err != nil {
		return nil, err
	}
	if bare != nil {
		contenders = append(contenders, contender{pgbenchExec, bare.round})
	}
	return interleave(ctx, b.form.rounds, contenders)
}
