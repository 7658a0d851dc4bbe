package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/intake"
	"hubsync/shared/postgres"
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
	riverExec     = "river exec"
	riverPrepared = "river prepared"
	pgbenchExec   = "pgbench exec"
)

// benchIntake sends decisions of new contacts through the real handler, beside River's
// transactional enqueue with a business row, and pgbench with the handler's SQL.
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
	rows = append(rows, row{what: what + ", prepared", unit: "/s", measured: s[ourPrepared], ratio: s[ourPrepared].over(s[riverPrepared]), note: "÷ River prepared"})
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
		{ourExec, ourIntake, pgx.QueryExecModeExec}, {ourPrepared, ourIntake, pgx.QueryExecModeCacheStatement},
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

// ourIntake is the real handler over a database of its own; every call is a decision of
// somebody new, the most work that a decision can be.
func ourIntake(ctx context.Context, b *bench, clients int, mode pgx.QueryExecMode) (func(context.Context, int) (int, error), func(), error) {
	routes, err := parseRoutes(oneRoute)
	if err != nil {
		return nil, nil, err
	}
	db, err := b.pg.hubsync(ctx, routes)
	if err != nil {
		return nil, nil, err
	}
	pool, err := db.pool(ctx, clients, mode)
	if err != nil {
		return nil, nil, err
	}
	handler := intake.New(intake.Config{DB: postgres.New(pool)})
	var n atomic.Int64
	return func(ctx context.Context, _ int) (int, error) {
		id := strconv.FormatInt(n.Add(1), 10)
		body := `{"contactKey":"customer-` + id + `","email":"person-` + id + `@example.com","productId":"newsletter",` +
			`"desiredState":"subscribed","occurredAt":"2026-01-02T03:04:05Z","consent":{"legalBasis":"CONSENT_WITH_NOTICE","explanation":"footer form"}}`
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/brands/acme/subscriptions", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", "key-"+id)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusAccepted {
			return 0, fmt.Errorf("intake answered %d: %s", answer.Code, answer.Body)
		}
		return 1, nil
	}, pool.Close, nil
}
