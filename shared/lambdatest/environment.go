package lambdatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// invocation is one event on its way through an environment.
type invocation struct {
	id       string
	arn      string
	payload  []byte
	deadline time.Time
	answered chan answer // of one
}

type answer struct {
	payload []byte
	err     error
}

func newInvocation(cfg Config, payload []byte) *invocation {
	return &invocation{
		id: uuid.NewString(), payload: payload, deadline: time.Now().Add(cfg.Timeout), answered: make(chan answer, 1),
		arn: "arn:aws:lambda:" + region + ":" + account + ":function:" + cfg.Name,
	}
}

// environment is one execution environment: a process and the Runtime API that it asks.
type environment struct {
	cfg    Config
	id     int
	cmd    *exec.Cmd
	server *http.Server

	work   chan *invocation // taken by the call of …/next that waits
	asked  chan struct{}    // of one: the process asks for work
	failed chan answer      // of one: init/error
	exited chan struct{}    // closed when the process is gone
	status error            // what Wait said; read after exited

	mu        sync.Mutex
	current   *invocation
	extension bool // registered: SIGTERM comes before SIGKILL
}

func newEnvironment(cfg Config, id int) *environment {
	return &environment{
		cfg: cfg, id: id, work: make(chan *invocation), asked: make(chan struct{}, 1),
		failed: make(chan answer, 1), exited: make(chan struct{}),
	}
}

// start runs the init phase: until the process asks for its first event.
func (e *environment) start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		close(e.exited)
		return fmt.Errorf("function %s: listen for its runtime: %w", e.cfg.Name, err)
	}
	e.server = &http.Server{Handler: e.api(), ReadHeaderTimeout: initLimit}
	go func() { _ = e.server.Serve(listener) }() // ends with ErrServerClosed
	// Its life is the environment's, not that of the call that needed it first.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), e.cfg.Bootstrap)
	cmd.Env = append(e.lambdaVariables(listener.Addr().String()), e.cfg.Env...)
	cmd.Stdout, cmd.Stderr = e.cfg.Log, e.cfg.Log
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = processAttributes()
	e.mu.Lock()
	e.cmd, err = cmd, cmd.Start()
	e.mu.Unlock()
	if err != nil {
		close(e.exited)
		return fmt.Errorf("function %s: start %s: %w", e.cfg.Name, e.cfg.Bootstrap, err)
	}
	go func() {
		e.status = cmd.Wait()
		close(e.exited)
	}()
	timer := time.NewTimer(initLimit)
	defer timer.Stop()
	select {
	case <-e.asked:
		return nil
	case a := <-e.failed:
		return a.err
	case <-e.exited:
		return &FunctionError{TypeExit, "the runtime exited during init: " + e.lastStatus()}
	case <-timer.C:
		return &FunctionError{TypeInit, "init took more than " + initLimit.String()}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *environment) lambdaVariables(runtimeAPI string) []string {
	return []string{
		"AWS_LAMBDA_RUNTIME_API=" + runtimeAPI, "AWS_LAMBDA_FUNCTION_NAME=" + e.cfg.Name, "AWS_LAMBDA_FUNCTION_VERSION=1",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256", "AWS_LAMBDA_INITIALIZATION_TYPE=on-demand", "AWS_LAMBDA_LOG_FORMAT=JSON",
		"AWS_REGION=" + region, "AWS_DEFAULT_REGION=" + region, "AWS_EXECUTION_ENV=AWS_Lambda_provided.al2023",
		"TZ=:UTC", "LANG=en_US.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin", "_HANDLER=bootstrap",
	}
}

// serve hands an event over and waits for its answer, for the end of its time, or for
// the end of the process.
func (e *environment) serve(ctx context.Context, inv *invocation) ([]byte, error) {
	e.setCurrent(inv)
	defer e.setCurrent(nil)
	timer := time.NewTimer(time.Until(inv.deadline))
	defer timer.Stop()
	timedOut := &FunctionError{TypeTimeout, fmt.Sprintf("Task timed out after %.2f seconds", e.cfg.Timeout.Seconds())}
	select {
	case e.work <- inv:
	case <-e.exited:
		return nil, &FunctionError{TypeExit, "the runtime exited while it was idle: " + e.lastStatus()}
	case <-timer.C:
		e.kill()
		return nil, timedOut
	}
	select {
	case a := <-inv.answered:
		return a.payload, a.err
	case <-e.exited:
		select {
		case a := <-inv.answered: // it reported, then exited: a panic
			return a.payload, a.err
		default:
		}
		return nil, &FunctionError{TypeExit, "RequestId: " + inv.id + " Error: Runtime exited with error: " + e.lastStatus()}
	case <-timer.C:
		e.kill()
		return nil, timedOut
	case <-ctx.Done():
		e.kill() // nobody waits: Lambda would let it run on, a test wants its process gone
		return nil, ctx.Err()
	}
}

// rest waits until the process asks for its next event; false: it will not.
func (e *environment) rest() bool {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-e.asked:
		return true
	case <-e.exited:
		return false
	case <-timer.C:
		return false
	}
}

func (e *environment) setCurrent(inv *invocation) {
	e.mu.Lock()
	e.current = inv
	e.mu.Unlock()
}

// freeze and thaw are what Lambda does between invocations.
func (e *environment) freeze() { _ = e.cmd.Process.Signal(syscall.SIGSTOP) } // a process that is gone is found at thaw

func (e *environment) thaw() bool {
	return e.alive() && e.cmd.Process.Signal(syscall.SIGCONT) == nil
}

func (e *environment) alive() bool {
	select {
	case <-e.exited:
		return false
	default:
		return true
	}
}

// shutdown ends an idle environment; true: the process ended by itself in time.
func (e *environment) shutdown() bool {
	e.mu.Lock()
	polite := e.extension
	e.mu.Unlock()
	if !polite || !e.thaw() || e.cmd.Process.Signal(syscall.SIGTERM) != nil {
		e.kill()
		return false
	}
	timer := time.NewTimer(shutdownLimit)
	defer timer.Stop()
	select {
	case <-e.exited:
		return true
	case <-timer.C:
		e.kill()
		return false
	}
}

// signalKill ends the process without waiting for its end.
func (e *environment) signalKill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd != nil && e.cmd.Process != nil {
		_ = e.cmd.Process.Kill() // one that is gone is what we want
	}
}

// kill ends the process, frozen or not, and its Runtime API.
func (e *environment) kill() {
	e.signalKill()
	<-e.exited
	if e.server != nil {
		_ = e.server.Close() // what it held is answered by nobody
	}
}

func (e *environment) pid() int { return e.cmd.Process.Pid }

func (e *environment) lastStatus() string {
	<-e.exited
	var exit *exec.ExitError
	if errors.As(e.status, &exit) {
		return exit.Error()
	}
	return "exit status 0"
}

// residentBytes reads how much memory a process holds; 0 where /proc does not say.
func residentBytes(pid int) int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}
