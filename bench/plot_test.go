package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestPlotIsAPictureThatBeginsAtZero(t *testing.T) {
	t.Parallel()
	svg := plot("a < b", "pending", "ms", []int{1_000, 100_000}, map[string]series{"claim": {1, 2}, "decision": {4, 4}})
	d := xml.NewDecoder(strings.NewReader(svg))
	circles := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	if circles != 4 {
		t.Errorf("%d dots of 4", circles)
	}
	for _, want := range []string{"a &lt; b", ">5.00 ms<", ">0.00 ms<", ">1k<", ">100k<", ">claim<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is not there", want)
		}
	}
}

func TestNiceTop(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 4.2: 5, 7: 10, 70: 100} {
		if got := niceTop(v); got != want {
			t.Errorf("niceTop(%v) = %v, must be %v", v, got, want)
		}
	}
}
