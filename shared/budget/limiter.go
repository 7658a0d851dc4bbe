package budget

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed script.lua
var script string

// UpstashPrefix lets Upstash run the script without its database-wide lock; plain
// Redis refuses the flag.
const UpstashPrefix = "#!lua flags=allow-key-locking\n"

// Times of the limiter.
const (
	guard         = guardMs * time.Millisecond
	tokenLife     = time.Second            // a granted call must start within this time
	redisTimeout  = 300 * time.Millisecond // of one script call
	redisRest     = 2 * time.Second        // after a failure, before Redis is asked again
	feedbackEvery = time.Second            // per portal, unless it is a 429
	minWait       = 10 * time.Millisecond
	closeDefault  = 10 * time.Second // a 429 that names no time closes the window for so long
)

// Limits are a portal's.
type Limits struct {
	Burst    int // calls per Window
	Window   time.Duration
	Daily    int
	Location *time.Location // of the account: the day ends at its midnight
}

// Request asks for n calls.
type Request struct {
	Portal string
	Lane   Lane
	N      int
	ID     string // a replay with the same id is not charged twice
	Limits Limits
}

// Grant is the answer. Unless Granted, RetryAfter says when to ask again and Reason
// why: closed, daily, burst, share, pace.
type Grant struct {
	Granted    bool
	Request    Request
	N          int
	RetryAfter time.Duration
	Reason     string
	ValidUntil time.Time // the calls must have started by then, on the limiter's clock
	Fallback   bool      // granted on the local rate: Redis is away
}

// Feedback is what one of HubSpot's answers said about its limits.
type Feedback struct {
	Known          bool
	Max, Remaining int
	Refused        bool          // a 429 of a short window
	RetryAfter     time.Duration // 0: not stated
}

// Config says where the budget is kept.
type Config struct {
	Redis  redis.UniversalClient
	Prefix string // of the keys, with the environment in it
	// ScriptPrefix is UpstashPrefix on Upstash.
	ScriptPrefix string
	// TrustEmpty takes a missing key for an unused window. Only for a world that starts
	// with an empty Redis: elsewhere a missing key may be a fail-over.
	TrustEmpty bool
	// Parallelism is how many processes may draw on the local rate at once while Redis
	// is away; default 12, the flow control's.
	Parallelism int
	Clock       func() time.Time
	Random      func() float64
}

// Limiter reserves calls. It is safe for concurrent use.
type Limiter struct {
	cfg    Config
	script *redis.Script

	mu       sync.Mutex
	restedAt time.Time // Redis is asked again from then on
	local    map[string]*localBudget
	fedBack  map[string]time.Time
}

// NewLimiter returns a limiter over a Redis.
func NewLimiter(cfg Config) *Limiter {
	if cfg.Parallelism == 0 {
		cfg.Parallelism = 12
	}
	return &Limiter{
		cfg: cfg, script: redis.NewScript(cfg.ScriptPrefix + script),
		local: map[string]*localBudget{}, fedBack: map[string]time.Time{},
	}
}

// ErrNeverFits says that a request asks for more than its lane can ever get at once.
var ErrNeverFits = errors.New("budget: the request is larger than its lane's share of a window: split it")

// MaxN is the most that one request of a lane may ask for.
func MaxN(lane Lane, limits Limits) int {
	burst := int64(limits.Burst)
	switch lane {
	case LaneOptOut:
		return int(burst - burst/10)
	case LaneLive:
		return int(max(burst-burst/10-max(burst/100, 1), 1))
	default:
		return int(pace(burst, limits.windowMs()))
	}
}

func (l Limits) windowMs() int64 { return (l.Window + guard).Milliseconds() }

func (l Limits) validate() error {
	if l.Burst < 1 || l.Window <= 0 || l.Daily < 1 || l.Location == nil {
		return errors.New("budget: Burst, Window, Daily and Location must be set")
	}
	return nil
}

// Reserve decides a request at once. Trouble with Redis is no error: the local rate
// decides then. An error is the caller's: limits that are not set, or ErrNeverFits.
func (l *Limiter) Reserve(ctx context.Context, r Request) (Grant, error) {
	if err := r.Limits.validate(); err != nil {
		return Grant{}, err
	}
	if r.N < 1 || r.N > MaxN(r.Lane, r.Limits) {
		return Grant{}, fmt.Errorf("%w (lane %d, %d calls)", ErrNeverFits, r.Lane, r.N)
	}
	asked := l.cfg.Clock()
	a := r.ask(asked)
	if !l.resting(asked) {
		a.charge = l.takeCharge(r.Portal)
		v, err := l.run(ctx, r.Portal, "reserve", a.windowMs, int(a.lane), a.n, a.limit, a.daily,
			a.resets[0], a.resets[1], a.resets[2], a.id, a.charge)
		if err == nil {
			return grantOf(r, v, asked, false), nil
		}
		if ctx.Err() != nil {
			l.returnCharge(r.Portal, a.charge)
			return Grant{}, ctx.Err()
		}
		l.returnCharge(r.Portal, a.charge)
		l.rest(asked)
	}
	return grantOf(r, l.reserveLocally(r, asked), asked, true), nil
}

