package model

import (
	"strings"
	"testing"
)

// The whole design has no wrong end; without any one of the marked rules there is one.
func TestTheDesignHasNoWrongEnd(t *testing.T) {
	t.Parallel()
	all := map[string]bounds{
		"two decisions, two workers":   {2, 2, 1, 1, 1, 1},
		"two decisions, three workers": {2, 3, 1, 1, 0, 1},
	}
	if underRace {
		delete(all, "two decisions, three workers")
	}
	for name, b := range all {
		r := explore(wholeDesign(), b, 6_000_000)
		t.Logf("%s: %s", name, r)
		if len(r.Wrong) > 0 || r.Truncated || r.Ends == 0 {
			t.Errorf("%s: truncated %v, wrong end:\n%s", name, r.Truncated, r)
		}
	}
}

func TestEveryRuleIsNecessary(t *testing.T) {
	t.Parallel()
	for _, rule := range Rules() {
		t.Run(strings.ReplaceAll(rule.String(), " ", "_"), func(t *testing.T) {
			t.Parallel()
			r := explore(wholeDesign().without(rule), bounds{2, 3, 1, 1, 1, 1}, 3_000_000)
			if len(r.Wrong) == 0 {
				t.Errorf("no counterexample in %d states (truncated %v)", r.States, r.Truncated)
			}
			t.Logf("without %q:\n%s", rule, r)
		})
	}
}
