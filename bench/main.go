// Command bench measures hubsync beside its peers on this machine: everything on one
// private PostgreSQL with the same settings, in interleaved rounds, so that a ratio says
// something where a figure alone says little. It prints one table and, last, one line
// with the verdict. Its exit code is 1 where a ratio fell below its regression gate.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	name := flag.String("form", "quick", "quick, standard or full")
	only := flag.String("only", "", "run the benchmarks whose name matches this regular expression")
	plots := flag.String("plots", "", "folder for the plots of cost growth; empty: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	regressed, err := run(ctx, *name, *only, *plots)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if regressed {
		os.Exit(1)
	}
}

// benchmark is one part of the table.
type benchmark struct {
	name string
	run  func(context.Context, *bench) ([]row, error)
}

// benchmarks in the order of the table.
var benchmarks = []benchmark{
	{"intake", benchIntake},
	{"claim", benchClaim},
	{"drain", benchDrain},
	{"budget", benchBudget},
	{"growth", benchGrowth},
	{"converge", benchConverge},
}

// bench is what the benchmarks share.
type bench struct {
	form  form
	pg    *databases
	plots string
}

func run(ctx context.Context, name, only, plots string) (regressed bool, err error) {
	f, known := forms[name]
	if !known {
		return false, fmt.Errorf("form %q is not known: quick, standard or full", name)
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	pg, err := startDatabases(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, pg.stop()) }()
	b := &bench{form: f, pg: pg, plots: plots}
	started := time.Now()
	var rows []row
	for _, m := range benchmarks {
		if !wanted.MatchString(m.name) {
			continue
		}
		began := time.Now()
		found, err := m.run(ctx, b)
		if err != nil {
			return false, fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(os.Stderr, "%-8s %5.1f s\n", m.name, time.Since(began).Seconds())
		rows = append(rows, found...)
	}
	if len(rows) == 0 {
		return false, fmt.Errorf("no benchmark of this form matches %q", only)
	}
	return report(os.Stdout, name, time.Since(started), rows), nil
}
