package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

const riverName = "river work"

// River's workers, tuned: its default fetches at most 100 jobs ten times a second.
const (
	riverMaxWorkers = 2000
	riverCooldown   = time.Millisecond
)

const fillRiver = `
INSERT INTO river_job (args, kind, max_attempts, queue, state, priority, scheduled_at, created_at)
SELECT '{"requestId":"00000000-0000-7000-8000-000000000000"}', 'sync', 25, 'default', 'available', 1, now() - interval '2 hours', now() - interval '2 hours'
FROM generate_series(1::bigint, $1::bigint)`

// countingWorker does nothing but count.
type countingWorker struct {
	river.WorkerDefaults[syncArgs]
	done *atomic.Int64
}

func (w *countingWorker) Work(context.Context, *river.Job[syncArgs]) error {
	w.done.Add(1)
	return nil
}

// riverWorkers fetch and complete jobs that do nothing: River's claim and mark.
func riverWorkers(ctx context.Context, b *bench) (contender, func(), error) {
	db, err := b.pg.empty(ctx)
	if err != nil {
		return contender{}, nil, err
	}
	pool, err := db.pool(ctx, 8, pgx.QueryExecModeCacheStatement)
	if err != nil {
		return contender{}, nil, err
	}
	if _, err := riverClient(ctx, pool); err != nil {
		return contender{}, nil, err
	}
	spare := int(b.form.round.Seconds()*float64(b.form.rounds)) * 50_000
	if _, err := pool.Exec(ctx, fillRiver, b.form.drain+spare); err != nil {
		return contender{}, nil, fmt.Errorf("fill River's table: %w", err)
	}
	if _, err := pool.Exec(ctx, `VACUUM (ANALYZE) river_job`); err != nil {
		return contender{}, nil, err
	}
	return contender{riverName, func(ctx context.Context) (float64, error) {
		var done atomic.Int64
		workers := river.NewWorkers()
		river.AddWorker(workers, &countingWorker{done: &done})
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverMaxWorkers, FetchCooldown: riverCooldown, FetchPollInterval: riverCooldown}},
			Workers:       workers,
			FetchCooldown: riverCooldown, FetchPollInterval: riverCooldown, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return 0, fmt.Errorf("river: %w", err)
		}
		if err := client.Start(ctx); err != nil {
			return 0, fmt.Errorf("start river: %w", err)
		}
		// It is counted from the first job on: its start-up is not its speed.
		for done.Load() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		before, started := done.Load(), time.Now()
		time.Sleep(b.form.round)
		worked, took := done.Load()-before, time.Since(started)
		if err := client.Stop(ctx); err != nil {
			return 0, fmt.Errorf("stop river: %w", err)
		}
		return float64(worked) / took.Seconds(), nil
	}}, pool.Close, nil
}