func (r Request) ask(now time.Time) ask {
	return ask{
		lane: r.Lane, n: int64(r.N), limit: int64(r.Limits.Burst), windowMs: r.Limits.windowMs(),
		daily: int64(r.Limits.Daily), resets: midnights(now, r.Limits.Location), id: r.ID,
	}
}

func grantOf(r Request, v verdict, asked time.Time, fallback bool) Grant {
	g := Grant{Granted: v.granted, Request: r, Reason: v.reason, Fallback: fallback}
	if v.granted {
		g.N, g.ValidUntil = r.N, asked.Add(tokenLife)
		return g
	}
	g.RetryAfter = time.Duration(v.waitMs) * time.Millisecond
	return g
}

// Wait asks until the request is granted, at most for the given time. It returns the
// last refusal when that is over, and the context's error when that ends first.
func (l *Limiter) Wait(ctx context.Context, r Request, atMost time.Duration) (Grant, error) {
	deadline := l.cfg.Clock().Add(atMost)
	for {
		g, err := l.Reserve(ctx, r)
		if err != nil || g.Granted {
			return g, err
		}
		// A little later than told, and not all at once.
		pause := max(g.RetryAfter, minWait)
		pause = min(pause, 500*time.Millisecond) + time.Duration(l.cfg.Random()*float64(50*time.Millisecond))
		if l.cfg.Clock().Add(pause).After(deadline) {
			return g, nil
		}
		select {
		case <-ctx.Done():
			return g, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Refund gives back calls that were reserved and not made.
func (l *Limiter) Refund(ctx context.Context, g Grant, n int) error {
	if !g.Granted || n < 1 {
		return nil
	}
	if g.Fallback {
		l.refundLocally(g, n)
		return nil
	}
	_, err := l.run(ctx, g.Request.Portal, "refund", g.Request.Limits.windowMs(), int(g.Request.Lane), n)
	return err
}

// Learn takes what HubSpot said: other apps' spending shrinks ours for a window, and a
// 429 closes the window for everyone. It asks Redis at most once a second per portal,
// but for a 429.
func (l *Limiter) Learn(ctx context.Context, portal string, window time.Duration, f Feedback) error {
	now := l.cfg.Clock()
	spent, closeMs := int64(-1), int64(0)
	if f.Known {
		spent = int64(max(f.Max-f.Remaining, 0))
	}
	if f.Refused {
		spent, closeMs = -1, f.RetryAfter.Milliseconds()
		if closeMs == 0 {
			closeMs = closeDefault.Milliseconds()
		}
	}
	l.mu.Lock()
	skip := !f.Refused && (spent < 0 || now.Sub(l.fedBack[portal]) < feedbackEvery)
	if !skip {
		l.fedBack[portal] = now
	}
	if local := l.local[portal]; local != nil && closeMs > 0 {
		local.state.closedUntil = now.UnixMilli() + closeMs
	}
	l.mu.Unlock()
	if skip || l.resting(now) {
		return nil
	}
	_, err := l.run(ctx, portal, "learn", (window + guard).Milliseconds(), spent, closeMs)
	return err
}

func (l *Limiter) run(ctx context.Context, portal, what string, windowMs int64, args ...any) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	trust := 0
	if l.cfg.TrustEmpty {
		trust = 1
	}
	all := append([]any{what, windowMs, trust}, args...)
	answer, err := l.script.Run(ctx, l.cfg.Redis, []string{l.cfg.Prefix + "budget:{" + portal + "}"}, all...).Slice()
	if err != nil {
		return verdict{}, fmt.Errorf("budget of portal %s: %s: %w", portal, what, err)
	}
	if len(answer) != 4 {
		return verdict{}, fmt.Errorf("budget of portal %s: %s: answer of %d values", portal, what, len(answer))
	}
	granted, ok1 := answer[0].(int64)
	wait, ok2 := answer[1].(int64)
	reason, ok3 := answer[2].(string)
	if !ok1 || !ok2 || !ok3 {
		return verdict{}, fmt.Errorf("budget of portal %s: %s: answer of other types", portal, what)
	}
	return verdict{granted == 1, wait, reason}, nil
}

func (l *Limiter) resting(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.restedAt)
}

func (l *Limiter) rest(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restedAt = now.Add(redisRest)
}
