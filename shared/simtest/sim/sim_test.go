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
	return outcome{seed, w.sum(), w.steps, w.fired, w.ledger.violations, w.traceText()}
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
	count, from := number(t, "SIM_SEEDS", 4), number(t, "SIM_START", 1)
	var wg sync.WaitGroup
	for range min(2, count) {
		l := newLab(t)
		wg.Go(func() {
			for seed := range seeds {
				o := l.run(seed, nil, false)
				mu.Lock()
				total.steps += o.steps
				for kind, n := range o.fired {
					total.fired[kind] += n
				}
				if len(o.violations) > 0 {
					total.violations = append(total.violations, o.violations...)
					t.Errorf("seed %d:\n  %s\nreplay it: SIM_SEED=%d SIM_TRACE=1 make sim", seed, strings.Join(o.violations, "\n  "), seed)
				}
				mu.Unlock()
			}
		})
	}
	for i := range count {
		seeds <- uint64(from + i)
	}
	close(seeds)
	wg.Wait()
	fmt.Printf("%d seeds from %d, %d steps in %s, faults %v, %d violations\n", count, from, total.steps, time.Since(began).Round(time.Second), total.fired, len(total.violations))
}

func one(t *testing.T) {
	t.Helper()
	var drop []int
	for text := range strings.SplitSeq(os.Getenv("SIM_DROP"), ",") {
		if n, err := strconv.Atoi(text); err == nil {
			drop = append(drop, n)
		}
	}
	o := newLab(t).run(uint64(number(t, "SIM_SEED", 0)), drop, os.Getenv("SIM_TRACE") != "")
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
	a.run(3, nil, false) // one of the databases has served before
	for _, seed := range []uint64{1, 2} {
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
