package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Args are the arguments of the go command that runs the named tests and no others: their
// packages at once, so that they compile and run side by side.
func Args(cells []Cell) []string {
	var packages, names []string
	for _, t := range Named(cells) {
		packages = append(packages, "./"+t.Package)
		names = append(names, regexp.QuoteMeta(t.Top()))
	}
	slices.Sort(names)
	run := "^(" + strings.Join(slices.Compact(names), "|") + ")$"
	return append([]string{"test", "-json", "-count=1", "-vet=off", "-timeout=5m", "-run", run}, slices.Compact(packages)...)
}

// Results are what a run said of each test: "pass", "fail" or "skip".
type Results struct {
	Of     map[Test]string
	Output map[Test]string // of what did not pass
}

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// ReadResults reads the output of `go test -json`. A package that does not compile has no
// results: its tests did not run.
func ReadResults(r io.Reader) (Results, error) {
	results := Results{Of: map[Test]string{}, Output: map[Test]string{}}
	decoder := json.NewDecoder(r)
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return results, nil
		}
		if err != nil {
			return results, fmt.Errorf("read the results of go test: %w", err)
		}
		t := Test{Package: strings.TrimPrefix(e.Package, Module+"/"), Name: e.Test}
		switch e.Action {
		case "pass", "fail", "skip":
			if t.Name != "" {
				results.Of[t] = e.Action
			}
			if e.Action == "pass" {
				delete(results.Output, t)
			}
		case "output", "build-output":
			results.Output[t] += e.Output
		}
	}
}

// Judge returns how many live cells are proven by tests that all passed, and a line for
// each test of a cell that did not.
func Judge(cells []Cell, results Results) (proven int, problems []string) {
	for _, c := range Live(cells) {
		good := len(c.Proof) > 0
		if !good {
			problems = append(problems, fmt.Sprintf("cell %s (%s: %s) names no test", c.ID, c.Step, c.Failure))
		}
		for _, t := range c.Proof {
			verdict := map[string]string{"pass": "", "fail": "failed", "skip": "was skipped", "": "did not run"}[results.Of[t]]
			if verdict != "" {
				good = false
				problems = append(problems, fmt.Sprintf("cell %s (%s: %s): %s %s", c.ID, c.Step, c.Failure, t, verdict))
			}
		}
		if good {
			proven++
		}
	}
	return proven, problems
}
