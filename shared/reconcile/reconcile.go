// Package reconcile finds what is stuck and makes it due again. Every state that is not
// terminal has a deadline; the sweep looks for those that passed while an event was in
// flight.
package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/postgres"
	"hubsync/shared/telemetry"
)

// Config says what a reconciler works with. DB, Clock and Logger are required.
type Config struct {
	DB     *postgres.DB
	Clock  func() time.Time
	NewID  func() uuid.UUID
	Logger *slog.Logger
	// Metrics gets what a run did, and what the alarms look at; nil: nothing is measured.
	Metrics *telemetry.Meter
	// Batch is how many events one pass makes due.
	Batch int
	// PendingAlarm is the age of a pending event that is worth an alarm.
	PendingAlarm time.Duration
}

const (
	defaultBatch        = 250
	defaultPendingAlarm = 5 * time.Minute
	endTimeout          = 5 * time.Second
	passMargin          = 2 * time.Second // less time than this is left: no further pass
	moveBatch           = 500             // requests that one transaction looks at: some 20 ms under the locks of those that move
	movePasses          = 10              // of a run: 5,000 requests a minute, 7 million a day
)

// Reconciler is the timed stage.
type Reconciler struct{ Config }

// New returns a reconciler.
func New(cfg Config) (*Reconciler, error) {
	if cfg.DB == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errors.New("reconcile: DB, Clock and Logger are required")
	}
	if cfg.Batch == 0 {
		cfg.Batch = defaultBatch
	}
	if cfg.PendingAlarm == 0 {
		cfg.PendingAlarm = defaultPendingAlarm
	}
	if cfg.NewID == nil {
		cfg.NewID = func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	}
	return &Reconciler{cfg}, nil
}

// Result counts a run.
type Result struct {
	Checked   int `json:"checked"`
	Scheduled int `json:"scheduled"`
}

// Run sweeps until a pass finds less than a full batch, or until no time is left. Two
// runs at once share no rows. A run that fails half way says so, and what it did stays.
func (r *Reconciler) Run(ctx context.Context) (Result, error) {
	id := r.NewID()
	if err := r.DB.BeginRun(ctx, id, "sweep"); err != nil {
		return Result{}, err
	}
	total, err := r.sweep(ctx)
	if err == nil {
		err = r.retain(ctx)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if endErr := r.DB.EndRun(endCtx, id, total.Checked, total.Scheduled, problem); endErr != nil {
		err = errors.Join(err, endErr)
	}
	r.measure(endCtx, total, err)
	if total.Scheduled > 0 || err != nil {
		r.Logger.Info("sweep", "checked", total.Checked, "scheduled", total.Scheduled, "problem", problem)
	}
	return total, err
}

func (r *Reconciler) sweep(ctx context.Context) (Result, error) {
	var total Result
	for hasTime(ctx) {
		n, err := r.DB.SweepStuck(ctx, r.Batch)
		if err != nil {
			return total, err
		}
		total.Checked += n
		total.Scheduled += n
		if n < r.Batch {
			break
		}
	}
	if !hasTime(ctx) { // stopped between two passes: the next run goes on
		return total, nil
	}
	age, err := r.DB.OldestPending(ctx)
	if err != nil {
		return total, err
	}
	if age > r.PendingAlarm {
		r.Logger.Error("an event waits for the relay for too long: is it running?", "age", age)
	}
	return total, nil
}

// retain moves what was settled long ago to history, until the walk's end or for a bounded
// number of passes: the next run goes on.
func (r *Reconciler) retain(ctx context.Context) error {
	total := 0
	for range movePasses {
		if !hasTime(ctx) {
			break
		}
		lookedAt, moved, err := r.DB.MoveSettled(ctx, moveBatch)
		if err != nil {
			return err
		}
		total += moved
		if lookedAt < moveBatch {
			break
		}
	}
	if total > 0 {
		r.Logger.Info("moved settled requests to history", "requests", total)
	}
	return nil
}

func hasTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() == nil && (!ok || time.Until(deadline) >= passMargin)
}
