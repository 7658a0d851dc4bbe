package telemetry

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// line is a line as CloudWatch reads it.
type line struct {
	AWS struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
}

func read(t *testing.T, out *bytes.Buffer) (lines []line, raw []map[string]any) {
	t.Helper()
	for text := range strings.Lines(out.String()) {
		var l line
		var m map[string]any
		if json.Unmarshal([]byte(text), &l) != nil || json.Unmarshal([]byte(text), &m) != nil {
			t.Fatalf("no JSON: %s", text)
		}
		lines, raw = append(lines, l), append(raw, m)
	}
	return lines, raw
}

func TestLinesAreOfTheEmbeddedMetricFormat(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := NewMeter(&out, "prod", func() time.Time { return at })
	m.Emit(Of(EventsSynced, 3), Lasted(MessageDuration, 1500*time.Microsecond), Of(EventsSynced, 4),
		Value{OldestUnconverged, "optout", 7}, Value{OldestUnconverged, "bulk", 900})
	lines, raw := read(t, &out)
	if len(lines) != 3 {
		t.Fatalf("%d lines, want one without a lane and two with: %s", len(lines), out.String())
	}
	for i, want := range []struct {
		dimensions []string
		names      []string
	}{{[]string{"Environment"}, []string{"EventsSynced Count", "MessageDuration Milliseconds"}},
		{[]string{"Environment", "Lane"}, []string{"OldestUnconverged Seconds"}}, {[]string{"Environment", "Lane"}, []string{"OldestUnconverged Seconds"}}} {
		d := lines[i].AWS.CloudWatchMetrics[0]
		var names []string
		for _, metric := range d.Metrics {
			names = append(names, metric.Name+" "+metric.Unit)
			if _, ok := raw[i][metric.Name].(float64); !ok {
				t.Errorf("line %d has no number %s", i, metric.Name)
			}
		}
		for _, dimension := range want.dimensions {
			if _, ok := raw[i][dimension].(string); !ok {
				t.Errorf("line %d has no text %s", i, dimension)
			}
		}
		if d.Namespace != "hubsync" || lines[i].AWS.Timestamp != at.UnixMilli() || !slices.Equal(d.Dimensions[0], want.dimensions) || !slices.Equal(names, want.names) {
			t.Errorf("line %d: %+v", i, lines[i])
		}
	}
	if raw[0]["EventsSynced"] != 4.0 || raw[0]["MessageDuration"] != 1.5 || raw[1]["Lane"] != "optout" {
		t.Errorf("values %v", raw)
	}
}

func TestALineHasAtMostAHundredMetrics(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var many []Value
	for i := range 230 {
		many = append(many, Of(Metric{Name: "M" + string(rune('A'+i/26)) + string(rune('a'+i%26)), Unit: Count}, i))
	}
	NewMeter(&out, "prod", time.Now).Emit(many...)
	lines, _ := read(t, &out)
	total := 0
	for _, l := range lines {
		n := len(l.AWS.CloudWatchMetrics[0].Metrics)
		if total += n; n > 100 {
			t.Errorf("%d metrics in one line", n)
		}
	}
	if len(lines) != 3 || total != 230 {
		t.Errorf("%d metrics in %d lines", total, len(lines))
	}
	if len(All()) > 100 {
		t.Errorf("%d metrics: each costs", len(All()))
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range All() {
		if seen[m.Name] || m.Name == Environment || m.Name == Lane || m.Unit == "" {
			t.Errorf("metric %+v", m)
		}
		seen[m.Name] = true
	}
}

func TestWhatCannotBeMeasuredStopsNothing(t *testing.T) {
	t.Parallel()
	var none *Meter
	none.Emit(Of(EventsSynced, 1))
	var out bytes.Buffer
	m := NewMeter(&out, "prod", time.Now)
	m.Emit(Of(EventsSynced, math.NaN()))
	if out.Len() > 0 {
		t.Errorf("%s", out.String())
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				m.Emit(Of(EventsSynced, 1), Value{OldestUnconverged, "live", 2})
			}
		})
	}
	wg.Wait()
	if lines, _ := read(t, &out); len(lines) != 800 {
		t.Errorf("%d whole lines", len(lines))
	}
}

func TestALaneOnTheWrongMetricIsAMistakeOfOurs(t *testing.T) {
	t.Parallel()
	for _, v := range []Value{{EventsSynced, "live", 1}, {OldestUnconverged, "", 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was written: no alarm would find it", v)
				}
			}()
			NewMeter(&bytes.Buffer{}, "prod", time.Now).Emit(v)
		}()
	}
}
