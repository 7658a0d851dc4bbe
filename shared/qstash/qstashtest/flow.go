package qstashtest

import (
	"time"
)

// flow is what shares one flow-control key: a queue of due messages, how many are in
// flight, and a fixed window of deliveries. Two windows meet, so that twice the rate
// can cross a boundary, as it seems to be at QStash.
type flow struct {
	settings    flowSettings
	pinned      bool
	paused      bool
	waiting     []*message
	inFlight    int
	windowStart time.Time
	inWindow    int
	woken       bool // a timer will look again
}

// schedule makes a message due at its time. The caller holds the lock.
func (s *Server) schedule(m *message) {
	delay := m.NotBefore.Sub(s.opts.Clock.Now())
	if s.faults.ShuffleMs > 0 {
		delay = max(delay, 0) + time.Duration(s.random.IntN(s.faults.ShuffleMs))*time.Millisecond
	}
	if delay <= 0 {
		s.due(m)
		return
	}
	s.timers[m] = s.opts.Clock.AfterFunc(delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.timers, m)
		s.due(m)
	})
}

// due puts a message into its key's queue. The caller holds the lock.
func (s *Server) due(m *message) {
	if m.cancelled || s.closed {
		return
	}
	f := s.flowOf(m)
	if !f.pinned {
		f.settings = strictest(f.settings, m.Flow)
	}
	f.waiting = append(f.waiting, m)
	s.pump(f)
}

func (s *Server) flowOf(m *message) *flow {
	key := m.Flow.Key
	f := s.flows[key]
	if f == nil {
		f = &flow{settings: m.Flow}
		if key == "" {
			f.settings = flowSettings{Parallelism: freeParallelism}
		}
		s.flows[key] = f
	}
	return f
}

// strictest: in a mix of settings the highest wins, as QStash documents.
func strictest(held, asked flowSettings) flowSettings {
	held.Parallelism = max(held.Parallelism, asked.Parallelism)
	if asked.Rate > held.Rate {
		held.Rate, held.Period = asked.Rate, asked.Period
	}
	return held
}

// pump starts deliveries as far as the key allows. The caller holds the lock.
func (s *Server) pump(f *flow) {
	for len(f.waiting) > 0 && !f.paused && !s.closed {
		if f.settings.Parallelism > 0 && f.inFlight >= f.settings.Parallelism {
			return
		}
		if wait := s.rateWait(f); wait > 0 {
			s.wake(f, wait)
			return
		}
		m := f.waiting[0]
		f.waiting = f.waiting[1:]
		if m.cancelled {
			continue
		}
		f.inFlight++
		f.inWindow++
		s.wg.Add(1)
		s.opts.Go(func() { s.deliver(f, m) })
	}
}

func (s *Server) rateWait(f *flow) time.Duration {
	if f.settings.Rate <= 0 {
		return 0
	}
	now, period := s.opts.Clock.Now(), max(f.settings.Period, time.Second)
	if now.Sub(f.windowStart) >= period {
		f.windowStart, f.inWindow = now.Truncate(period), 0
	}
	if f.inWindow < f.settings.Rate {
		return 0
	}
	return max(f.windowStart.Add(period).Sub(now), time.Millisecond)
}

func (s *Server) wake(f *flow, after time.Duration) {
	if f.woken {
		return
	}
	f.woken = true
	s.opts.Clock.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.woken = false
		s.pump(f)
	})
}
