// Package matrix keeps docs/failure-matrix.csv honest: every cell (a step of an event's
// way, and what can fail there) names the tests that prove what must happen. It reads the
// cells, finds tests that do not exist, judges what `go test -json` says of a run, and
// writes the table of docs/failure-matrix.md. `make matrix` runs it.
package matrix

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Module is the path that go test puts before a package's.
const Module = "hubsync"

// A Cell is one step × failure. Cells in which the failure cannot occur have no proof.
type Cell struct {
	ID         string // step and failure: "3b"
	Step       string // "3 publish"
	Failure    string // "crash after"
	MustHappen string
	Mechanism  string
	Bound      string // how long it may take, or who has to act
	Proof      []Test // all of them have to pass
	Impossible bool   // the failure does not exist at this step
}

// A Test is one Go test, or a subtest of it.
type Test struct {
	Package string // directory from the module's root: "shared/worker"
	Name    string // "TestX", or "TestX/as_go_test_prints_it"
}

func (t Test) String() string { return t.Package + "." + t.Name }

// Top is the name of the function that the test is, or is a part of.
func (t Test) Top() string {
	top, _, _ := strings.Cut(t.Name, "/")
	return top
}

var header = []string{"cell", "step", "failure", "must_happen", "mechanism", "bound", "proof"}

// Read reads the cells of the CSV file, in their order.
func Read(r io.Reader) ([]Cell, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read the failure matrix: %w", err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], header) {
		return nil, fmt.Errorf("read the failure matrix: its first line must be %s", strings.Join(header, ","))
	}
	var cells []Cell
	seen := map[string]bool{}
	for _, row := range rows[1:] {
		c := Cell{ID: row[0], Step: row[1], Failure: row[2], MustHappen: row[3], Mechanism: row[4], Bound: row[5]}
		if seen[c.ID] {
			return nil, fmt.Errorf("read the failure matrix: cell %s stands there twice", c.ID)
		}
		seen[c.ID] = true
		c.Impossible = strings.HasPrefix(c.MustHappen, "n/a")
		if c.Proof, err = tests(row[6]); err != nil {
			return nil, fmt.Errorf("read the failure matrix: cell %s: %w", c.ID, err)
		}
		cells = append(cells, c)
	}
	return cells, nil
}

// tests splits "shared/worker.TestA shared/relay.TestB/sub".
func tests(proof string) ([]Test, error) {
	var list []Test
	for name := range strings.FieldsSeq(proof) {
		dot := strings.LastIndex(name, ".Test")
		if dot <= 0 {
			return nil, fmt.Errorf("%q is no test: write package-path.TestName, with one space between two", name)
		}
		list = append(list, Test{Package: name[:dot], Name: name[dot+1:]})
	}
	return list, nil
}

// Live returns the cells whose failure can occur.
func Live(cells []Cell) []Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.Impossible })
}

// Named returns every test that proves something, once each, in order.
func Named(cells []Cell) []Test {
	var all []Test
	for _, c := range cells {
		all = append(all, c.Proof...)
	}
	slices.SortFunc(all, func(a, b Test) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// Table is the matrix as Markdown, a table for each step.
func Table(cells []Cell) string {
	var b strings.Builder
	step := ""
	for _, c := range Live(cells) {
		if c.Step != step {
			step = c.Step
			fmt.Fprintf(&b, "\n## %s\n\n| | failure | what must happen | by | within | shown by |\n|---|---|---|---|---|---|\n", step)
		}
		var proof []string
		for _, t := range c.Proof {
			proof = append(proof, link(t))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", c.ID, c.Failure, c.MustHappen, c.Mechanism, c.Bound, strings.Join(proof, ", "))
	}
	return b.String()
}

// link shows a test by name, linked to its package.
func link(t Test) string {
	return fmt.Sprintf("[`%s`](../%s)", t.Name, t.Package)
}
