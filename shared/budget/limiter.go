package budget

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Times of the limiter.
const (
	guard         = guardMs * time.Millisecond
	tokenLife     = time.Second      // a granted call must start within this time
	feedbackEvery = time.Second      // per portal, unless it is a 429
	closeDefault  = 10 * time.Second // a 429 that names no time closes the window for so long
	closeLongest  = time.Minute      // and one that names a longer time, for so long: who pauses a portal is its worker
	waitShortest  = 10 * time.Millisecond
	waitLongest   = time.Second
)

// policyDaily is HubSpot's name of the day's limit in a 429.
const policyDaily = "DAILY"

// Limits are a portal's.
type Limits struct {
	Burst    int // calls per Window
	Window   time.Duration
	Daily    int
	Location *time.Location // of the account: the day ends at its midnight
}

// Request asks for N calls.
type Request struct {
	Portal string
	Lane   Lane
	N      int    // at most MaxN
	ID     string // of the reservation: a replay with the same id is not charged twice
	Limits Limits
}

// Grant is the answer. Unless Granted, RetryAfter says when to ask again and Reason
// why: closed, daily, burst, share, pace.
type Grant struct {
	Granted bool
	Request Request
	// N calls may be made. It is what was asked for, or less on the local rate, whose
	// window may be smaller than the request.
	N          int
	RetryAfter time.Duration
	Reason     string
	ValidUntil time.Time // the calls must have started by then, on the limiter's clock
	Fallback   bool      // decided by the local rate: Redis is away
}

// Feedback is what one of HubSpot's answers said about its limits.
type Feedback struct {
	Known          bool // Max and Remaining were stated
	Max, Remaining int
	Interval       time.Duration // of Max; 0: not stated
	DailyKnown     bool
	DailyRemaining int
	TooMany        bool          // the answer was a 429
	Policy         string        // of the 429
	RetryAfter     time.Duration // of the 429; 0: not stated
}

// Config says where the budget is kept. Redis and Clock are required.
type Config struct {
	Redis  redis.UniversalClient
	Prefix string // of the keys, with the environment in it
	// ScriptPrefix is UpstashPrefix on Upstash, else empty.
	ScriptPrefix string
	// TrustEmpty takes a missing key for an unused window. Only for a world that starts
	// with an empty Redis: elsewhere a missing key may be a fail-over, and granting waits
	// until the window that was lost has passed.
	TrustEmpty bool
	// Parallelism is how many processes may draw on the local rate at once while Redis
	// is away; default 12, the flow control's.
	Parallelism int
	Clock       func() time.Time
	Random      func() float64                             // in [0, 1), spreads waits; default: none
	Sleep       func(context.Context, time.Duration) error // default: real time
}

// Limiter reserves calls. It is safe for concurrent use.
type Limiter struct {
	cfg    Config
	script *redis.Script

	mu       sync.Mutex
	fellAt   time.Time // when Redis failed first; zero while it answers
	restedAt time.Time // Redis is asked again from then on
	local    map[string]*localBudget
	fedBack  map[string]time.Time
}

// NewLimiter returns a limiter over a Redis.
func NewLimiter(cfg Config) *Limiter {
	if cfg.Parallelism < 1 {
		cfg.Parallelism = 12
	}
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0 }
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	return &Limiter{
		cfg: cfg, script: redis.NewScript(cfg.ScriptPrefix + script),
		local: map[string]*localBudget{}, fedBack: map[string]time.Time{},
	}
}

// ErrNeverFits says that a request asks for more than its lane can ever get at once.
var ErrNeverFits = errors.New("budget: the request is larger than its lane's share of a window: split it")

// MaxN is the most that one request of a lane may ask for; callers split what is larger.
func (l *Limiter) MaxN(lane Lane, limits Limits) int {
	return int(maxN(lane, int64(limits.Burst), limits.windowMs()))
}

func (l Limits) windowMs() int64 { return (l.Window + guard).Milliseconds() }

func (l *Limiter) check(r Request) error {
	if r.Limits.Burst < 1 || r.Limits.Window < time.Millisecond || r.Limits.Daily < 1 || r.Limits.Location == nil {
		return errors.New("budget: Burst, Window, Daily and Location must be set")
	}
	if r.Portal == "" || r.ID == "" || r.Lane < LaneOptOut || r.Lane > LaneSpare || r.N < 1 {
		return errors.New("budget: Portal, Lane, N and ID must be set")
	}
	if most := l.MaxN(r.Lane, r.Limits); r.N > most {
		return fmt.Errorf("%w (lane %d: %d of at most %d calls)", ErrNeverFits, r.Lane, r.N, most)
	}
	return nil
}

// Reserve decides a request at once. Trouble with Redis is no error: the local rate
// decides then. An error is the caller's: a request that is not whole, ErrNeverFits, or
// a context that ended.
func (l *Limiter) Reserve(ctx context.Context, r Request) (Grant, error) {
	if err := l.check(r); err != nil {
		return Grant{}, err
	}
	asked := l.cfg.Clock()
	if !l.resting(asked) {
		v, err := l.reserveInRedis(ctx, r, asked)
		if err == nil {
			return grantOf(r, v, asked), nil
		}
		if ctx.Err() != nil {
			return Grant{}, ctx.Err()
		}
	}
	return l.reserveLocally(r, asked), nil
}

