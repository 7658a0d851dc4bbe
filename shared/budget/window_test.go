package budget

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)

// asks returns an ask of one call of a lane in a window of 11 s, HubSpot's and the guard.
func asks(lane Lane, limit int64, id string) ask {
	return ask{lane: lane, n: 1, limit: limit, windowMs: 11_000, daily: 1e9, id: id}
}

// arrival is a call as HubSpot sees it.
type arrival struct{ at, n int64 }

// most returns the largest number of calls within any 10 s.
func most(arrivals []arrival) (worst int64) {
	for _, from := range arrivals {
		var n int64
		for _, a := range arrivals {
			if a.at >= from.at && a.at < from.at+10_000 {
				n += a.n
			}
		}
		worst = max(worst, n)
	}
	return worst
}

// Calls land up to a second after their reservation, or its replay, and some are given
// back; no ten seconds may see more than the limit all the same.
func TestNeverOverTheLimitOnArrival(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s state
		limit := int64(rapid.IntRange(2, 60).Draw(t, "limit"))
		var arrivals []arrival
		now := start.UnixMilli()
		for i := range rapid.IntRange(20, 400).Draw(t, "steps") {
			now += int64(rapid.SampledFrom([]int{0, 0, 1, 7, 40, 99, 100, 101, 700, 4000}).Draw(t, "ms"))
			lane := Lane(rapid.IntRange(0, 3).Draw(t, "lane"))
			a := asks(lane, limit, fmt.Sprint(i))
			a.n = rapid.Int64Range(1, maxN(lane, limit, a.windowMs)).Draw(t, "n")
			if !s.reserve(now, a).granted {
				continue
			}
			made, from := a.n, now
			switch rapid.IntRange(0, 5).Draw(t, "then") {
			case 0: // its answer was lost, and it is asked again
				now += int64(rapid.IntRange(0, 2000).Draw(t, "replay"))
				from = now
				if !s.reserve(now, a).granted {
					t.Fatal("a replay was refused")
				}
			case 1:
				made = rapid.Int64Range(0, a.n).Draw(t, "made")
				now += int64(rapid.IntRange(0, 2000).Draw(t, "refund"))
				s.refund(a.id, made)
				s.refund(a.id, made)
			}
			arrivals = append(arrivals, arrival{from + int64(rapid.IntRange(0, 1000).Draw(t, "late")), made})
		}
		if n := most(arrivals); n > limit {
			t.Fatalf("%d calls within 10 s, the limit is %d", n, limit)
		}
	})
}

// Whatever MaxN promises is granted by an empty window while all others wait, and
// nothing above it.
func TestMaxNIsWhatFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 400).Draw(t, "limit")
		lane := Lane(rapid.IntRange(0, 3).Draw(t, "lane"))
		now := start.UnixMilli()
		s := state{wantOptOut: now, wantLive: now}
		a := asks(lane, limit, "a")
		a.n = maxN(lane, limit, a.windowMs)
		if a.n < 1 || !s.reserve(now, a).granted {
			t.Fatalf("lane %d of %d: %d calls do not fit", lane, limit, a.n)
		}
	})
}

// saturate has lanes ask every few milliseconds, and returns the grants by lane.
func saturate(s *state, limit int64, span time.Duration, lanes ...Lane) map[Lane]int64 {
	granted := map[Lane]int64{}
	from := start.UnixMilli()
	for now := from; now < from+span.Milliseconds(); now += 7 {
		for _, lane := range lanes {
			if s.reserve(now, asks(lane, limit, fmt.Sprint(lane, now))).granted {
				granted[lane]++
			}
		}
	}
	return granted
}

func TestOneLaneAloneUsesNearlyAll(t *testing.T) {
	t.Parallel()
	const span = 220 * time.Second
	for _, limit := range []int64{100, 150, 190, 250} {
		for _, lane := range []Lane{LaneOptOut, LaneLive, LaneBulk} {
			granted := saturate(&state{}, limit, span, lane)[lane]
			used := float64(granted) / (float64(limit) * span.Seconds() / 10)
			t.Logf("limit %d, lane %d: %.3f", limit, lane, used)
			if used < 0.9 {
				t.Errorf("limit %d: lane %d alone uses %.3f of it", limit, lane, used)
			}
		}
	}
}

