// Package lambdatest is a Lambda that runs on this machine: it starts the unmodified
// bootstraps as processes, speaks the Runtime API with them over the loopback, freezes
// them between invocations (SIGSTOP), ends them at a timeout, and hands them the events
// of HTTP API, function URL and Scheduler. What Lambda does is told by AWS's documents
// ("Lambda runtime API", "Lambda execution environment lifecycle", "Lambda Extensions
// API"); what they leave open is said where it matters.
package lambdatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Limits of Lambda, and defaults of this package.
const (
	initLimit          = 10 * time.Second       // of an init phase
	shutdownLimit      = 500 * time.Millisecond // from SIGTERM to SIGKILL
	defaultTimeout     = 30 * time.Second
	defaultConcurrency = 10
	region             = "eu-central-1"
	account            = "123456789012" // the documents' example account
)

// Config is one deployed function. Name and Bootstrap are required.
type Config struct {
	Name      string
	Bootstrap string   // path of the executable
	Env       []string // NAME=value; nothing of this process's environment is handed on
	Timeout   time.Duration
	// Concurrency is how many environments there may be; an invocation beyond it is
	// throttled.
	Concurrency int
	Log         io.Writer // what the function writes; default: nothing
	// NeverFreeze leaves idle environments running, for a developer's world with a
	// debugger.
	NeverFreeze bool
}

// ErrThrottled is an invocation that found every environment at work.
var ErrThrottled = errors.New("lambda: rate exceeded")

// FunctionError is an invocation that the function did not answer.
type FunctionError struct {
	Type    string // Lambda's: Runtime.ExitError, Sandbox.Timedout, or the runtime's own
	Message string
}

func (e *FunctionError) Error() string { return "lambda function error " + e.Type + ": " + e.Message }

// Types of FunctionError that this package gives itself.
const (
	TypeExit    = "Runtime.ExitError"
	TypeTimeout = "Sandbox.Timedout"
	TypeInit    = "Runtime.InitError"
)

// Result is what one invocation gave and took.
type Result struct {
	Payload     []byte
	Cold        bool          // the environment was started for it
	Took        time.Duration // from the invocation to its response, a cold start included
	Environment int           // 1 is the function's first
	RSS         int64         // bytes that the process holds after it; 0 where that cannot be read
}

// Function is one function with its environments.
type Function struct {
	cfg Config

	mu     sync.Mutex
	idle   []*environment
	all    map[*environment]bool
	serial int
	closed bool
	rss    int64
}

// New returns a function; Close ends its environments.
func New(cfg Config) (*Function, error) {
	if info, err := os.Stat(cfg.Bootstrap); err != nil || info.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("function %s: %s is not an executable file; build it first", cfg.Name, cfg.Bootstrap)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = defaultConcurrency
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	return &Function{cfg: cfg, all: map[*environment]bool{}}, nil
}

// Invoke runs the function once and returns when it has answered and is idle again. The
// error is ErrThrottled, a *FunctionError, or says why no environment could be started.
func (f *Function) Invoke(ctx context.Context, payload []byte) (Result, error) {
	started := time.Now()
	e, cold, err := f.acquire(ctx)
	if err != nil {
		return Result{Cold: cold, Took: time.Since(started)}, err
	}
	inv := newInvocation(f.cfg, payload)
	answer, err := e.serve(ctx, inv)
	r := Result{Payload: answer, Cold: cold, Took: time.Since(started), Environment: e.id}
	if !e.rest() {
		f.drop(e)
		return r, err
	}
	r.RSS = residentBytes(e.pid())
	f.mu.Lock()
	f.rss = max(f.rss, r.RSS)
	f.mu.Unlock()
	f.release(e)
	return r, err
}

// acquire takes the environment that was idle last, or starts one.
func (f *Function) acquire(ctx context.Context) (e *environment, cold bool, err error) {
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return nil, false, errors.New("lambda: the function was deleted")
		}
		if n := len(f.idle); n > 0 {
			e = f.idle[n-1]
			f.idle = f.idle[:n-1]
			f.mu.Unlock()
			if e.thaw() {
				return e, false, nil
			}
			f.drop(e) // it died while it was frozen
			continue
		}
		if len(f.all) >= f.cfg.Concurrency {
			f.mu.Unlock()
			return nil, false, ErrThrottled
		}
		f.serial++
		e = newEnvironment(f.cfg, f.serial)
		f.all[e] = true
		f.mu.Unlock()
		if err := e.start(ctx); err != nil {
			f.drop(e)
			return nil, true, err
		}
		return e, true, nil
	}
}

func (f *Function) release(e *environment) {
	if !f.cfg.NeverFreeze {
		e.freeze()
	}
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.idle = append(f.idle, e)
	}
	f.mu.Unlock()
	if closed {
		f.drop(e)
	}
}

// drop ends an environment for good.
func (f *Function) drop(e *environment) {
	e.kill()
	f.mu.Lock()
	delete(f.all, e)
	f.mu.Unlock()
}

// Environments returns how many environments there are.
func (f *Function) Environments() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// MaxRSS returns the most bytes that an environment held after an invocation.
func (f *Function) MaxRSS() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rss
}

// Recycle shuts the idle environments down, as Lambda does when they are not needed:
// SIGTERM where an extension is registered, then SIGKILL. The next invocation is a cold
// start. It returns how many ended by themselves.
func (f *Function) Recycle() (byThemselves int) {
	f.mu.Lock()
	idle := f.idle
	f.idle = nil
	f.mu.Unlock()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, e := range idle {
		wg.Go(func() {
			if e.shutdown() {
				mu.Lock()
				byThemselves++
				mu.Unlock()
			}
			f.drop(e)
		})
	}
	wg.Wait()
	return byThemselves
}

// Crash kills every environment at once, at work or not, and returns how many, as the
// failure of a machine does.
func (f *Function) Crash() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.all)
	for e := range f.all {
		e.signalKill()
	}
	return n
}

// Close deletes the function: idle environments are shut down, working ones are killed.
func (f *Function) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.Recycle()
	f.mu.Lock()
	left := make([]*environment, 0, len(f.all))
	for e := range f.all {
		left = append(left, e)
	}
	f.mu.Unlock()
	for _, e := range left {
		f.drop(e)
	}
}
