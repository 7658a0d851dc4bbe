package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSeries(t *testing.T) {
	t.Parallel()
	s := series{4, 1, 3, 2}
	if s.median() != 2.5 || s.spread() != 3/2.5 {
		t.Errorf("median %v, spread %v", s.median(), s.spread())
	}
	if got := (series{6, 1}).over(series{2, 0}); !slices.Equal(got, series{3}) {
		t.Errorf("a round without a figure must not count: %v", got)
	}
	if (series{}).median() != 0 || (series{}).spread() != 0 {
		t.Error("nothing measured is 0")
	}
	took := []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}
	if p := percentile(took, 0.5); p != 2 {
		t.Errorf("p50 %v", p)
	}
	if p := percentile(took, 1); p != 3 {
		t.Errorf("p100 %v", p)
	}
}

func TestInterleaveTurnsTheOrder(t *testing.T) {
	t.Parallel()
	var order []string
	note := func(name string) contender {
		return contender{name, func(context.Context) (float64, error) { order = append(order, name); return float64(len(order)), nil }}
	}
	s, err := interleave(t.Context(), 2, []contender{note("a"), note("b")})
	if err != nil || strings.Join(order, "") != "abba" || !slices.Equal(s["a"], series{1, 4}) {
		t.Errorf("order %v, a %v, error %v", order, s["a"], err)
	}
	fails := errors.New("no")
	if _, err = interleave(t.Context(), 1, []contender{{"c", func(context.Context) (float64, error) { return 0, fails }}}); !errors.Is(err, fails) {
		t.Errorf("the error was lost: %v", err)
	}
}

func TestRateEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	fails := errors.New("no")
	_, err := rate(t.Context(), 4, time.Minute, func(_ context.Context, client int) (int, error) {
		if client == 2 {
			return 0, fails
		}
		return 1, nil
	})
	if !errors.Is(err, fails) {
		t.Errorf("rate: %v", err)
	}
	if r, err := rate(t.Context(), 2, 20*time.Millisecond, func(context.Context, int) (int, error) { time.Sleep(time.Millisecond); return 10, nil }); err != nil || r < 100 {
		t.Errorf("rate %v, %v", r, err)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	one := series{1}
	for _, c := range []struct {
		name string
		row  row
		want string
	}{
		{"reached", row{measured: one, ratio: series{1.8}, want: 1.8, gate: 1}, met},
		{"missed within the gate", row{measured: one, ratio: series{1.5}, want: 1.8, gate: 1}, missed},
		{"below the gate", row{measured: one, ratio: series{0.9}, want: 1.8, gate: 1}, regressed},
		{"at most", row{measured: one, ratio: series{2}, want: 2, gate: 4, atMost: true}, met},
		{"more than at most", row{measured: one, ratio: series{3}, want: 2, gate: 4, atMost: true}, missed},
		{"far more than at most", row{measured: one, ratio: series{5}, want: 2, gate: 4, atMost: true}, regressed},
		{"a gate without a target", row{measured: one, ratio: series{0.1}, gate: 0.2}, regressed},
		{"for comparison", row{measured: one, ratio: series{0.1}}, compared},
		{"not measured", row{want: 1, gate: 1}, unknown},
	} {
		if got := c.row.verdict(); got != c.want {
			t.Errorf("%s: %s, must be %s", c.name, got, c.want)
		}
	}
}

func TestReportEndsWithTheVerdict(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	rows := []row{
		{what: "a", measured: series{10, 12}, unit: "/s", ratio: series{2}, want: 1, short: "a÷b"},
		{what: "c", measured: series{1}, ratio: series{0.1}, want: 1, gate: 0.5},
	}
	if !report(&out, "quick", 3*time.Second, rows) {
		t.Error("a regression was not told")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; last != "bench-quick REGRESSED (1) in 3 s: 1 met, 0 missed; ratios: a÷b 2.00" {
		t.Errorf("the last line: %s", last)
	}
	if report(&out, "quick", time.Second, rows[:1]) {
		t.Error("nothing regressed")
	}
}
