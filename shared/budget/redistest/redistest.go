// Package redistest starts a real Redis for a test, beside the one in memory that most
// tests use: its Lua, its clock and its sockets are the real ones. Where the program is
// missing the test fails and says what to install.
package redistest

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"testing"

	"hubsync/shared/local/child"
)

// Start starts an empty Redis on the loopback that keeps nothing on disk, and returns
// its address.
func Start(t testing.TB) (addr string) {
	t.Helper()
	process, addr, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	return addr
}

func start(ctx context.Context) (*child.Process, string, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", errors.New("redis-server is not installed: apt-get install redis-server")
	}
	port, err := child.FreePort(ctx)
	if err != nil {
		return nil, "", err
	}
	process, err := child.Start(nil, "", program, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--loglevel", "warning")
	if err != nil {
		return nil, "", err
	}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	if err := process.Wait(ctx, addr); err != nil {
		return nil, "", errors.Join(err, process.Stop())
	}
	return process, addr, nil
}
