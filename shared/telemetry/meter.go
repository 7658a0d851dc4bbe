package telemetry

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxMetrics is how many CloudWatch takes from one line; the rest of a longer one would be
// dropped without a word.
const maxMetrics = 100

// Value is one measurement. Lane is given where the metric has that dimension.
type Value struct {
	Metric Metric
	Lane   string
	N      float64
}

// Of is a measurement of a metric without a dimension of its own.
func Of[N int | int64 | float64](m Metric, n N) Value { return Value{Metric: m, N: float64(n)} }

// Lasted is a duration, in the metric's unit.
func Lasted(m Metric, d time.Duration) Value {
	if m.Unit == Seconds {
		return Of(m, d.Seconds())
	}
	return Of(m, float64(d.Microseconds())/1000)
}

// Meter writes measurements as lines of the embedded metric format. Functions share one
// output with their log: each line is written whole. A nil Meter measures nothing.
type Meter struct {
	environment string
	clock       func() time.Time

	mu  sync.Mutex
	out io.Writer
}

// NewMeter returns a meter that writes to out, in Lambda standard output.
func NewMeter(out io.Writer, environment string, clock func() time.Time) *Meter {
	return &Meter{environment: environment, clock: clock, out: out}
}

type directive struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []definition
}

type definition struct {
	Name string
	Unit Unit
}

type header struct {
	Timestamp         int64 // milliseconds
	CloudWatchMetrics []directive
}

// Emit writes the measurements: one line for those without a lane, one for each lane. A
// metric that stands twice in one line counts once, with its last value. A line that
// cannot be written is lost, as a log line is: work is not stopped for it.
func (m *Meter) Emit(values ...Value) {
	if m == nil {
		return
	}
	lanes := []string{}
	byLane := map[string][]Value{}
	for _, v := range values {
		if (v.Lane != "") != (v.Metric.Dimension == Lane) {
			panic(fmt.Sprintf("telemetry: metric %s with lane %q: the alarms would not find it", v.Metric.Name, v.Lane))
		}
		if byLane[v.Lane] == nil {
			lanes = append(lanes, v.Lane)
		}
		byLane[v.Lane] = append(byLane[v.Lane], v)
	}
	for _, lane := range lanes {
		for part := byLane[lane]; len(part) > 0; {
			n := min(len(part), maxMetrics)
			m.write(lane, part[:n])
			part = part[n:]
		}
	}
}

func (m *Meter) write(lane string, values []Value) {
	d := directive{Namespace: Namespace, Dimensions: [][]string{{Environment}}}
	line := map[string]any{Environment: m.environment}
	if lane != "" {
		d.Dimensions[0] = append(d.Dimensions[0], Lane)
		line[Lane] = lane
	}
	for _, v := range values {
		if _, twice := line[v.Metric.Name]; !twice {
			d.Metrics = append(d.Metrics, definition{v.Metric.Name, v.Metric.Unit})
		}
		line[v.Metric.Name] = v.N
	}
	line["_aws"] = header{Timestamp: m.clock().UnixMilli(), CloudWatchMetrics: []directive{d}}
	text, err := json.Marshal(line)
	if err != nil {
		return // NaN or infinity: nothing that could be drawn
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.out.Write(append(text, '\n'))
}
