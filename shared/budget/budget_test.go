package budget

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)

func limits(burst, daily int) Limits {
	return Limits{Burst: burst, Window: 10 * time.Second, Daily: daily, Location: time.UTC}
}

// world is a limiter over a Redis whose clock is the test's.
type world struct {
	*Limiter
	redis *miniredis.Miniredis
	now   time.Time
}

func newWorld(t testing.TB, trustEmpty bool) *world {
	w := &world{redis: miniredis.NewMiniRedis(), now: start}
	if err := w.redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.redis.Close)
	w.redis.SetTime(w.now)
	client, err := Open("redis://"+w.redis.Addr(), 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	w.Limiter = NewLimiter(Config{Redis: client, TrustEmpty: trustEmpty, Clock: func() time.Time { return w.now }, Random: rand.Float64})
	return w
}

func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	w.redis.SetTime(w.now)
}

// The script must decide as its twin does, on any sequence.
func TestScriptEqualsTwin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		portal := fmt.Sprint("p", round)
		var twin state
		burst := rapid.IntRange(2, 40).Draw(t, "burst")
		l := limits(burst, rapid.IntRange(20, 200).Draw(t, "daily"))
		l.Location = rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("east", 5*3600)}).Draw(t, "zone")
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.advance(time.Duration(rapid.IntRange(0, 2500).Draw(t, "ms")) * time.Millisecond)
			now := w.now.UnixMilli()
			lane := Lane(rapid.IntRange(0, 3).Draw(t, "lane"))
			n := rapid.IntRange(1, 4).Draw(t, "n")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				spent, closeMs := int64(rapid.IntRange(-1, 30).Draw(t, "spent")), int64(rapid.SampledFrom([]int{0, 0, 3000}).Draw(t, "close"))
				twin.learn(now, spent, closeMs, l.windowMs())
				if _, err := w.run(t.Context(), portal, "learn", l.windowMs(), spent, closeMs); err != nil {
					t.Fatal(err)
				}
			case 1:
				twin.prune(now, l.windowMs())
				twin.refund(int64(n), lane)
				if _, err := w.run(t.Context(), portal, "refund", l.windowMs(), int(lane), n); err != nil {
					t.Fatal(err)
				}
			default:
				r := Request{Portal: portal, Lane: lane, N: n, ID: fmt.Sprint("r", rapid.IntRange(0, i).Draw(t, "id")), Limits: l}
				a := r.ask(w.now)
				a.charge = int64(rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "charge"))
				want := twin.reserve(now, a)
				got, err := w.run(t.Context(), portal, "reserve", a.windowMs, int(a.lane), a.n, a.limit, a.daily,
					a.resets[0], a.resets[1], a.resets[2], a.id, a.charge)
				if err != nil || got != want {
					t.Fatalf("script %+v, twin %+v, %v", got, want, err)
				}
			}
			value, err := w.redis.Get("budget:{" + portal + "}")
			if err != nil || value != twin.encode() {
				t.Fatalf("script wrote %q, twin %q, %v", value, twin.encode(), err)
			}
		}
	})
}

// Calls land up to a second after their reservation; no ten seconds may see more than
// the limit all the same.
func TestNeverOverTheLimitOnArrival(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s state
		burst := int64(rapid.IntRange(2, 30).Draw(t, "burst"))
		var arrivals []int64
		now := start.UnixMilli()
		for i := range rapid.IntRange(20, 400).Draw(t, "steps") {
			now += int64(rapid.SampledFrom([]int{0, 0, 1, 7, 40, 99, 100, 101, 700, 4000}).Draw(t, "ms"))
			a := ask{lane: Lane(rapid.IntRange(0, 3).Draw(t, "lane")), n: 1, limit: burst, windowMs: 11_000, daily: 1e9, id: fmt.Sprint(i)}
			if s.reserve(now, a).granted {
				arrivals = append(arrivals, now+int64(rapid.IntRange(0, 1000).Draw(t, "late")))
			}
		}
		for _, from := range arrivals {
			n := int64(0)
			for _, at := range arrivals {
				if at >= from && at < from+10_000 {
					n++
				}
			}
			if n > burst {
				t.Fatalf("%d arrivals within 10 s, the limit is %d", n, burst)
			}
		}
	})
}

