package simtest

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// clock is a virtual time that a test moves. Timers fire in their order.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*timer
}

type timer struct {
	at   time.Time
	f    func()
	done bool
}

// Now is the virtual time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f when the time has come.
func (c *clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.now.Add(max(d, 0)), f: f}
	c.timers = append(c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		was := !t.done
		t.done = true
		return was
	}
}

// next takes the earliest timer up to a time, and moves the clock to it.
func (c *clock) next(until time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *timer
	kept := c.timers[:0]
	for _, t := range c.timers {
		if t.done {
			continue
		}
		kept = append(kept, t)
		if !t.at.After(until) && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	c.timers = kept
	if first == nil {
		c.now = until
		return nil
	}
	first.done = true
	if first.at.After(c.now) {
		c.now = first.at
	}
	return first.f
}

// inProcess carries requests to a handler without a socket.
type inProcess struct {
	handler http.Handler
}

// RoundTrip serves the request.
func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	request := r.Clone(r.Context())
	request.RequestURI = r.URL.RequestURI()
	if request.Body == nil {
		request.Body = http.NoBody
	}
	p.handler.ServeHTTP(answer, request)
	response := answer.Result()
	response.Request = r
	return response, nil
}

// switched is a transport that a test can replace while it is used.
type switched struct {
	mu sync.Mutex
	to http.RoundTripper
}

func (s *switched) set(to http.RoundTripper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

// RoundTrip goes the way that is set.
func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	return to.RoundTrip(r)
}
