package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the table. Exactly the ratio decides: want is the target's, gate
// the one beyond which something has become worse than noise.
type row struct {
	what   string
	target string // in words
	unit   string
	// measured holds a figure a round; empty: could not be measured here, and note says why.
	measured series
	ratio    series
	want     float64 // 0: no target, for comparison only
	gate     float64 // 0: none
	atMost   bool    // the ratio should be small
	short    string  // its name in the last line; empty: not there
	note     string
}

// The verdicts.
const (
	met       = "met"
	missed    = "missed"
	regressed = "REGRESSED"
	compared  = "–"
	unknown   = "not measured"
)

func (r row) verdict() string {
	ratio := r.ratio.median()
	reaches := func(bound float64) bool {
		if r.atMost {
			return ratio <= bound
		}
		return ratio >= bound
	}
	switch {
	case len(r.measured) == 0:
		return unknown
	case r.gate > 0 && !reaches(r.gate):
		return regressed
	case r.want == 0:
		return compared
	case reaches(r.want):
		return met
	}
	return missed
}

func figure(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// report prints the table and the last line, and tells whether anything regressed.
func report(w io.Writer, form string, took time.Duration, rows []row) bool {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "what\ttarget\tmeasured\tspread\tratio\tverdict\tnote")
	counts := map[string]int{}
	var short []string
	for _, r := range rows {
		v := r.verdict()
		counts[v]++
		measured, ratio, spread := "–", "–", "–"
		if len(r.measured) > 0 {
			measured, spread = figure(r.measured.median())+" "+r.unit, fmt.Sprintf("±%.0f %%", 50*r.measured.spread())
		}
		if len(r.ratio) > 0 {
			ratio = figure(r.ratio.median())
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.target, measured, spread, ratio, v, r.note)
		if r.short != "" && len(r.ratio) > 0 {
			short = append(short, r.short+" "+ratio)
		}
	}
	_ = t.Flush() // a terminal that is gone needs no table
	word := "ok"
	if counts[regressed] > 0 {
		word = fmt.Sprintf("REGRESSED (%d)", counts[regressed])
	}
	_, _ = fmt.Fprintf(w, "bench-%s %s in %.0f s: %d met, %d missed; ratios: %s\n",
		form, word, took.Seconds(), counts[met], counts[missed], strings.Join(short, ", "))
	return counts[regressed] > 0
}
