// Package child starts servers that end with this process, in whatever way it ends: a
// shell beside them waits for the end of a pipe that only this process holds. A
// parent-death signal would not survive a change of user.
package child

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const supervise = `
trap '' INT TERM HUP
folder=$1
shift
"$@" </dev/null 3<&- &
server=$!
( trap - TERM; cat; kill -TERM $server; sleep 3; kill -KILL $server ) <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait $server
status=$?
kill $watcher 2>/dev/null
[ -z "$folder" ] || rm -rf "$folder"
exit $status`

const (
	readyTimeout = 10 * time.Second
	stopTimeout  = 10 * time.Second
	pollEvery    = 5 * time.Millisecond
	maxLog       = 4 << 10
)

// Process is a running server.
type Process struct {
	name     string
	lifeline io.Closer
	done     chan struct{}
	log      *tail
}

// Start starts a server as another user (nil: ourselves). folder is its own, and goes
// with it; empty: it has none.
func Start(owner *syscall.Credential, folder, program string, args ...string) (*Process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p := &Process{name: program, lifeline: write, done: make(chan struct{}), log: &tail{}}
	// Its life is bound to the lifeline, not to a context.
	cmd := exec.CommandContext(context.Background(), "/bin/sh", append([]string{"-c", supervise, "sh", folder, program}, args...)...)
	cmd.ExtraFiles, cmd.Dir, cmd.Stdout, cmd.Stderr = []*os.File{read}, "/", p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Setpgid: true}
	err = cmd.Start()
	_ = read.Close() // the child has its own
	if err != nil {
		_ = write.Close() // nothing holds the other end
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		_ = cmd.Wait() // that it ended is what counts; its log says why
		close(p.done)
	}()
	return p, nil
}

// Wait returns when the server takes connections.
func (p *Process) Wait(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once: %s", p.name, p.log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", p.name, err, p.log)
		case <-time.After(pollEvery):
		}
	}
}

// Stop ends the server and waits for its end.
func (p *Process) Stop() error {
	_ = p.lifeline.Close() // twice is once
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("%s did not stop within %s: %s", p.name, stopTimeout, p.log)
	}
}

// FreePort returns a port of the loopback that was free a moment ago.
func FreePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// tail keeps the last words of a server.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > maxLog {
		t.text = bytes.Clone(t.text[len(t.text)-maxLog:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
