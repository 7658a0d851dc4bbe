// Command prove runs the tests that docs/failure-matrix.csv names, and fails where one of
// them failed, was skipped or did not run. It runs in the module's root: `make matrix`.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"hubsync/shared/matrix"
)

func main() {
	if err := prove(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func prove(ctx context.Context, out io.Writer) error {
	file, err := os.Open("docs/failure-matrix.csv")
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	cells, err := matrix.Read(file)
	if err != nil {
		return err
	}
	results, err := run(ctx, cells)
	if err != nil {
		return err
	}
	proven, problems := matrix.Judge(cells, results)
	named := matrix.Named(cells)
	for _, t := range named {
		if results.Of[t] == "fail" {
			_, _ = fmt.Fprint(out, results.Output[t])
		}
	}
	for t, text := range results.Output { // a package that did not compile, or died
		if t.Name == "" && strings.Contains(text, "FAIL") {
			_, _ = fmt.Fprint(out, text)
		}
	}
	_, _ = fmt.Fprintf(out, "%d of %d cells with a passing test (%d tests)\n", proven, len(matrix.Live(cells)), len(named))
	if len(problems) > 0 {
		return fmt.Errorf("not every cell is proven:\n  %s", strings.Join(problems, "\n  "))
	}
	return nil
}

// run runs the named tests. That some failed is for the judge to say.
func run(ctx context.Context, cells []matrix.Cell) (matrix.Results, error) {
	command := exec.CommandContext(ctx, "go", matrix.Args(cells)...)
	command.Stderr = os.Stderr
	pipe, err := command.StdoutPipe()
	if err != nil {
		return matrix.Results{}, err
	}
	if err := command.Start(); err != nil {
		return matrix.Results{}, fmt.Errorf("start go test: %w", err)
	}
	results, err := matrix.ReadResults(pipe)
	_ = command.Wait() // the judge names what failed
	return results, err
}