func (l *Limiter) reserveInRedis(ctx context.Context, r Request, asked time.Time) (verdict, error) {
	a := r.ask(asked)
	debt := l.takeDebt(r.Portal)
	if debt.fell {
		a.charge, a.elsewhere = debt.spent, l.localLimit(a.limit)*int64(l.cfg.Parallelism)
	}
	v, err := l.run(ctx, r.Portal, "reserve", a.windowMs, a.args()...)
	if err != nil {
		l.returnDebt(r.Portal, debt)
	}
	return v, err
}

func (r Request) ask(now time.Time) ask {
	return ask{
		lane: r.Lane, n: int64(r.N), limit: int64(r.Limits.Burst), windowMs: r.Limits.windowMs(),
		daily: int64(r.Limits.Daily), resets: midnights(now, r.Limits.Location), id: shortID(r.ID),
	}
}

// shortID is what stands for an id in the state: short, without separators, and
// telling nothing.
func shortID(id string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return strconv.FormatUint(h.Sum64(), 36)
}

func grantOf(r Request, v verdict, asked time.Time) Grant {
	g := Grant{Granted: v.granted, Request: r, Reason: v.reason}
	if v.granted {
		// From before the question on: Redis counted the tokens later than this.
		g.N, g.ValidUntil = r.N, asked.Add(tokenLife)
		return g
	}
	g.RetryAfter = time.Duration(v.waitMs) * time.Millisecond
	return g
}

// Wait asks until the request is granted, at most for the given time. It returns the
// last refusal when that would be over, and the context's error when that ends first.
func (l *Limiter) Wait(ctx context.Context, r Request, atMost time.Duration) (Grant, error) {
	deadline := l.cfg.Clock().Add(atMost)
	for least := waitShortest; ; least = min(2*least, waitLongest/4) {
		g, err := l.Reserve(ctx, r)
		if err != nil || g.Granted {
			return g, err
		}
		// Not all at once, and ever less often: each question is a billed command.
		pause := min(max(g.RetryAfter, least), waitLongest)
		pause += time.Duration(l.cfg.Random() * float64(pause) / 2)
		if l.cfg.Clock().Add(max(pause, g.RetryAfter)).After(deadline) {
			return g, nil
		}
		if err := l.cfg.Sleep(ctx, pause); err != nil {
			return g, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Refund gives back the n calls of a grant that were not made, at most three seconds
// after it. A second refund of a grant replaces the first, so one that is sent twice
// gives back once. An error loses nothing: the tokens leave with their window.
func (l *Limiter) Refund(ctx context.Context, g Grant, n int) error {
	if !g.Granted || n < 1 {
		return nil
	}
	keep := max(g.N-n, 0)
	if g.Fallback {
		l.refundLocally(g, keep)
		return nil
	}
	_, err := l.run(ctx, g.Request.Portal, "refund", g.Request.Limits.windowMs(), shortID(g.Request.ID), keep)
	return err
}

// Feedback takes what HubSpot said: others' calls shrink ours for a window, and a 429
// closes the window for everyone until it has passed; a 429 of the day, the day for a
// few minutes. Redis is asked at most once a second per portal, but for a 429.
func (l *Limiter) Feedback(ctx context.Context, portal string, f Feedback) error {
	now := l.cfg.Clock()
	heard := f.news()
	if !l.worthTelling(portal, f, heard, now) || l.resting(now) {
		return nil
	}
	_, err := l.run(ctx, portal, "learn", heard.windowMs, heard.remaining, heard.dayLeft, heard.closeMs)
	return err
}

func (f Feedback) news() news {
	// An interval other than the window's (a limit per second) says nothing about it.
	interval := max(f.Interval, closeDefault)
	heard := news{remaining: -1, dayLeft: -1, windowMs: (interval + guard).Milliseconds()}
	if f.Known && (f.Interval == 0 || f.Interval == interval) {
		heard.remaining = int64(max(f.Remaining, 0))
	}
	if f.DailyKnown {
		heard.dayLeft = int64(max(f.DailyRemaining, 0))
	}
	switch {
	case f.TooMany && f.Policy == policyDaily:
		heard.dayLeft = 0
	case f.TooMany && f.RetryAfter > 0:
		heard.closeMs = min(f.RetryAfter, closeLongest).Milliseconds()
	case f.TooMany && f.Interval > 0:
		heard.closeMs = min(f.Interval, closeLongest).Milliseconds()
	case f.TooMany:
		heard.closeMs = closeDefault.Milliseconds()
	}
	return heard
}

// worthTelling also tells the local rate, which must know while Redis is away.
func (l *Limiter) worthTelling(portal string, f Feedback, heard news, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.localOf(portal)
	b.state.closedUntil = max(b.state.closedUntil, now.UnixMilli()+heard.closeMs)
	if !f.TooMany && (heard.remaining < 0 && heard.dayLeft < 0 || now.Sub(l.fedBack[portal]) < feedbackEvery) {
		return false
	}
	l.fedBack[portal] = now
	return true
}
