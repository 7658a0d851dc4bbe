package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// buildCommand builds the command as operators run it.
func buildCommand(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "hubsync")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "hubsync/cmd/hubsync")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v: %s", err, said)
	}
	return binary
}

// importing is one run of the command over a file.
type importing struct {
	*exec.Cmd
	out, errs bytes.Buffer
}

func (w *world) start(binary, path string) *importing {
	w.t.Helper()
	i := &importing{Cmd: exec.Command(binary, "import", path, "--brand", "acme", "--json")}
	i.Env = append(os.Environ(), "DATABASE_URL="+w.dsn)
	i.Stdout, i.Stderr = &i.out, &i.errs
	if err := i.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = i.Process.Kill() })
	return i
}

// end waits for the command and returns its report and exit code; a command that was
// killed has no report.
func (i *importing) end(t *testing.T) (Report, int) {
	t.Helper()
	var exit *exec.ExitError
	if err := i.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var report Report
	if i.out.Len() > 0 {
		if err := json.Unmarshal(i.out.Bytes(), &report); err != nil {
			t.Fatalf("the report %q: %v", i.out.String(), err)
		}
	}
	return report, i.ProcessState.ExitCode()
}

// waitForRows waits until an import has done some rows, or is complete.
func (w *world) waitForRows(least int64) {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if len(w.texts(`SELECT id::text FROM imports WHERE rows_done >= $1`, least)) > 0 {
			return
		}
	}
	w.t.Fatalf("no import did %d rows within a minute", least)
}

// mustBeWhole checks that what an import says it did is what the tables hold.
func (w *world) mustBeWhole() {
	w.t.Helper()
	if wrong := w.texts(`SELECT concat_ws(' ', i.rows_done, i.accepted + i.superseded, s.n) FROM imports i, (SELECT count(*) AS n FROM subscription_requests) s
		WHERE i.accepted + i.superseded <> s.n OR i.rows_done <> i.accepted + i.superseded + i.replayed + i.refused`); len(wrong) > 0 {
		w.t.Errorf("rows done, rows stored by the import's count, requests: %s", wrong[0])
	}
}

func bigFile(rows int) string {
	var text strings.Builder
	text.WriteString(goodHeader)
	for i := range rows {
		switch {
		case i%500 == 7: // no such state
			fmt.Fprintf(&text, "c%d,p%d@example.com,newsletter,maybe,\n", i, i)
		case i%10 == 9: // a person from before changes their mind
			fmt.Fprintf(&text, "c%d,p%d@example.com,newsletter,unsubscribed,\n", i/2, i/2)
		default:
			fmt.Fprintf(&text, "c%d,p%d@example.com,newsletter,subscribed,2026-01-31\n", i, i)
		}
	}
	return text.String()
}

// TestAnImportGoesOnAfterItWasKilled: killed at any moments and started again, the command
// stores every row once; interrupted, it stops by itself and says how to go on; and once
// more over the whole file has no effect.
func TestAnImportGoesOnAfterItWasKilled(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	binary := buildCommand(t)
	path := w.file("f.csv", bigFile(rows))

	done := int64(0)
	for range 3 {
		i := w.start(binary, path)
		w.waitForRows(done + 1)
		time.Sleep(time.Duration(random.Int64N(int64(400 * time.Millisecond))))
		if err := i.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		i.end(t)
		w.mustBeWhole()
		now := w.texts(`SELECT rows_done::text FROM imports`)
		if len(now) != 1 {
			t.Fatalf("the starts made %d imports: %v", len(now), now)
		}
		if _, err := fmt.Sscan(now[0], &done); err != nil {
			t.Fatal(err)
		}
	}
	if done == rows {
		t.Fatal("the import ended before it could be killed: give it more rows")
	}

	i := w.start(binary, path)
	w.waitForRows(done + 1)
	if err := i.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	stopped, code := i.end(t)
	w.mustBeWhole()
	if code != 1 || stopped.Complete || stopped.ResumedAt < done || stopped.Done <= done {
		t.Errorf("interrupted after row %d: exit code %d, %+v, %s", done, code, stopped, i.errs.String())
	}

	last := w.start(binary, path)
	report, code := last.end(t)
	w.mustBeWhole()
	w.mustAddUp(report, w.results(path+".results.csv"))
	if code != 3 || report.ResumedAt != stopped.Done || report.Refused != rows/500 || report.ByCode["not_allowed"] != rows/500 || report.Replayed != 0 {
		t.Errorf("the last run: exit code %d, %+v, %s", code, report, last.errs.String())
	}
	held := w.rendered()
	again := w.start(binary, path)
	report, _ = again.end(t)
	w.mustAddUp(report, w.results(path+".results.csv"))
	if report.Accepted+report.Superseded != 0 || report.Replayed != rows-rows/500 || !slices.Equal(w.rendered(), held) {
		t.Errorf("the same file again: %+v", report)
	}
}