// saturate asks every few milliseconds for a simulated while, and returns the grants
// per lane.
func saturate(s *state, burst int64, span time.Duration, lanes ...Lane) map[Lane]int64 {
	granted := map[Lane]int64{}
	from := start.UnixMilli()
	for now := from; now < from+span.Milliseconds(); now += 5 {
		for _, lane := range lanes {
			a := ask{lane: lane, n: 1, limit: burst, windowMs: 11_000, daily: 1e9, id: fmt.Sprint(lane, now)}
			if s.reserve(now, a).granted {
				granted[lane]++
			}
		}
	}
	return granted
}

func TestOneLaneAloneUsesNearlyAll(t *testing.T) {
	t.Parallel()
	const span = 220 * time.Second
	for _, lane := range []Lane{LaneOptOut, LaneLive, LaneBulk} {
		granted := saturate(&state{}, 150, span, lane)[lane]
		if share := float64(granted) / (150 * span.Seconds() / 10); share < 0.9 {
			t.Errorf("lane %d uses %.3f of the limit", lane, share)
		}
	}
}

func TestFloodsDoNotStarve(t *testing.T) {
	t.Parallel()
	granted := saturate(&state{}, 150, 220*time.Second, LaneBulk, LaneLive, LaneOptOut)
	if granted[LaneLive] < 22*10 || granted[LaneOptOut] < granted[LaneLive] || granted[LaneBulk] > granted[LaneLive] {
		t.Errorf("grants by lane: %v", granted)
	}
}

func TestAnOptOutWaitsLittleBehindBulk(t *testing.T) {
	t.Parallel()
	var s state
	now := start.UnixMilli()
	worst := int64(0)
	for i := range 20_000 {
		now += 5
		s.reserve(now, ask{lane: LaneBulk, n: 1, limit: 150, windowMs: 11_000, daily: 1e9, id: fmt.Sprint("b", i)})
		if i%97 != 0 {
			continue
		}
		for call := range 3 { // an opt-out with a property
			for waited := int64(0); ; waited += 20 {
				if s.reserve(now+waited, ask{lane: LaneOptOut, n: 1, limit: 150, windowMs: 11_000, daily: 1e9, id: fmt.Sprint("o", i, call)}).granted {
					now, worst = now+waited, max(worst, waited)
					break
				}
				s.reserve(now+waited, ask{lane: LaneBulk, n: 1, limit: 150, windowMs: 11_000, daily: 1e9, id: fmt.Sprint("w", i, waited)})
			}
		}
	}
	if worst > 1500 {
		t.Errorf("an opt-out's call waited %d ms", worst)
	}
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
		if g := reserve(t, w, LaneOptOut, 9, "same", l); !g.Granted {
			t.Fatalf("replay refused: %+v", g)
		}
	}
	if g := reserve(t, w, LaneOptOut, 2, "other", l); g.Granted || g.Reason != reasonBurst || g.RetryAfter <= 10*time.Second {
		t.Errorf("window of 10 with 9 spent: %+v", g)
	}
	w.advance(11100 * time.Millisecond)
	if g := reserve(t, w, LaneOptOut, 9, "later", l); !g.Granted {
		t.Errorf("after the window: %+v", g)
	}
}

func TestRefundGivesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(10, 1000)
	g := reserve(t, w, LaneOptOut, 9, "a", l)
	if err := w.Refund(t.Context(), g, 9); err != nil {
		t.Fatal(err)
	}
	if g = reserve(t, w, LaneOptOut, 9, "b", l); !g.Granted {
		t.Errorf("after the refund: %+v", g)
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
	}
	g := reserve(t, w, LaneLive, 1, "x", l)
	if g.Granted || g.Reason != reasonDaily || g.RetryAfter != 23*time.Hour+30*time.Minute {
		t.Errorf("the floor is gone: %+v", g)
	}
	if g = reserve(t, w, LaneOptOut, 2, "y", l); !g.Granted {
		t.Errorf("an opt-out within the floor: %+v", g)
	}
	w.advance(g.RetryAfter + 23*time.Hour + 30*time.Minute + time.Second)
	if g = reserve(t, w, LaneLive, 1, "z", l); !g.Granted {
		t.Errorf("the next day: %+v", g)
	}
}

func TestMidnightsKnowDaylightSaving(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	resets := midnights(time.Date(2026, 3, 29, 12, 0, 0, 0, zone), zone)
	if got := time.Duration(resets[1]-resets[0]) * time.Millisecond; got != 23*time.Hour {
		t.Errorf("the day of the change has %s", got)
	}
}

