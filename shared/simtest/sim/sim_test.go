package sim

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// number reads a setting of the run.
func number(t *testing.T, name string, fallback int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}

// outcome is what a run of a plan came to.
type outcome struct {
	seed       uint64
	sum        string
	steps      int
	fired      map[string]int
	decisions  int // accepted
	cells      int
	open       int // cells of which the run left open what must be
	violations []string
	trace      string
}

// lab runs worlds, one after the other, over one database.
type lab struct {
	t *testing.T
	d *database
	r *redisServer
}

func newLab(t *testing.T) *lab { return &lab{t, newDatabase(t), newRedis(t)} }

func (l *lab) run(seed uint64, drop []int, keep bool) outcome {
	w := newWorld(l.d, l.r, newPlan(seed, drop), keep)
	defer w.close()
	w.run()
	o := outcome{seed: seed, sum: w.sum(), steps: w.steps, fired: w.fired, decisions: len(w.ledger.accepted), violations: w.ledger.violations, trace: w.traceText()}
	for _, must := range w.ledger.model() {
		o.cells++
		if must.open != "" {
			o.open++
		}
	}
	return o
}

// TestSeeds runs a range of seeds; a few by default, as many as SIM_SEEDS says.
func TestSeeds(t *testing.T) {
	t.Parallel()
	if os.Getenv("SIM_SEED") != "" {
		one(t)
		return
	}
	seeds := make(chan uint64)
	var mu sync.Mutex
	total := outcome{fired: map[string]int{}}
	began := time.Now()
	count, from := number(t, "SIM_SEEDS", 3), number(t, "SIM_START", 1)
	var wg sync.WaitGroup
	for range min(2, count) {
		l := newLab(t)
		wg.Go(func() {
			for seed := range seeds {
				o := l.run(seed, nil, false)
				mu.Lock()
				total.steps += o.steps
				total.decisions += o.decisions
				total.cells += o.cells
				total.open += o.open
				for kind, n := range o.fired {
					total.fired[kind] += n
				}
				if len(o.violations) > 0 {
					total.violations = append(total.violations, o.violations...)
				}
				mu.Unlock()
				if len(o.violations) > 0 {
					l.failed(t, o)
				}
			}
		})
	}
	for i := range count {
		seeds <- uint64(from + i)
	}
	close(seeds)
	wg.Wait()
	fmt.Printf("%d seeds from %d in %s: %d decisions in %d subscriptions (%d left open by the window that HubSpot leaves), %d steps, faults %v, %d violations\n",
		count, from, time.Since(began).Round(time.Second), total.decisions, total.cells, total.open, total.steps, total.fired, len(total.violations))
}

func one(t *testing.T) {
	t.Helper()
	o := newLab(t).run(uint64(number(t, "SIM_SEED", 0)), readNumbers(os.Getenv("SIM_DROP")), os.Getenv("SIM_TRACE") != "")
	if o.trace != "" {
		fmt.Println(o.trace)
	}
	fmt.Printf("seed %d: trace %s, %d steps, faults %v, %d violations\n", o.seed, o.sum, o.steps, o.fired, len(o.violations))
	for _, v := range o.violations {
		t.Error(v)
	}
}

// TestOneSeedIsOneRun: the same seed twice, on two databases, is the same trace.
func TestOneSeedIsOneRun(t *testing.T) {
	t.Parallel()
	a, b := newLab(t), newLab(t)
	a.run(2, nil, false) // one of the databases has served before
	for _, seed := range []uint64{1} {
		if x, y := a.run(seed, nil, true), b.run(seed, nil, true); x.sum != y.sum {
			t.Errorf("seed %d ran as %s and as %s; they part at\n%s", seed, x.sum, y.sum, parting(x.trace, y.trace))
		}
	}
}

// parting is where two traces differ first.
func parting(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range x {
		if i >= len(y) || x[i] != y[i] {
			return strings.Join(x[max(i-3, 0):i+1], "\n") + "\nthe other:\n" + strings.Join(y[max(i-3, 0):min(i+1, len(y))], "\n")
		}
	}
	return "the end"
}
