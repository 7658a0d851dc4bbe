package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// relayBatch is the relay's default.
const relayBatch = 1000

// benchDrain lets relays claim and mark while a large backlog is pending, beside the
// seed's query and River's workers with jobs that do nothing.
func benchDrain(ctx context.Context, b *bench) ([]row, error) {
	var contenders []contender
	for _, relays := range b.form.relays {
		c, closeAll, err := ourRelays(ctx, b, relays)
		if err != nil {
			return nil, err
		}
		defer closeAll()
		contenders = append(contenders, c)
	}
	for _, peer := range []func(context.Context, *bench) (contender, func(), error){seedRelays, riverWorkers} {
		c, closeAll, err := peer(ctx, b)
		if err != nil {
			return nil, err
		}
		defer closeAll()
		contenders = append(contenders, c)
	}
	s, err := interleave(ctx, b.form.rounds, contenders)
	if err != nil {
		return nil, err
	}
	two := s[relaysName(2)]
	what := fmt.Sprintf("claim + mark, %s pending, 2 relays", short(b.form.drain))
	rows := []row{
		{what: what, target: "≥ 31,000/s", unit: "/s", measured: two, ratio: two.per(31_000), want: 1},
		{what: what, target: "≥ 30 × the seed's query", unit: "/s", measured: two, ratio: two.over(s[seedName]), want: 30, gate: 10,
			short: "claim+mark÷seed", note: "seed " + figure(s[seedName].median())},
		{what: what, target: "≥ 1.0 × River's work", unit: "/s", measured: two, ratio: two.over(s[riverName]), want: 1, gate: 0.4,
			short: "÷River work", note: "River " + figure(s[riverName].median())},
	}
	for _, n := range b.form.relays {
		if n != 2 {
			rows = append(rows, row{what: fmt.Sprintf("claim + mark, %d relays", n), unit: "/s", measured: s[relaysName(n)],
				ratio: s[relaysName(n)].over(two), note: "÷ 2 relays"})
		}
	}
	return rows, nil
}

func relaysName(n int) string { return fmt.Sprintf("%d relays", n) }

// ourRelays claim and mark as the relay does, with nothing between.
func ourRelays(ctx context.Context, b *bench, relays int) (contender, func(), error) {
	routes, err := parseRoutes(oneRoute)
	if err != nil {
		return contender{}, nil, err
	}
	db, err := b.pg.hubsync(ctx, routes)
	if err != nil {
		return contender{}, nil, err
	}
	// What is left must stay as large as the name says until the last round.
	spare := int(b.form.round.Seconds()*float64(b.form.rounds)) * 60_000
	if err := db.fill(ctx, backlog{portal: "main", brand: "acme", pending: b.form.drain + spare}); err != nil {
		return contender{}, nil, err
	}
	pool, err := db.pool(ctx, relays, pgx.QueryExecModeExec)
	if err != nil {
		return contender{}, nil, err
	}
	q := postgres.New(pool)
	var all []postgres.Route
	for _, lane := range outbox.Lanes {
		all = append(all, postgres.Route{PortalID: "main", Lane: lane, Room: relayBatch, Brands: []string{"acme"}})
	}
	op := func(ctx context.Context, _ int) (int, error) {
		token := uuid.New()
		events, err := q.ClaimPublishable(ctx, all, relayBatch, token, outbox.RelayLease)
		if err != nil {
			return 0, err
		}
		marks := make([]postgres.Published, len(events))
		for i, e := range events {
			marks[i] = postgres.Published{EventID: e.ID, MessageID: "msg_" + e.ID.String()}
		}
		return q.MarkPublished(ctx, token, marks, outbox.DeliveryWindow)
	}
	round := func(ctx context.Context) (float64, error) { return rate(ctx, relays, b.form.round, op) }
	return contender{relaysName(relays), round}, pool.Close, nil
}

const seedName = "seed"

// seedEvents is the seed's table, without the foreign key, as ours here.
const seedEvents = `
CREATE TABLE hubspot_outbox_events (
  id uuid PRIMARY KEY, request_id uuid NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
  status text NOT NULL DEFAULT 'pending', publish_attempts integer NOT NULL DEFAULT 0, process_attempts integer NOT NULL DEFAULT 0,
  next_attempt_at timestamptz NOT NULL DEFAULT now(), lease_expires_at timestamptz, qstash_message_id text,
  last_error_code text, last_error_summary text, created_at timestamptz NOT NULL DEFAULT now(), completed_at timestamptz,
  UNIQUE (request_id, event_type))`

const fillSeed = `
INSERT INTO hubspot_outbox_events (id, request_id, event_type, payload, next_attempt_at)
SELECT lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, 'subscription.changed',
       '{"brandId":"acme","productId":"newsletter","subscriptionTypeId":2239644020}', now() - interval '2 hours' + n * interval '1 millisecond'
FROM generate_series(1::bigint, $1::bigint) AS g (n)`

// claimSeed is the seed's query, word for word.
const claimSeed = `
WITH candidates AS (
  SELECT id
  FROM hubspot_outbox_events
  WHERE (status IN ('pending', 'publish_retry') AND next_attempt_at <= now())
     OR (status = 'publishing' AND lease_expires_at < now())
  ORDER BY next_attempt_at, created_at
  FOR UPDATE SKIP LOCKED
  LIMIT 100
)
UPDATE hubspot_outbox_events AS event
SET status = 'publishing',
    publish_attempts = publish_attempts + 1,
    lease_expires_at = now() + interval '2 minutes'
FROM candidates
WHERE event.id = candidates.id
RETURNING event.*`

const markSeed = `UPDATE hubspot_outbox_events SET status = 'queued', qstash_message_id = 'msg' WHERE id = ANY($1::uuid[]) AND status = 'publishing'`

// seedRelays are two relays that claim with the seed's query and mark in one statement.
func seedRelays(ctx context.Context, b *bench) (contender, func(), error) {
	db, err := b.pg.empty(ctx)
	if err != nil {
		return contender{}, nil, err
	}
	if err := db.exec(ctx, seedEvents); err != nil {
		return contender{}, nil, err
	}
	pool, err := db.pool(ctx, 2, pgx.QueryExecModeExec)
	if err != nil {
		return contender{}, nil, err
	}
	if _, err := pool.Exec(ctx, fillSeed, b.form.drain); err != nil {
		return contender{}, nil, fmt.Errorf("fill the seed's table: %w", err)
	}
	if _, err := pool.Exec(ctx, `VACUUM (ANALYZE) hubspot_outbox_events`); err != nil {
		return contender{}, nil, err
	}
	op := func(ctx context.Context, _ int) (int, error) {
		rows, err := pool.Query(ctx, claimSeed)
		if err != nil {
			return 0, err
		}
		ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			values, err := row.Values()
			if err != nil {
				return "", err
			}
			id, ok := values[0].([16]byte)
			if !ok {
				return "", fmt.Errorf("an id of type %T", values[0])
			}
			return uuid.UUID(id).String(), nil
		})
		if err != nil {
			return 0, err
		}
		tag, err := pool.Exec(ctx, markSeed, ids)
		return int(tag.RowsAffected()), err
	}
	round := func(ctx context.Context) (float64, error) { return rate(ctx, 2, max(b.form.seed, time.Second), op) }
	return contender{seedName, round}, pool.Close, nil
}
