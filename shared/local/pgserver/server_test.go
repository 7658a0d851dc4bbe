package pgserver

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func query(t *testing.T, s *Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var zone string
	if err := conn.QueryRow(t.Context(), "SHOW timezone").Scan(&zone); err != nil || zone != "UTC" {
		t.Errorf("timezone %q, %v", zone, err)
	}
}

func TestTwoServersSideBySideLeaveNothing(t *testing.T) {
	t.Parallel()
	var dirs []string
	for range 2 {
		s, err := Start(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		query(t, s)
		dirs = append(dirs, s.dir)
		t.Cleanup(func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is still there: %v", err)
			}
		})
	}
	if dirs[0] == dirs[1] {
		t.Error("two servers share a folder")
	}
}

func TestDataDirIsKept(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "hubsync-keep-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s, err := Start(t.Context(), Options{DataDir: dir, Durable: true})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), s.DSN("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			_, err = conn.Exec(t.Context(), "CREATE TABLE kept (n integer)")
		} else {
			_, err = conn.Exec(t.Context(), "INSERT INTO kept VALUES (1)")
		}
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		_ = conn.Close(context.Background())
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// A parent that is killed cannot clean up; its supervisor does.
func TestAKilledParentLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
	cmd.Env = append(os.Environ(), "HUBSYNC_PG_HELPER=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "dir ")
	if err != nil || !ok {
		t.Fatalf("the helper said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
	}
	t.Errorf("%s is still there", filepath.Base(dir))
}

// TestHelperProcess is the parent that gets killed.
func TestHelperProcess(t *testing.T) {
	if os.Getenv("HUBSYNC_PG_HELPER") == "" {
		return
	}
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("dir " + s.dir + "\n")
	time.Sleep(time.Minute)
}

func TestFindSaysWhatToDo(t *testing.T) {
	t.Setenv("PG_BIN", t.TempDir())
	if _, err := Find(); err == nil || !strings.Contains(err.Error(), "PG_BIN") {
		t.Errorf("error %v", err)
	}
	t.Setenv("PG_BIN", "")
	if dir, err := Find(); err != nil || !complete(dir) {
		t.Errorf("found %q, %v", dir, err)
	}
}