func TestFloodsStarveNothing(t *testing.T) {
	t.Parallel()
	granted := saturate(&state{}, 150, 220*time.Second, LaneSpare, LaneBulk, LaneLive, LaneOptOut)
	t.Logf("grants by lane: %v", granted)
	if granted[LaneLive] < 20*13 || granted[LaneOptOut] < granted[LaneLive] ||
		granted[LaneBulk] > granted[LaneLive] || granted[LaneSpare] > granted[LaneBulk] {
		t.Errorf("grants by lane: %v", granted)
	}
	granted = saturate(&state{}, 150, 220*time.Second, LaneBulk, LaneLive)
	t.Logf("without opt-outs: %v", granted)
	if granted[LaneLive] < 4*granted[LaneBulk] {
		t.Errorf("bulk is in live's way: %v", granted)
	}
}

// While a lower lane takes all it can get, an opt-out (three calls) finds room at once
// or soon. Without the floors it waits until the window turns.
func TestAnOptOutWaitsLittle(t *testing.T) {
	t.Parallel()
	for _, other := range []Lane{LaneLive, LaneBulk, LaneSpare} {
		for _, every := range []int{97, 400, 3000} {
			if worst := worstWait(other, every); worst > 1200 {
				t.Errorf("behind lane %d, every %d steps: an opt-out waited %d ms", other, every, worst)
			}
		}
	}
}

// worstWait steps 5 ms at a time.
func worstWait(other Lane, every int) (worst int64) {
	var s state
	waiting, since := 0, int64(0)
	for i, now := 0, start.UnixMilli(); i < 24_000; i, now = i+1, now+5 {
		s.reserve(now, asks(other, 150, fmt.Sprint("b", i)))
		if i%every == 0 && waiting == 0 {
			waiting, since = 3, now
		}
		for waiting > 0 && s.reserve(now, asks(LaneOptOut, 150, fmt.Sprint("o", i, waiting))).granted {
			waiting--
			worst = max(worst, now-since)
		}
	}
	return worst
}

// A refusal says how long: asked again then, nothing else having happened, the same
// call is granted; a little sooner it is not.
func TestTheWaitIsHonest(t *testing.T) {
	t.Parallel()
	for _, lane := range []Lane{LaneOptOut, LaneLive, LaneBulk} {
		var s state
		now := start.UnixMilli()
		for range 200 {
			v := s.reserve(now, asks(lane, 150, fmt.Sprint(now)))
			if v.granted {
				now += 3
				continue
			}
			if v.waitMs < 1 || v.waitMs > 11_000 {
				t.Fatalf("lane %d: wait of %d ms (%s)", lane, v.waitMs, v.reason)
			}
			if s.reserve(now+v.waitMs-1, asks(lane, 150, "early")).granted {
				t.Fatalf("lane %d: granted before the wait of %d ms (%s)", lane, v.waitMs, v.reason)
			}
			now += v.waitMs
		}
	}
}

func TestForgottenReservationsErrOnTheSafeSide(t *testing.T) {
	t.Parallel()
	var s state
	now := start.UnixMilli()
	for i := range maxKnown + 1 {
		s.reserve(now, asks(LaneOptOut, 150, fmt.Sprint(i)))
	}
	if len(s.known) != maxKnown {
		t.Errorf("%d reservations are known", len(s.known))
	}
	s.refund("0", 0)
	s.reserve(now, asks(LaneOptOut, 150, "0"))
	if s.dayUsed != maxKnown+2 {
		t.Errorf("%d calls counted", s.dayUsed)
	}
}

func TestMidnightsKnowDaylightSaving(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone  string
		day   time.Time
		hours time.Duration // of the day
		local string        // its end
	}{
		{"Europe/Berlin", time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC), 23, "2026-03-30 00:00"},
		{"Europe/Berlin", time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC), 25, "2026-10-26 00:00"},
		{"America/New_York", time.Date(2026, 6, 1, 3, 59, 0, 0, time.UTC), 24, "2026-06-01 00:00"},
		{"Africa/Cairo", time.Date(2026, 4, 23, 12, 0, 0, 0, time.UTC), 24, "2026-04-24 01:00"}, // no midnight
		{"Africa/Cairo", time.Date(2026, 4, 24, 12, 0, 0, 0, time.UTC), 23, "2026-04-25 00:00"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		resets := midnights(c.day, zone)
		hours := time.Duration(resets[1]-resets[0]) * time.Millisecond
		if local := time.UnixMilli(resets[1]).In(zone).Format("2006-01-02 15:04"); hours != c.hours*time.Hour || local != c.local {
			t.Errorf("%s on %s: a day of %s that ends at %s", c.zone, c.day, hours, local)
		}
		if resets[0] > c.day.UnixMilli() || resets[1] <= c.day.UnixMilli() {
			t.Errorf("%s on %s: not within its day", c.zone, c.day)
		}
	}
}

func BenchmarkTwin(b *testing.B) {
	var s state
	for i := range b.N {
		s.reserve(int64(i)*60, asks(LaneBulk, 150, fmt.Sprint(i)))
	}
}
