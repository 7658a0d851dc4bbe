package budget

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func limits(burst, daily int) Limits {
	return Limits{Burst: burst, Window: 10 * time.Second, Daily: daily, Location: time.UTC}
}

// world is a limiter over a Redis whose clock is the test's.
type world struct {
	*Limiter
	redis *miniredis.Miniredis
	now   time.Time
	slept []time.Duration
}

func newWorld(t testing.TB, trustEmpty bool) *world {
	w := &world{redis: miniredis.RunT(t), now: start}
	w.redis.SetTime(w.now)
	client, err := Open("redis://" + w.redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	w.Limiter = NewLimiter(Config{
		Redis: client, TrustEmpty: trustEmpty, Clock: func() time.Time { return w.now },
		Sleep: func(ctx context.Context, d time.Duration) error {
			w.slept = append(w.slept, d)
			w.advance(d)
			return ctx.Err()
		},
	})
	return w
}

func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	w.redis.SetTime(w.now)
}

func reserve(t *testing.T, w *world, lane Lane, n int, id string, l Limits) Grant {
	t.Helper()
	g, err := w.Reserve(t.Context(), Request{Portal: "main", Lane: lane, N: n, ID: id, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAReplayIsNotChargedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(10, 1000)
	for range 5 {
		if g := reserve(t, w, LaneOptOut, 9, "same", l); !g.Granted || g.ValidUntil != w.now.Add(time.Second) {
			t.Fatalf("replay: %+v", g)
		}
		w.advance(500 * time.Millisecond)
	}
	if g := reserve(t, w, LaneOptOut, 2, "other", l); g.Granted || g.Reason != reasonBurst || g.RetryAfter != 10500*time.Millisecond {
		t.Errorf("a window of 10 with 9 spent: %+v", g)
	}
	w.advance(10500 * time.Millisecond)
	if g := reserve(t, w, LaneOptOut, 9, "same", l); !g.Granted {
		t.Errorf("after the window: %+v", g)
	}
	if g := reserve(t, w, LaneOptOut, 2, "third", l); g.Granted {
		t.Errorf("an id of a window ago is free of charge: %+v", g)
	}
}

func TestARefundGivesBackOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(10, 1000)
	kept := reserve(t, w, LaneOptOut, 3, "kept", l)
	g := reserve(t, w, LaneOptOut, 6, "a", l)
	for range 3 {
		if err := w.Refund(t.Context(), g, 4); err != nil {
			t.Fatal(err)
		}
	}
	if g := reserve(t, w, LaneOptOut, 6, "b", l); g.Granted {
		t.Errorf("a refund counted more than once: %+v", g)
	}
	if g := reserve(t, w, LaneOptOut, 5, "c", l); !g.Granted {
		t.Errorf("a refund of 4 of 9 in 10: %+v", g)
	}
	if err := w.Refund(t.Context(), Grant{Request: kept.Request}, 3); err != nil {
		t.Fatal(err)
	}
	if g := reserve(t, w, LaneOptOut, 1, "d", l); g.Granted {
		t.Errorf("what was not granted was given back: %+v", g)
	}
}

func TestTheDayKeepsAFloorForOptOuts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(100, 40)
	for i := range 38 {
		if g := reserve(t, w, LaneLive, 1, fmt.Sprint(i), l); !g.Granted {
			t.Fatalf("call %d: %+v", i, g)
		}
		w.advance(100 * time.Millisecond)
	}
	g := reserve(t, w, LaneLive, 1, "x", l)
	left := time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC).Sub(w.now)
	if g.Granted || g.Reason != reasonDaily || g.RetryAfter != left {
		t.Errorf("the floor is gone: %+v", g)
	}
	if g = reserve(t, w, LaneOptOut, 2, "y", l); !g.Granted {
		t.Errorf("an opt-out within the floor: %+v", g)
	}
	if g = reserve(t, w, LaneOptOut, 1, "z", l); g.Granted {
		t.Errorf("more than the day has: %+v", g)
	}
	w.advance(left - time.Millisecond)
	if g = reserve(t, w, LaneOptOut, 1, "early", l); g.Granted {
		t.Errorf("before midnight: %+v", g)
	}
	w.advance(time.Millisecond)
	if g = reserve(t, w, LaneLive, 1, "morning", l); !g.Granted {
		t.Errorf("at midnight: %+v", g)
	}
}

// A caller whose clock is wrong must not turn the day.
func TestASkewedCallerDoesNotTurnTheDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(100, 40)
	reserve(t, w, LaneOptOut, 40, "a", l)
	for _, skew := range []time.Duration{-23 * time.Hour, 23*time.Hour + 20*time.Minute} {
		w.now = start.Add(skew)
		if g := reserve(t, w, LaneOptOut, 1, "b"+skew.String(), l); g.Granted || g.Reason == reasonBurst {
			t.Errorf("skew %s: %+v", skew, g)
		}
	}
}

func TestAMissingKeyCountsAsAWindowSpent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	l := limits(10, 1000)
	if g := reserve(t, w, LaneOptOut, 1, "a", l); g.Granted || g.Reason != reasonClosed || g.RetryAfter != 11*time.Second {
		t.Fatalf("a cold start: %+v", g)
	}
	w.advance(11 * time.Second)
	if g := reserve(t, w, LaneOptOut, 9, "b", l); !g.Granted {
		t.Fatalf("a window later: %+v", g)
	}
	w.redis.FlushAll()
	if g := reserve(t, w, LaneOptOut, 1, "c", l); g.Granted {
		t.Errorf("a flushed window counts as idle: %+v", g)
	}
}

func TestHubSpotsCountShrinksOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(100, 1000)
	tell := func(f Feedback) {
		t.Helper()
		if err := w.Feedback(t.Context(), "main", f); err != nil {
			t.Fatal(err)
		}
	}
	reserve(t, w, LaneOptOut, 10, "a", l)
	tell(Feedback{Known: true, Max: 120, Remaining: 20}) // 100 seen, 10 are ours
	if g := reserve(t, w, LaneOptOut, 21, "b", l); g.Granted {
		t.Errorf("others' calls do not count: %+v", g)
	}
	if g := reserve(t, w, LaneOptOut, 20, "c", l); !g.Granted {
		t.Errorf("what is left is not granted: %+v", g)
	}
	tell(Feedback{Known: true, Max: 120, Remaining: 120}) // within a second of the last
	if g := reserve(t, w, LaneOptOut, 1, "d", l); g.Granted {
		t.Errorf("feedback was asked twice a second: %+v", g)
	}
	w.advance(10 * time.Second)
	if g := reserve(t, w, LaneOptOut, 60, "e", l); !g.Granted {
		t.Errorf("it does not recover: %+v", g)
	}
	w.advance(11 * time.Second)
	tell(Feedback{Known: true, Max: 4, Remaining: 0, Interval: time.Second}) // another window's
	if g := reserve(t, w, LaneOptOut, 90, "f", l); !g.Granted {
		t.Errorf("a limit per second was taken for the window's: %+v", g)
	}
}

func TestA429Closes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		feedback Feedback
		reason   string
		wait     time.Duration
	}{
		"named":        {Feedback{TooMany: true, RetryAfter: 3 * time.Second}, reasonClosed, 3 * time.Second},
		"by interval":  {Feedback{TooMany: true, Policy: "SECONDLY", Interval: time.Second}, reasonClosed, time.Second},
		"unnamed":      {Feedback{TooMany: true}, reasonClosed, 10 * time.Second},
		"unbelievable": {Feedback{TooMany: true, RetryAfter: 20 * time.Hour}, reasonClosed, time.Minute},
		"of the day":   {Feedback{TooMany: true, Policy: "DAILY", RetryAfter: time.Hour}, reasonDaily, 5 * time.Minute},
		"day spent":    {Feedback{DailyKnown: true, DailyRemaining: 0}, reasonDaily, 5 * time.Minute},
	} {
		w := newWorld(t, true)
		reserve(t, w, LaneOptOut, 1, "first", limits(100, 1000))
		if err := w.Feedback(t.Context(), "main", c.feedback); err != nil {
			t.Fatal(err)
		}
		if g := reserve(t, w, LaneOptOut, 1, "a", limits(100, 1000)); g.Granted || g.Reason != c.reason || g.RetryAfter != c.wait {
			t.Errorf("%s: %+v", name, g)
		}
		w.advance(c.wait)
		if g := reserve(t, w, LaneOptOut, 1, "b", limits(100, 1000)); !g.Granted {
			t.Errorf("%s, afterwards: %+v", name, g)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.cfg.Random = func() float64 { return 0.99 }
	l := limits(10, 1000)
	reserve(t, w, LaneOptOut, 9, "a", l)
	r := Request{Portal: "main", Lane: LaneOptOut, N: 2, ID: "b", Limits: l}
	g, err := w.Wait(t.Context(), r, 5*time.Second)
	if err != nil || g.Granted || len(w.slept) != 0 || g.RetryAfter != 11*time.Second {
		t.Errorf("a wait that cannot end in time: %+v, %v, slept %v", g, err, w.slept)
	}
	w.advance(9 * time.Second)
	g, err = w.Wait(t.Context(), r, 5*time.Second)
	if err != nil || !g.Granted || len(w.slept) > 3 {
		t.Errorf("a wait of 2 s: %+v, %v, slept %v", g, err, w.slept)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.ID = "c"
	if _, err := w.Wait(ended, r, 5*time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ended: %v", err)
	}
	if g := reserve(t, w, LaneOptOut, 1, "d", l); g.Fallback {
		t.Errorf("the caller's cancellation was taken for Redis' failure: %+v", g)
	}
}

func TestReserveRefusesWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	whole := Request{Portal: "main", Lane: LaneBulk, N: 1, ID: "a", Limits: limits(150, 1000)}
	for name, spoil := range map[string]func(*Request){
		"no limits": func(r *Request) { r.Limits = Limits{} },
		"no zone":   func(r *Request) { r.Limits.Location = nil },
		"no portal": func(r *Request) { r.Portal = "" },
		"no id":     func(r *Request) { r.ID = "" },
		"no calls":  func(r *Request) { r.N = 0 },
		"no lane":   func(r *Request) { r.Lane = 4 },
		"too many":  func(r *Request) { r.N = w.MaxN(LaneBulk, r.Limits) + 1 },
	} {
		r := whole
		spoil(&r)
		if _, err := w.Reserve(t.Context(), r); err == nil || errors.Is(err, ErrNeverFits) != (name == "too many") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Reserve(t.Context(), whole); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesAPasswordInTheClear(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"rediss://default:canary@redis.example.com:6379": true, "redis://127.0.0.1:6379": true,
		"redis://default:canary@127.0.0.1:6379": true, "redis://default:canary@[::1]:6379": true,
		"redis://default:canary@redis.example.com:6379": false, "redis://default:canary@127.example.com:6379": false,
		"http://redis.example.com": false, "": false, "redis://default:can%ary@redis.example.com": false,
	} {
		client, err := Open(url)
		if (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "can") && strings.Contains(err.Error(), "ary") {
			t.Errorf("the error shows the URL: %v", err)
		}
		if client != nil {
			_ = client.Close()
		}
	}
}
