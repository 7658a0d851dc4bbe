package budget

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// servers returns the addresses of a miniredis and, where one is installed, of a real
// server.
func servers(t *testing.T) map[string]string {
	addrs := map[string]string{"miniredis": miniredis.RunT(t).Addr()}
	if path, err := exec.LookPath("redis-server"); err == nil {
		addrs["redis-server"] = startRedis(t, path)
	}
	return addrs
}

func startRedis(t *testing.T, path string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(addr)
	command := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir())
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	for range 100 {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return addr
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("redis-server does not answer")
	return ""
}

func open(t *testing.T, addr string) *redis.Client {
	client, err := Open("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// encode writes a state as the script does.
func (s *state) encode() string {
	numbers := []int64{s.closedUntil, s.dayReset, s.dayUsed, s.dayCap, s.dayCapUntil, s.burstCap, s.burstUntil, s.wantOptOut, s.wantLive, s.restNext}
	head := strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
	slots := make([]string, len(s.slots))
	for i, x := range s.slots {
		slots[i] = fmt.Sprintf("%d:%d:%d", x.at, x.optOut, x.rest)
	}
	ids := make([]string, len(s.known))
	for i, k := range s.known {
		ids[i] = fmt.Sprintf("%d:%d:%d:%s", k.at, k.lane, k.n, k.id)
	}
	return head + "|" + strings.Join(slots, " ") + "|" + strings.Join(ids, " ")
}

// twins runs the script and its twin side by side, on a clock that is an argument.
type twins struct {
	client *redis.Client
	script *redis.Script
	key    string
	state  state
	now    int64
}

func (w *twins) run(t *rapid.T, what string, windowMs int64, args ...any) verdict {
	all := append([]any{what, windowMs, 1}, args...)
	all = append(all, w.now/1000, w.now%1000*1000)
	answer, err := w.script.Run(context.Background(), w.client, []string{w.key}, all...).Slice()
	if err != nil {
		t.Fatal(err)
	}
	v, err := read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The script must decide as its twin does, and leave the same state, on any sequence.
func TestScriptEqualsTwin(t *testing.T) {
	t.Parallel()
	for name, addr := range servers(t) {
		client := open(t, addr)
		settable := redis.NewScript(strings.Replace(script, "redis.call('TIME')", "{ARGV[#ARGV - 1], ARGV[#ARGV]}", 1))
		round := 0
		rapid.Check(t, func(t *rapid.T) {
			round++
			w := &twins{client: client, script: settable, key: fmt.Sprint("p", round), now: start.UnixMilli()}
			l := limits(rapid.IntRange(1, 60).Draw(t, "burst"), rapid.IntRange(20, 200).Draw(t, "daily"))
			l.Location = rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("east", 5*3600)}).Draw(t, "zone")
			for i := range rapid.IntRange(1, 50).Draw(t, "steps") {
				w.now += int64(rapid.OneOf(rapid.IntRange(0, 150), rapid.IntRange(0, 2500), rapid.Just(3_600_000)).Draw(t, "ms"))
				w.step(t, l, i)
				value, err := client.Get(context.Background(), w.key).Result()
				if err != nil || value != w.state.encode() {
					t.Fatalf("%s: the script wrote\n%s, its twin\n%s, %v", name, value, w.state.encode(), err)
				}
			}
		})
	}
}

func (w *twins) step(t *rapid.T, l Limits, i int) {
	windowMs := l.windowMs()
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		f := news{
			remaining: rapid.Int64Range(-1, 60).Draw(t, "remaining"),
			dayLeft:   rapid.Int64Range(-1, 60).Draw(t, "left"),
			closeMs:   rapid.SampledFrom([]int64{0, 0, 3000}).Draw(t, "close"), windowMs: windowMs,
		}
		w.state.learn(w.now, f)
		w.run(t, "learn", windowMs, f.remaining, f.dayLeft, f.closeMs)
	case 1:
		id, keep := fmt.Sprint("r", rapid.IntRange(0, i).Draw(t, "id")), rapid.Int64Range(0, 3).Draw(t, "keep")
		w.state.refund(id, keep)
		w.run(t, "refund", windowMs, id, keep)
	default:
		r := Request{Lane: Lane(rapid.IntRange(0, 3).Draw(t, "lane")), N: rapid.IntRange(1, 6).Draw(t, "n"), Limits: l}
		a := r.ask(time.UnixMilli(w.now))
		a.id = fmt.Sprint("r", max(i-rapid.SampledFrom([]int{0, 0, 0, 0, 1, 5}).Draw(t, "back"), 0))
		a.charge = int64(rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "charge"))
		a.elsewhere = a.charge * 5
		want := w.state.reserve(w.now, a)
		if got := w.run(t, "reserve", windowMs, a.args()...); got != want {
			t.Fatalf("the script says %+v, its twin %+v", got, want)
		}
	}
}

// On a server of either kind, with its own clock.
func TestTheScriptOnItsServersClock(t *testing.T) {
	t.Parallel()
	for name, addr := range servers(t) {
		client := open(t, addr)
		l := NewLimiter(Config{Redis: client, Prefix: "test-", TrustEmpty: true, Clock: time.Now})
		r := Request{Portal: "main", N: 9, ID: "a", Limits: limits(10, 1000)}
		g, err := l.Reserve(t.Context(), r)
		if err != nil || !g.Granted || g.Fallback {
			t.Fatalf("%s: %+v, %v", name, g, err)
		}
		r.ID, r.N = "b", 2
		if g, err := l.Reserve(t.Context(), r); err != nil || g.Granted || g.Fallback || g.RetryAfter < 9*time.Second {
			t.Errorf("%s: a full window: %+v, %v", name, g, err)
		}
		if err := l.Refund(t.Context(), g, 9); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if g, err := l.Reserve(t.Context(), r); err != nil || !g.Granted {
			t.Errorf("%s: after the refund: %+v, %v", name, g, err)
		}
		if err := l.Feedback(t.Context(), "main", Feedback{TooMany: true, RetryAfter: 3 * time.Second}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.ID = "c"
		if g, err := l.Reserve(t.Context(), r); err != nil || g.Reason != reasonClosed || g.RetryAfter < 2*time.Second {
			t.Errorf("%s: after a 429: %+v, %v", name, g, err)
		}
		if ttl := client.PTTL(t.Context(), "test-budget:{main}").Val(); ttl < 24*time.Hour {
			t.Errorf("%s: the key lives for %s", name, ttl)
		}
	}
}

// Upstash bills each command inside a script.
func TestTheScriptMakesThreeCalls(t *testing.T) {
	t.Parallel()
	if n := strings.Count(script, "redis.call("); n != 3 {
		t.Errorf("%d calls", n)
	}
}

// What stands under the key and cannot be read is a window that is not known.
func TestAnUnreadableValueClosesAWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	for _, value := range []string{"", "?", "1,2", "-1|x|y"} {
		if err := w.redis.Set("budget:{main}", value); err != nil {
			t.Fatal(err)
		}
		g := reserve(t, w, LaneOptOut, 1, "a"+value, limits(10, 1000))
		if g.Granted || g.Fallback || g.Reason != reasonClosed || g.RetryAfter != 11*time.Second {
			t.Errorf("%q: %+v", value, g)
		}
	}
}

func BenchmarkScript(b *testing.B) {
	w := newWorld(b, true)
	for i := range b.N {
		w.advance(60 * time.Millisecond)
		r := Request{Portal: "main", Lane: LaneBulk, N: 1, ID: fmt.Sprint(i), Limits: limits(150, 1e9)}
		if _, err := w.Reserve(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
