package sim

import (
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"
)

// scheduler runs actors one at a time. An actor runs from one point to the next; between
// two points nothing else moves, so that a run is a function of its seed.
type scheduler struct {
	now     time.Time
	order   *rand.Rand // who goes next, and how long a step takes
	current *actor
	actors  []*actor // alive, in the order of their birth
	handoff chan struct{}
	timers  timerHeap
	births  int
	steps   int
	hash    hash.Hash
	lines   []string // of the trace, where it is kept
	keep    bool
	// meet is told at every point, and says whether the actor goes on there.
	meet func(a *actor) action
	// halted ends every actor at its next point: the world is being taken down.
	halted bool
}

// action is what happens to an actor at a point.
type action int

const (
	goOn action = iota
	die
	freeze
)

// actor is one run of a stage, a client or a delivery: a process of its own.
type actor struct {
	name   string
	stage  string
	at     string // the point at which it waits
	doing  string // its transaction
	after  string // what it did since: a point that it passes before the next one
	resume chan struct{}
	wake   time.Time   // not before
	until  func() bool // nor before this holds, or wake has come
	dead   bool
	ended  bool
	frozen bool // it was, at the point where it waits
	// loseCommit and cutConn are set at a database point for the transaction that follows.
	loseCommit, cutConn bool
	reads               map[string]int // address → step of the last consent read that was answered
	try                 *try           // intake: whose request it is
	ending              func()         // when it is over, whatever the way
}

func newScheduler(seed uint64, start time.Time, keep bool) *scheduler {
	return &scheduler{
		now: start, order: rand.New(rand.NewPCG(seed, 11)), handoff: make(chan struct{}), hash: sha256.New(), keep: keep,
		meet: func(*actor) action { return goOn },
	}
}

// spawn makes an actor that runs f when its turn comes.
func (s *scheduler) spawn(stage string, f func()) *actor {
	s.births++
	a := &actor{name: fmt.Sprint(stage, "#", s.births), stage: stage, at: "start", resume: make(chan struct{}), reads: map[string]int{}}
	s.actors = append(s.actors, a)
	go func() {
		defer func() { a.ended = true; s.handoff <- struct{}{} }()
		<-a.resume
		if !a.dead {
			f()
		}
		if a.after != "" {
			s.park(a, "after "+a.after)
		}
	}()
	return a
}

// point is where the actor that runs now stops and waits for its next turn. Outside of an
// actor it is nothing.
func (s *scheduler) point(name string) {
	a := s.current
	if a == nil {
		return
	}
	if a.dead {
		runtime.Goexit()
	}
	if after := a.after; after != "" {
		a.after = ""
		s.park(a, "after "+after)
	}
	s.park(a, name)
}

func (s *scheduler) park(a *actor, name string) {
	a.at, a.after = name, ""
	s.handoff <- struct{}{}
	<-a.resume
	if a.dead {
		runtime.Goexit()
	}
}

// sleep lets the actor that runs now wait for a time.
func (s *scheduler) sleep(d time.Duration) {
	if a := s.current; a != nil {
		a.wake = s.now.Add(d)
		s.point("sleep")
	}
}

// await lets the actor that runs now wait for a condition, at most for a time.
func (s *scheduler) await(name string, until func() bool, atMost time.Duration) {
	a := s.current
	a.wake, a.until = s.now.Add(atMost), until
	s.point(name)
	a.until = nil
}

// step gives one actor its turn; false: nobody can go on now.
func (s *scheduler) step() bool {
	ready := s.ready()
	if len(ready) == 0 {
		return false
	}
	a := ready[s.order.IntN(len(ready))]
	s.steps++
	switch s.meet(a) {
	case die:
		s.trace("%s dies %s", a.name, a.at)
		a.dead = true
	case freeze: // meet said until when
		s.trace("%s freezes %s until %s", a.name, a.at, a.wake.Format(clockFormat))
		a.frozen = true
		return true
	case goOn:
		s.trace("%s %s", a.name, a.at)
	}
	s.run(a)
	// Mostly milliseconds, now and then none: times may be equal.
	if s.order.IntN(10) > 0 {
		s.now = s.now.Add(time.Duration(s.order.IntN(8000)) * time.Microsecond)
	}
	return true
}

const clockFormat = "15:04:05.000000"

func (s *scheduler) run(a *actor) {
	s.current = a
	a.frozen = false
	a.resume <- struct{}{}
	<-s.handoff
	s.current = nil
	alive := s.actors[:0]
	for _, b := range s.actors {
		if !b.ended {
			alive = append(alive, b)
		}
	}
	clear(s.actors[len(alive):])
	s.actors = alive
	if a.ended && a.ending != nil && !s.halted {
		a.ending()
	}
}

func (s *scheduler) ready() []*actor {
	var ready []*actor
	for _, a := range s.actors {
		if (a.until != nil && a.until()) || !a.wake.After(s.now) {
			ready = append(ready, a)
		}
	}
	return ready
}

// next is the earliest moment at which something happens by itself.
func (s *scheduler) next() (time.Time, bool) {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if len(s.timers) > 0 {
		sooner(s.timers[0].at)
	}
	for _, a := range s.actors {
		sooner(a.wake)
	}
	return at, !at.IsZero()
}

// ring runs the timers that are due. They are no actors: they run to their end at once.
func (s *scheduler) ring() {
	for len(s.timers) > 0 && !s.timers[0].at.After(s.now) {
		t := heap.Pop(&s.timers).(*timer)
		if !t.stopped {
			t.f()
		}
	}
}

// halt ends every actor.
func (s *scheduler) halt() {
	s.halted = true
	for len(s.actors) > 0 {
		a := s.actors[0]
		a.dead = true
		s.run(a)
	}
}

func (s *scheduler) trace(format string, args ...any) {
	line := s.now.Format(clockFormat) + " " + fmt.Sprintf(format, args...)
	s.hash.Write([]byte(line + "\n"))
	if s.keep {
		s.lines = append(s.lines, line)
	}
}

// sum is the hash of all that happened.
func (s *scheduler) sum() string { return hex.EncodeToString(s.hash.Sum(nil))[:16] }

// timer is something that happens at a time.
type timer struct {
	at      time.Time
	serial  int
	f       func()
	stopped bool
}

// at runs f at a time; the returned function stops it.
func (s *scheduler) at(t time.Time, f func()) (stop func() bool) {
	s.births++
	x := &timer{at: t, serial: s.births, f: f}
	heap.Push(&s.timers, x)
	return func() bool { was := x.stopped; x.stopped = true; return !was }
}

// Now and AfterFunc make the scheduler QStash's clock.
func (s *scheduler) Now() time.Time { return s.now }

// AfterFunc is a timer of QStash's.
func (s *scheduler) AfterFunc(d time.Duration, f func()) func() bool { return s.at(s.now.Add(d), f) }

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].serial < h[j].serial
	}
	return h[i].at.Before(h[j].at)
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)   { *h = append(*h, x.(*timer)) }
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// traceText is the trace, for a person.
func (s *scheduler) traceText() string { return strings.Join(s.lines, "\n") }