func TestAMissingKeyCountsAsAWindowSpent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	l := limits(10, 1000)
	if g := reserve(t, w, LaneOptOut, 1, "a", l); g.Granted || g.Reason != reasonClosed {
		t.Fatalf("a cold start granted at once: %+v", g)
	}
	w.advance(11 * time.Second)
	for i := range 9 {
		reserve(t, w, LaneOptOut, 1, fmt.Sprint("b", i), l)
	}
	w.redis.FlushAll()
	if g := reserve(t, w, LaneOptOut, 1, "c", l); g.Granted {
		t.Errorf("a flushed window counts as idle: %+v", g)
	}
}

func TestLearn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(100, 1000)
	learn := func(f Feedback) {
		t.Helper()
		if err := w.Learn(t.Context(), "main", l.Window, f); err != nil {
			t.Fatal(err)
		}
	}
	reserve(t, w, LaneOptOut, 10, "a", l)
	learn(Feedback{Known: true, Max: 100, Remaining: 20}) // 80 seen, 10 are ours
	if g := reserve(t, w, LaneOptOut, 25, "b", l); g.Granted {
		t.Errorf("other apps' calls do not count: %+v", g)
	}
	if g := reserve(t, w, LaneOptOut, 20, "c", l); !g.Granted {
		t.Errorf("what is left is not granted: %+v", g)
	}
	w.advance(10*time.Second + time.Millisecond)
	if g := reserve(t, w, LaneOptOut, 60, "d", l); !g.Granted {
		t.Errorf("it does not recover: %+v", g)
	}
	learn(Feedback{Refused: true, RetryAfter: 3 * time.Second})
	if g := reserve(t, w, LaneOptOut, 1, "e", l); g.Granted || g.RetryAfter != 3*time.Second || g.Reason != reasonClosed {
		t.Errorf("a 429 does not close the window: %+v", g)
	}
}

func TestRedisAwayFallsBackAndReturnsWithoutABurst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(240, 100_000)
	reserve(t, w, LaneOptOut, 1, "warm", l)
	w.redis.SetError("READONLY You can't write against a read only replica.")
	granted := 0
	for i := range 400 {
		if g := reserve(t, w, LaneLive, 1, fmt.Sprint("f", i), l); g.Granted {
			granted++
			if !g.Fallback {
				t.Fatal("granted by a Redis that refuses")
			}
		}
		w.advance(100 * time.Millisecond)
	}
	if granted < 20 || granted > 4*240/24+10 {
		t.Errorf("%d grants in 40 s on the local rate: neither a stop nor open", granted)
	}
	w.redis.SetError("")
	w.advance(3 * time.Second)
	if g := reserve(t, w, LaneOptOut, 1, "back", l); !g.Granted || g.Fallback {
		t.Fatalf("not back on Redis: %+v", g)
	}
	if g := reserve(t, w, LaneOptOut, 216, "burst", l); g.Granted {
		t.Error("what was spent locally is forgotten")
	}
}

func TestADeadRedisCostsOneTimeout(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: 50 * time.Millisecond})
	t.Cleanup(func() { _ = client.Close() })
	l := NewLimiter(Config{Redis: client, Clock: time.Now, Random: rand.Float64})
	began := time.Now()
	for i := range 50 {
		g, err := l.Reserve(context.Background(), Request{Portal: "main", N: 1, ID: fmt.Sprint(i), Limits: limits(150, 1000)})
		if err != nil || !g.Fallback {
			t.Fatalf("%+v, %v", g, err)
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("50 reservations took %s", took)
	}
}

func TestReserveRefusesWhatNeverFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	for name, r := range map[string]Request{
		"no limits": {Portal: "main", N: 1, ID: "a"},
		"none":      {Portal: "main", N: 0, ID: "a", Limits: limits(10, 100)},
		"too many":  {Portal: "main", N: 11, ID: "a", Limits: limits(10, 100)},
		"bulk":      {Portal: "main", Lane: LaneBulk, N: 20, ID: "a", Limits: limits(150, 1000)},
	} {
		if _, err := w.Reserve(t.Context(), r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestOpenRefusesAPasswordInTheClear(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"rediss://default:x@redis.example.com:6379": true, "redis://127.0.0.1:6379": true,
		"redis://default:x@redis.example.com:6379": false, "http://redis.example.com": false, "": false,
	} {
		if _, err := Open(url, 2); (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
}
