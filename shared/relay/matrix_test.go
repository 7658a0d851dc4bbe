package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// A run goes on while its database is away, and publishes at its next poll after it is
// back. (A cell of docs/failure-matrix.csv.)
func TestARelayWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.accept("acme", "unsubscribed", outbox.LaneOptOut, 1)[0]
	var away atomic.Bool
	away.Store(true)
	config := w.pool.Config()
	config.MinConns, config.BeforeConnect = 0, func(context.Context, *pgx.ConnConfig) error {
		if away.Load() {
			return errors.New("the database is away")
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w.DB, w.Poll = postgres.New(pool), 50*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Run(ctx)
		ended <- err
	}()
	time.Sleep(300 * time.Millisecond)
	if w.status(id) != "pending" || w.calls.Load() != 0 {
		t.Errorf("without a database: %s, %d calls", w.status(id), w.calls.Load())
	}
	away.Store(false)
	back := time.Now()
	for w.status(id) != "queued" && time.Since(back) < 10*time.Second {
		time.Sleep(5 * time.Millisecond)
	}
	if took := time.Since(back); took > time.Second {
		t.Errorf("%s, %s after the database was back: must be queued within 1 s", w.status(id), took)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Of one lane what has been due for longest goes first.
func TestTheOldestOfALaneIsClaimedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	events := w.accept("acme", "subscribed", outbox.LaneLive, 30)
	for i, id := range events { // the last one accepted is due first
		w.exec(`UPDATE hubspot_outbox_events SET next_attempt_at = now() - $2::int * interval '1 second' WHERE id = $1`, id.String(), i)
	}
	w.BatchSize = 10
	w.pass()
	for i, id := range events {
		want := "pending"
		if i >= 20 {
			want = "queued"
		}
		if got := w.status(id); got != want {
			t.Errorf("event %d, due for %d s, is %s, want %s", i, i, got, want)
		}
	}
}
