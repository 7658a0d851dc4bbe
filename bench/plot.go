package main

import (
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strings"
)

func sortedKeys(m map[string]series) []string { return slices.Sorted(maps.Keys(m)) }

// The plot's measures, in pixels.
const (
	plotWidth, plotHeight         = 640, 360
	plotLeft, plotRight           = 64, 150
	plotTop, plotBottom           = 40, 48
	plotInnerWidth                = plotWidth - plotLeft - plotRight
	plotInnerHeight               = plotHeight - plotTop - plotBottom
	plotTicks                     = 4
	plotFont                      = `font-family="sans-serif" font-size="12" fill="#333"`
	plotDot, plotStroke, plotText = 3, 2, 4
)

var plotColours = []string{"#1f6feb", "#d1552a", "#2a9d63", "#8250df"}

// plot draws lines over sizes as an SVG: the sizes on a logarithmic scale, the costs on
// a linear one that begins at 0, so that flat looks flat.
func plot(title, xName, unit string, sizes []int, lines map[string]series) string {
	most := 0.0
	for _, s := range lines {
		most = math.Max(most, slices.Max(s))
	}
	most = niceTop(most)
	x := func(size int) float64 {
		low, high := math.Log(float64(sizes[0])+1), math.Log(float64(sizes[len(sizes)-1])+1)
		if high == low {
			return plotLeft
		}
		return plotLeft + plotInnerWidth*(math.Log(float64(size)+1)-low)/(high-low)
	}
	y := func(v float64) float64 { return plotTop + plotInnerHeight*(1-v/most) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="24" %s font-weight="bold">%s</text>`+"\n", plotLeft, plotFont, html.EscapeString(title))
	for i := range plotTicks + 1 {
		v := most * float64(i) / plotTicks
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" %s>%s</text>`+"\n",
			plotLeft, y(v), plotLeft+plotInnerWidth, y(v), plotLeft-6, y(v)+plotText, plotFont, figure(v)+" "+unit)
	}
	for _, size := range sizes {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" %s>%s</text>`+"\n", x(size), plotTop+plotInnerHeight+18, plotFont, short(size))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" %s>%s</text>`+"\n", plotLeft+plotInnerWidth/2, plotHeight-10, plotFont, html.EscapeString(xName))
	for i, name := range sortedKeys(lines) {
		colour := plotColours[i%len(plotColours)]
		var points []string
		for j, v := range lines[name] {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(sizes[j]), y(v)))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="%d" fill="%s"/>`+"\n", x(sizes[j]), y(v), plotDot, colour)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%d"/>`+"\n", strings.Join(points, " "), colour, plotStroke)
		top := plotTop + 18*i
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d" %s>%s</text>`+"\n",
			plotLeft+plotInnerWidth+12, top, colour, plotLeft+plotInnerWidth+30, top+11, plotFont, html.EscapeString(name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// niceTop rounds up to 1, 2 or 5 times a power of ten.
func niceTop(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*power {
			return step * power
		}
	}
	return 10 * power
}
