package model

import (
	"fmt"
	"strings"
)

// Result is what an exploration found.
type Result struct {
	States int
	Ends   int // quiet states
	// Wrong is the shortest way to a quiet state that shows the wrong thing, step by
	// step; empty if there is none.
	Wrong []string
	// Truncated: the limit on states was reached before everything was visited.
	Truncated bool
}

func (r Result) String() string {
	if len(r.Wrong) == 0 {
		return fmt.Sprintf("%d states, %d quiet ends, 0 wrong ends", r.States, r.Ends)
	}
	var b strings.Builder
	for i, words := range r.Wrong {
		fmt.Fprintf(&b, "  %2d. %s\n", i+1, words)
	}
	return b.String()
}

// visited is a state, how it was reached first, and from where.
type visited struct {
	state  state
	parent int32
	words  string
}

// explore visits every state in breadth-first order, so that the first wrong end is
// a nearest one.
func explore(d design, b bounds, limit int) Result {
	order := []visited{{parent: -1}}
	seen := map[state]struct{}{{}: {}}
	result := Result{}
	for i := 0; i < len(order); i++ {
		s := order[i].state
		if s.latest > 0 && s.quiet() {
			result.Ends++
			if s.hubspot != s.desired() {
				result.Wrong = trace(order, i)
				break
			}
		}
		for _, st := range steps(s, d, b) {
			st.next = st.next.canonical()
			if _, known := seen[st.next]; known {
				continue
			}
			if len(order) >= limit {
				result.Truncated = true
				break
			}
			seen[st.next] = struct{}{}
			order = append(order, visited{st.next, int32(i), st.words})
		}
	}
	result.States = len(order)
	return result
}

func trace(order []visited, end int) []string {
	words := []string{order[end].state.describe()}
	for i := int32(end); order[i].parent >= 0; i = order[i].parent {
		words = append([]string{order[i].words}, words...)
	}
	return words
}
