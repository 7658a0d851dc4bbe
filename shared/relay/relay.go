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
	markTimeout     = 10 * time.Second
	publishFloor    = 2 * time.Second
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
type Relay struct {
	Config
	breaker breaker
}

// New returns a relay.
func New(cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Relay{Config: cfg}, nil
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
// at once while there is work, every Poll otherwise. A pass that fails is logged, and
// the next one tries again.
func (r *Relay) Run(ctx context.Context) (Result, error) {
	var total Result
	for ctx.Err() == nil {
		pass, err := r.Pass(ctx)
		total.add(pass)
		if err != nil && ctx.Err() == nil {
			r.Logger.Error("relay pass failed", "error", err.Error())
		}
		if err == nil && pass.Claimed > 0 {
			continue
		}
		if !r.pause(ctx) {
			break
		}
	}
	return total, nil
}

// pause waits for the next poll; false: no time is left for another pass.
func (r *Relay) pause(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < r.Poll {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(r.Poll):
		return true
	}
}

// Pass claims, publishes and marks once.
func (r *Relay) Pass(ctx context.Context) (Result, error) {
	limit, probe, err := r.breaker.allowance(ctx, r)
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
	events, err := r.DB.ClaimPublishable(ctx, routes, limit, token, r.Lease)
	if err != nil && len(events) == 0 {
		return Result{}, err
	}
	if len(events) == 0 {
		return Result{}, nil
	}
	started := r.Clock()
	p := &publishing{relay: r, probe: probe, result: Result{Claimed: len(events)}}
	p.publish(ctx, group(events))
	r.breaker.note(ctx, r, p)
	// The mark is written also when the pass's time is up: what QStash has must not be
	// sent again for want of a second.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	marked, err := r.DB.MarkPublished(ctx, token, p.marks, outbox.DeliveryWindow)
	p.result.Lost = len(p.marks) - marked
	r.Logger.LogAttrs(ctx, slog.LevelInfo, "relay pass",
		slog.Int("claimed", len(events)), slog.Int("messages", p.result.Messages), slog.Int("published", p.result.Published),
		slog.Int("deduplicated", p.result.Deduplicated), slog.Int("retried", p.result.Retried), slog.Int("dead", p.result.Dead),
		slog.Int("lost", p.result.Lost), slog.Duration("took", r.Clock().Sub(started)))
	return p.result, err
}
