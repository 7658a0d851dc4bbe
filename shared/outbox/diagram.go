package outbox

import (
	"fmt"
	"strings"
)

// Diagram draws the table of transitions as a Mermaid state diagram; docs/states.md
// holds it, and a test holds the two equal.
func Diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n  [*] --> pending\n")
	for _, from := range Statuses {
		for _, to := range Statuses {
			if from.CanBecome(to) {
				fmt.Fprintf(&b, "  %s --> %s\n", from, to)
			}
		}
		if from.Terminal() {
			fmt.Fprintf(&b, "  %s --> [*]\n", from)
		}
	}
	return b.String()
}
