// Package relay moves due events to QStash: claim (a lease, SKIP LOCKED) → group by
// portal and lane → publish references in batches, with no transaction open → mark,
// fenced by the claim's token. Intake never waits for QStash.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/telemetry"
)

// Config says what a relay works with. DB, Publisher, Destination, Env, Clock, Random
// and Logger are required.
type Config struct {
	DB          *postgres.DB
	Publisher   *qstash.Client
	Destination string // the worker's URL, to the letter
	Env         string // in the flow-control keys: environments must not share them

	Clock  func() time.Time
	Random func() float64
	NewID  func() uuid.UUID
	Logger *slog.Logger
	// Metrics counts what a run did; nil: nothing is measured.
	Metrics *telemetry.Meter

	// RateScale multiplies the portals' burst limits and the flow control's rate, for a
	// local world whose simulator is scaled alike. Default 1.
	RateScale   float64
	BatchSize   int           // events per claim
	Poll        time.Duration // pause after a pass that found nothing
	Lease       time.Duration
	Retries     int
	RetryDelay  string // QStash's expression, in milliseconds
	Rate        int    // deliveries per Period, per portal and lane
	Period      time.Duration
	Parallelism int
}

// Defaults. Rate, period, parallelism and retries are the seed's.
const (
	defaultBatchSize   = 1000
	defaultPoll        = 500 * time.Millisecond
	defaultRetries     = 5
	defaultRate        = 150
	defaultPeriod      = 10 * time.Second
	defaultParallelism = 12
	defaultRetryDelay  = "min(60000, 1000 * pow(2, retried))"

	callbackRetries = 2
	queueAhead      = 60 * time.Second // of budget
	eventsPerCall   = 100.0 / 6        // a full message of a hundred takes about six calls
	leastQueued     = outbox.MaxMessage
	passMargin      = 3 * time.Second // less time than this is left: no further pass
	markTimeout     = 10 * time.Second
	publishFloor    = 2 * time.Second
	outageCap       = time.Minute // after an outage everything is tried again within this time
	refusedMost     = 3           // events refused one by one with none accepted: it is not the events
)

func (c Config) withDefaults() Config {
	setDefault(&c.RateScale, 1)
	setDefault(&c.BatchSize, defaultBatchSize)
	setDefault(&c.Poll, defaultPoll)
	setDefault(&c.Lease, outbox.RelayLease)
	setDefault(&c.Retries, defaultRetries)
	setDefault(&c.RetryDelay, defaultRetryDelay)
	setDefault(&c.Rate, defaultRate)
	setDefault(&c.Period, defaultPeriod)
	setDefault(&c.Parallelism, defaultParallelism)
	if c.NewID == nil {
		c.NewID = func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	if c.DB == nil || c.Publisher == nil || c.Destination == "" || c.Env == "" {
		return errors.New("relay: DB, Publisher, Destination and Env are required")
	}
	if c.Clock == nil || c.Random == nil || c.Logger == nil {
		return errors.New("relay: Clock, Random and Logger are required")
	}
	return nil
}

// Relay is the timed stage.
type Relay struct{ Config }

// New returns a relay.
func New(cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Relay{cfg}, nil
}

// Result counts what passes did.
type Result struct {
	Passes       int `json:"passes"`
	Claimed      int `json:"claimed"`
	Messages     int `json:"messages"`
	Published    int `json:"published"` // events that QStash has
	Deduplicated int `json:"deduplicated"`
	Retried      int `json:"retried"` // events that wait for another try
	Dead         int `json:"dead"`
	Lost         int `json:"lost"` // events whose claim was over before the mark
}

func (r *Result) add(o Result) {
	r.Passes++
	r.Claimed += o.Claimed
	r.Messages += o.Messages
	r.Published += o.Published
	r.Deduplicated += o.Deduplicated
	r.Retried += o.Retried
	r.Dead += o.Dead
	r.Lost += o.Lost
}

// Run makes passes until shortly before the context's deadline, or until it is done:
// at once while something gets through, every Poll otherwise. A pass that fails is
// logged, and the next one tries again.
func (r *Relay) Run(ctx context.Context) (Result, error) {
	var total Result
	for ctx.Err() == nil && hasTime(ctx) {
		pass, err := r.Pass(ctx)
		total.add(pass)
		if err != nil && ctx.Err() == nil {
			r.Logger.Error("relay pass failed", "error", err.Error())
		}
		if err != nil || pass.Published == 0 {
			r.pause(ctx)
		}
	}
	r.Metrics.Emit(telemetry.Of(telemetry.RelayRuns, 1), telemetry.Of(telemetry.EventsPublished, total.Published),
		telemetry.Of(telemetry.PublishFailures, total.Retried+total.Dead))
	return total, nil
}

// hasTime: a pass that is cut off leaves messages of which nobody knows whether QStash
// has them.
func hasTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= passMargin
}

// pause waits for the next poll, or for the end.
func (r *Relay) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(r.Poll):
	}
}

// Pass claims, publishes and marks once.
func (r *Relay) Pass(ctx context.Context) (Result, error) {
	limit, probe, err := r.allowance(ctx)
	if err != nil || limit == 0 {
		return Result{}, err
	}
	routes, err := r.DB.Routes(ctx, postgres.RouteOptions{
		RateScale: r.RateScale, Ahead: queueAhead, EventsPerCall: eventsPerCall, Least: leastQueued,
	})
	if err != nil {
		return Result{}, err
	}
	token := r.NewID()
	events, claimErr := r.DB.ClaimPublishable(ctx, routes, limit, token, r.Lease)
	if len(events) == 0 {
		return Result{}, claimErr
	}
	started := r.Clock()
	p := newPublishing(r, probe)
	p.result.Claimed = len(events)
	p.publish(ctx, group(events))
	// The mark is written also when the pass's time is up: what QStash has must not be
	// sent again for want of a second.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	breakerErr := r.noteBreaker(ctx, p)
	marked, markErr := r.DB.MarkPublished(ctx, token, p.marks, outbox.DeliveryWindow)
	p.result.Lost = len(p.marks) - marked
	r.Logger.LogAttrs(ctx, slog.LevelInfo, "relay pass",
		slog.Int("claimed", len(events)), slog.Int("messages", p.result.Messages), slog.Int("published", p.result.Published),
		slog.Int("deduplicated", p.result.Deduplicated), slog.Int("retried", p.result.Retried), slog.Int("dead", p.result.Dead),
		slog.Int("lost", p.result.Lost), slog.Duration("took", r.Clock().Sub(started)))
	return p.result, errors.Join(claimErr, breakerErr, markErr)
}
