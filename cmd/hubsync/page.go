package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"hubsync/shared/ops"
)

// pageWidth is how wide a page may be: it fits a terminal, a ticket and a chat.
const pageWidth = 100

// page is a text for people, at most pageWidth columns wide.
type page struct{ strings.Builder }

// line adds a line; a longer one is broken between words.
func (p *page) line(format string, args ...any) { p.wrapped("", fmt.Sprintf(format, args...)) }

// wrapped adds a text whose further lines are indented; a line that fits stays as it is.
func (p *page) wrapped(indent, text string) {
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i > 0 {
			line = indent + line
		}
		for utf8.RuneCountInString(line) > pageWidth {
			head := string([]rune(line)[:pageWidth])
			at := strings.LastIndex(head, " ")
			if strings.TrimSpace(head[:max(at, 0)]) == "" {
				break // one word that is wider than the page
			}
			p.WriteString(strings.TrimRight(line[:at], " ") + "\n")
			line = indent + strings.TrimLeft(line[at:], " ")
		}
		p.WriteString(line + "\n")
	}
}

// table adds rows under a head. The columns are as wide as what is in them; where that is
// too wide for the page, the widest give way and their texts are cut, but for those whose
// head begins with = (ids that somebody will copy).
func (p *page) table(head []string, rows [][]string) {
	head = slices.Clone(head)
	whole := make([]bool, len(head))
	for i, name := range head {
		head[i] = strings.TrimPrefix(name, "=")
		whole[i] = head[i] != name
	}
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for total(widths) > pageWidth {
		widest := -1
		for i, w := range widths {
			if !whole[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 || widths[widest] <= 1 {
			break
		}
		widths[widest]--
	}
	for _, row := range append([][]string{head}, rows...) {
		var line strings.Builder
		for i, text := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			text = cut(text, widths[i])
			line.WriteString(text + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)))
		}
		p.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func total(widths []int) int {
	sum := 2 * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// cut shortens a text to a width, with … where something is missing.
func cut(text string, width int) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// findings adds what a check found, each with what to do about it.
func (p *page) findings(list []ops.Finding) {
	for _, f := range list {
		sign := "✗"
		if f.Severity == ops.Warning {
			sign = "!"
		}
		p.wrapped("    ", fmt.Sprintf("%s %s: %s", sign, f.Where, f.Problem))
		if f.Fix != "" {
			p.wrapped("    ", "  → "+f.Fix)
		}
	}
}
