package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"hubsync/shared/ops"
	"hubsync/shared/outbox"
)

// chart is one small picture of numbers over time.
type chart struct {
	Title string
	Unit  string
	Now   string // in words, also for who does not see the picture
	Lines []line
	Limit float64 // a dashed line; 0: none
}

type line struct {
	Name   string
	Class  string // of the style
	Values []float64
}

// The size of a picture, in its own units.
const (
	chartWidth  = 300.0
	chartHeight = 60.0
)

// top is the largest value of a chart, at least 1.
func (c chart) top() float64 {
	top := max(c.Limit, 1)
	for _, l := range c.Lines {
		for _, v := range l.Values {
			top = max(top, v)
		}
	}
	return top
}

// SVG draws the chart. It holds numbers and the texts of this file only.
func (c chart) SVG() template.HTML {
	var b strings.Builder
	top := c.top()
	y := func(v float64) float64 { return chartHeight - v/top*(chartHeight-4) - 2 }
	fmt.Fprintf(&b, `<svg viewBox="0 0 %.0f %.0f" preserveAspectRatio="none" aria-hidden="true" focusable="false">`, chartWidth, chartHeight)
	if c.Limit > 0 {
		fmt.Fprintf(&b, `<line class="limit" x1="0" x2="%.0f" y1="%.1f" y2="%.1f"/>`, chartWidth, y(c.Limit), y(c.Limit))
	}
	for _, l := range c.Lines {
		b.WriteString(`<polyline class="` + l.Class + `" points="`)
		for i, v := range l.Values {
			x := chartWidth
			if n := len(l.Values); n > 1 {
				x = float64(i) * chartWidth / float64(n-1)
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", x, y(v))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and constants only
}

// chartsOf draws the looks at one portal.
func chartsOf(samples []ops.Status, portal string) []chart {
	ages := chart{Title: "Oldest decision", Unit: "s"}
	classes := map[string]string{"optout": "a", "live": "b", "bulk": "c"}
	for _, l := range outbox.Lanes {
		ages.Lines = append(ages.Lines, line{Name: l.String(), Class: classes[l.String()]})
	}
	backlog := chart{Title: "Not settled", Lines: []line{{Name: "events", Class: "a"}}}
	rate := chart{Title: "Confirmed", Unit: "/min", Lines: []line{{Name: "subscriptions", Class: "b"}}}
	calls := chart{Title: "Calls in the window", Lines: []line{{Name: "calls", Class: "a"}}}
	for _, s := range samples {
		for _, p := range s.Portals {
			if p.ID != portal {
				continue
			}
			age, left := map[string]int{}, 0
			for _, l := range p.Lanes {
				age[l.Lane], left = l.OldestSeconds, left+l.Waiting+l.InFlight
			}
			for i := range ages.Lines {
				ages.Lines[i].Values = append(ages.Lines[i].Values, float64(age[ages.Lines[i].Name]))
			}
			backlog.Lines[0].Values = append(backlog.Lines[0].Values, float64(left))
			rate.Lines[0].Values = append(rate.Lines[0].Values, p.PerMinute)
			calls.Lines[0].Values = append(calls.Lines[0].Values, float64(p.WindowUsed))
			calls.Limit = float64(p.Burst)
		}
	}
	charts := []chart{ages, backlog, rate, calls}
	for i := range charts {
		charts[i].Now = charts[i].words()
	}
	return charts
}

// totals draws what is not of one portal.
func totals(samples []ops.Status) []chart {
	dead := chart{Title: "Dead", Lines: []line{{Name: "events", Class: "d"}}}
	drift := chart{Title: "Differences listed", Lines: []line{{Name: "subscriptions", Class: "d"}}}
	for _, s := range samples {
		n := 0
		for _, d := range s.Dead {
			n += d.Count
		}
		dead.Lines[0].Values = append(dead.Lines[0].Values, float64(n))
		drift.Lines[0].Values = append(drift.Lines[0].Values, float64(s.Attention.Drift))
	}
	charts := []chart{dead, drift}
	for i := range charts {
		charts[i].Now = charts[i].words()
	}
	return charts
}

// words says the newest values.
func (c chart) words() string {
	var parts []string
	for _, l := range c.Lines {
		if len(l.Values) == 0 {
			continue
		}
		text := strconv.FormatFloat(l.Values[len(l.Values)-1], 'f', 0, 64) + c.Unit
		if len(c.Lines) > 1 {
			text = l.Name + " " + text
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, ", ")
	if c.Limit > 0 {
		text += " of " + strconv.FormatFloat(c.Limit, 'f', 0, 64)
	}
	return text
}
