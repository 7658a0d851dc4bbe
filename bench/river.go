package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// businessTable is what an application would store beside the job: the seed's request.
const businessTable = `
CREATE TABLE business_requests (
  id uuid PRIMARY KEY, brand_id text NOT NULL, contact_key text NOT NULL, product_id text NOT NULL,
  desired_state text NOT NULL, idempotency_key text NOT NULL, request_hash text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(), UNIQUE (brand_id, product_id, idempotency_key))`

const insertBusiness = `
INSERT INTO business_requests (id, brand_id, contact_key, product_id, desired_state, idempotency_key, request_hash)
VALUES ($1, $2, $3, $4, $5, $6, $7)`

// syncArgs is River's job: a reference, as our messages are.
type syncArgs struct {
	RequestID string `json:"requestId"`
}

func (syncArgs) Kind() string { return "sync" }

// riverIntake enqueues in the transaction that stores the business row.
func riverIntake(ctx context.Context, b *bench, clients int, mode pgx.QueryExecMode) (func(context.Context, int) (int, error), func(), error) {
	db, err := b.pg.empty(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := db.exec(ctx, businessTable); err != nil {
		return nil, nil, err
	}
	pool, err := db.pool(ctx, clients, mode)
	if err != nil {
		return nil, nil, err
	}
	client, err := riverClient(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	var n atomic.Int64
	return func(ctx context.Context, _ int) (int, error) {
		number := strconv.FormatInt(n.Add(1), 10)
		id, err := uuid.NewV7()
		if err != nil {
			return 0, err
		}
		return 1, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertBusiness, id.String(), "acme", "customer-"+number, "newsletter", "subscribed",
				"key-"+number, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"); err != nil {
				return err
			}
			_, err := client.InsertTx(ctx, tx, syncArgs{RequestID: id.String()}, nil)
			return err
		})
	}, pool.Close, nil
}

func riverClient(ctx context.Context, pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	if _, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate river: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	return client, nil
}
