package budget

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisAwayIsNeitherOpenNorAStop(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{"READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory", "WRONGTYPE"} {
		w := newWorld(t, true)
		l := limits(240, 100_000)
		reserve(t, w, LaneOptOut, 1, "warm", l)
		w.redis.SetError(failure)
		if g := reserve(t, w, LaneLive, 1, "first", l); g.Granted || !g.Fallback || g.RetryAfter != 11*time.Second {
			t.Errorf("%s: live at once, over a window that may be full: %+v", failure, g)
		}
		if g := reserve(t, w, LaneOptOut, 200, "large", l); !g.Granted || !g.Fallback || g.N != 9 {
			t.Errorf("%s: an opt-out at once: %+v", failure, g)
		}
		w.advance(11 * time.Second)
		granted := map[Lane]int{}
		for i := range 1100 {
			for lane := LaneSpare; lane >= LaneOptOut; lane-- {
				if i < 550 && lane == LaneOptOut {
					continue
				}
				if g := reserve(t, w, lane, 1, fmt.Sprint(lane, i), l); g.Granted {
					granted[lane]++
				}
			}
			w.advance(100 * time.Millisecond)
		}
		total := granted[LaneOptOut] + granted[LaneLive] + granted[LaneBulk] + granted[LaneSpare]
		if total > 110 || total < 90 || granted[LaneOptOut] < 40 || granted[LaneLive] < 30 {
			t.Errorf("%s: in 110 s at 10 calls a window: %v", failure, granted)
		}
	}
}

// When Redis is back its window does not look unused, and the day knows what was spent.
func TestRedisBackIsNoBurst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	l := limits(240, 1000)
	reserve(t, w, LaneOptOut, 1, "warm", l)
	w.redis.SetError("READONLY")
	for i := range 300 {
		reserve(t, w, LaneOptOut, 1, fmt.Sprint(i), l)
		w.advance(100 * time.Millisecond)
	}
	w.advance(11 * time.Second)
	g := reserve(t, w, LaneOptOut, 1, "given back", l)
	if !g.Granted || !g.Fallback {
		t.Fatalf("%+v", g)
	}
	if err := w.Refund(t.Context(), g, 1); err != nil {
		t.Fatal(err)
	}
	w.redis.SetError("")
	w.advance(redisRest)
	if g := reserve(t, w, LaneOptOut, 121, "burst", l); g.Granted || g.Fallback {
		t.Errorf("half of the window may be spent elsewhere: %+v", g)
	}
	if g := reserve(t, w, LaneOptOut, 120, "half", l); !g.Granted {
		t.Errorf("the other half: %+v", g)
	}
	w.advance(11 * time.Second)
	if g := reserve(t, w, LaneOptOut, 216, "whole", l); !g.Granted {
		t.Errorf("a window later: %+v", g)
	}
	value, err := w.redis.Get("budget:{main}")
	var closed, reset, used int64
	if _, scanErr := fmt.Sscanf(value, "%d,%d,%d,", &closed, &reset, &used); err != nil || scanErr != nil || used != 1+30+120+216 {
		t.Errorf("the day counts %d calls, %v, %v", used, err, scanErr)
	}
	w.redis.SetError("READONLY")
	if g := reserve(t, w, LaneLive, 1, "again", l); g.Granted || g.RetryAfter != 11*time.Second {
		t.Errorf("the second outage does not begin like the first: %+v", g)
	}
}

// Several processes, and a Redis that goes and comes: the calls of the lower lanes never
// exceed the limit, and opt-outs exceed it by half at most, in the window in which
// Redis went.
func TestOutagesKeepTheLimit(t *testing.T) {
	t.Parallel()
	const limit, processes = 36, 6
	for seed := range uint64(4) {
		optOuts, bound := seed%2 == 1, int64(limit)
		if optOuts {
			bound += limit / 2
		}
		if n := most(outages(t, seed, limit, processes, optOuts)); n > bound {
			t.Errorf("seed %d: %d calls in 10 s, the bound is %d", seed, n, bound)
		}
	}
}

func outages(t *testing.T, seed uint64, limit, processes int, optOuts bool) (arrivals []arrival) {
	w := newWorld(t, true)
	w.cfg.Parallelism = processes
	random := rand.New(rand.NewPCG(seed, 1))
	limiters := make([]*Limiter, processes)
	for i := range limiters {
		limiters[i] = NewLimiter(w.cfg)
	}
	for step := range 160 {
		if step%40 == 0 {
			w.redis.SetError([]string{"", "READONLY"}[(step/40)%2])
		}
		for _, i := range random.Perm(processes) {
			lane := Lane(1 + random.IntN(3))
			if optOuts {
				lane = LaneOptOut
			}
			g, err := limiters[i].Reserve(t.Context(), Request{
				Portal: "main", Lane: lane, N: 1, ID: fmt.Sprint(step, "-", i), Limits: limits(limit, 1e6),
			})
			if err != nil {
				t.Fatal(err)
			}
			if g.Granted {
				arrivals = append(arrivals, arrival{w.now.UnixMilli() + random.Int64N(1001), int64(g.N)})
			}
		}
		w.advance(time.Duration(200+random.IntN(400)) * time.Millisecond)
	}
	return arrivals
}

func TestADeadRedisCostsOneTimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := open(t, silent.Addr().String())
	l := NewLimiter(Config{Redis: client, Clock: time.Now})
	began := time.Now()
	for i := range 50 {
		g, err := l.Reserve(t.Context(), Request{Portal: "main", N: 1, ID: fmt.Sprint(i), Limits: limits(150, 1000)})
		if err != nil || !g.Fallback {
			t.Fatalf("%+v, %v", g, err)
		}
	}
	if took := time.Since(began); took > 2*redisTimeout {
		t.Errorf("50 reservations took %s", took)
	}
}

// Plain Redis refuses Upstash's flag, and anything else that fails falls back too.
func TestAScriptThatDoesNotRunFallsBack(t *testing.T) {
	t.Parallel()
	for name, addr := range servers(t) {
		for _, prefix := range []string{UpstashPrefix, "no lua "} {
			if name == "miniredis" && prefix == UpstashPrefix {
				continue // it takes the line for a comment
			}
			l := NewLimiter(Config{Redis: open(t, addr), ScriptPrefix: prefix, Clock: time.Now})
			g, err := l.Reserve(t.Context(), Request{Portal: "main", N: 1, ID: "a", Limits: limits(150, 1000)})
			if err != nil || !g.Granted || !g.Fallback {
				t.Errorf("%s, prefix %q: %+v, %v", name, prefix, g, err)
			}
		}
	}
}

func TestOpenIsMadeForFrozenFunctions(t *testing.T) {
	t.Parallel()
	o := open(t, "127.0.0.1:6379").Options()
	if o.ReadTimeout > 300*time.Millisecond || o.DialTimeout > 300*time.Millisecond || o.MaxRetries > 1 ||
		o.ConnMaxIdleTime > time.Minute || !o.DisableIdentity || o.PoolSize > 10 {
		t.Errorf("%+v", o)
	}
	var _ redis.UniversalClient = open(t, "127.0.0.1:6379")
}
