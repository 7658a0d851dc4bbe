package sim

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// corpus holds a line per seed that once failed: the seed, what was left out, and why.
const corpus = "testdata/seeds.txt"

// mostTries bounds how many runs a shrink may take.
const mostTries = 80

// shrink leaves out decisions, acts and faults while the run still breaks an invariant
// that it broke, in ever smaller parts, and returns what can be left out.
func (l *lab) shrink(o outcome) []int {
	var all []int
	for _, i := range newPlan(o.seed, nil).items {
		all = append(all, i.id)
	}
	broken := invariantsOf(o.violations)
	var drop []int
	tries := 0
	for size := (len(all) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(all) && tries < mostTries; {
			part := all[from:min(from+size, len(all))]
			tries++
			if again := l.run(o.seed, slices.Concat(drop, part), false); shares(invariantsOf(again.violations), broken) {
				drop = append(drop, part...)
				all = slices.Delete(slices.Clone(all), from, from+len(part))
				continue
			}
			from += size
		}
	}
	slices.Sort(drop)
	return drop
}

func invariantsOf(violations []string) []string {
	var names []string
	for _, v := range violations {
		name, _, _ := strings.Cut(v, ":")
		names = append(names, name)
	}
	return names
}

func shares(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// command replays a run.
func command(seed uint64, drop []int) string {
	text := fmt.Sprintf("SIM_SEED=%d", seed)
	if len(drop) > 0 {
		text += " SIM_DROP=" + numbers(drop)
	}
	return text + " SIM_TRACE=1 make sim"
}

func numbers(list []int) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

func readNumbers(text string) (list []int) {
	for part := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(part); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// failed reports a seed that failed: shrunk, with the command that replays it, and with
// its line in the corpus where that is wanted.
func (l *lab) failed(t *testing.T, o outcome) {
	t.Helper()
	drop := l.shrink(o)
	small := l.run(o.seed, drop, false)
	t.Errorf("seed %d:\n  %s\nshrunk to %d decisions and faults:\n  %s\nreplay it: %s", o.seed, strings.Join(o.violations, "\n  "),
		len(newPlan(o.seed, drop).items), strings.Join(small.violations, "\n  "), command(o.seed, drop))
	if os.Getenv("SIM_KEEP") == "" || len(small.violations) == 0 {
		return
	}
	f, err := os.OpenFile(corpus, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // written below, and read by the next run
	if _, err := fmt.Fprintf(f, "%d %s # %s\n", o.seed, numbers(drop), strings.Join(invariantsOf(small.violations), " ")); err != nil {
		t.Fatal(err)
	}
}

// TestCorpus replays every seed that ever failed.
func TestCorpus(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(corpus)
	if err != nil {
		t.Fatal(err)
	}
	var l *lab
	for line := range strings.Lines(string(content)) {
		line, why, _ := strings.Cut(strings.TrimSpace(line), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		seed, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			t.Fatalf("%s: %q is not a seed", corpus, fields[0])
		}
		var drop []int
		if len(fields) > 1 {
			drop = readNumbers(fields[1])
		}
		if l == nil {
			l = newLab(t)
		}
		if o := l.run(seed, drop, false); len(o.violations) > 0 {
			t.Errorf("again:%s\n  %s\nreplay it: %s", why, strings.Join(o.violations, "\n  "), command(seed, drop))
		}
	}
}
