package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"hubsync/shared/ops"
)

func command(t *testing.T, args ...string) (int, string) {
	t.Helper()
	root := newRoot(func(string) string { return "" })
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetIn(strings.NewReader(""))
	code := run(t.Context(), root, &errs)
	return code, out.String() + errs.String()
}

func TestReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	if got := reference(newRoot(os.Getenv)); got != string(page) {
		t.Error("docs/cli.md is not what the command is now: go run ./cmd/hubsync reference > docs/cli.md")
	}
}

// A mistake in the command line is told from a failure, and every one says what to do.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no command":                {[]string{}, 0, "Usage:"},
		"unknown command":           {[]string{"statsu"}, exitUsage, "unknown command"},
		"unknown command below":     {[]string{"routes", "aply"}, exitUsage, `routes has no command "aply"`},
		"unknown flag":              {[]string{"status", "--verbose"}, exitUsage, "unknown flag"},
		"a file is missing":         {[]string{"routes", "plan"}, exitUsage, "takes one file"},
		"a file that is not there":  {[]string{"routes", "plan", "/no/such/file"}, exitFailed, "read the routes file"},
		"no database":               {[]string{"status"}, exitFailed, "set DATABASE_URL, or use --stack NAME"},
		"nothing configured at all": {[]string{"doctor"}, exitAttention, "HUBSYNC_ENV is not set"},
		"an act without --yes":      {[]string{"pause", "main", "--reason", "r"}, exitUsage, "needs --yes"},
		"a time that is none":       {[]string{"replay", "--from", "yesterday"}, exitUsage, "neither a time"},
		"an unknown format":         {[]string{"evidence", "k", "--format", "xml"}, exitUsage, "--format takes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code, out := command(t, tc.args...); code != tc.code || !strings.Contains(out, tc.says) {
				t.Errorf("exit code %d, want %d; does it say %q?\n%s", code, tc.code, tc.says, out)
			}
		})
	}
}

// Every command has a short line that fits beside its name, and refuses what it does not
// know.
func TestEveryCommandIsDescribed(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || c.Args == nil && c.Name() != "hubsync" {
			t.Errorf("%s: short %q, checks its arguments: %v", c.CommandPath(), c.Short, c.Args != nil)
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRoot(os.Getenv))
}

func TestPageFits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("wörd ", 60)
	p := &page{}
	p.line("%s", long)
	p.findings([]ops.Finding{{Severity: ops.Wrong, Where: "portal main", Problem: long, Fix: long}})
	p.table([]string{"A", "=B", "C"}, [][]string{{long, strings.Repeat("i", 36), long}, {"x", "y", "z\nz"}})
	for line := range strings.Lines(p.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > pageWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(p.String(), strings.Repeat("i", 36)) || !strings.Contains(p.String(), "…") || !strings.Contains(p.String(), "z z") {
		t.Errorf("the id was cut, or the texts were not:\n%s", p.String())
	}
	// One word wider than the page is not lost.
	p = &page{}
	if p.line("%s", strings.Repeat("x", 150)); strings.Count(p.String(), "x") != 150 {
		t.Error("a wide word was changed")
	}
}

func TestEvidenceFilesAreSealedAndNotOverwritten(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ledger.csv")
	cmd := &cobra.Command{}
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := writeSealed(cmd, name, []byte("a,b\r\n")); err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(name + ".sha256")
	if err != nil || string(sum) != out.String() || !strings.HasSuffix(string(sum), "  ledger.csv\n") || len(strings.Fields(string(sum))[0]) != 64 {
		t.Errorf("%q %v", sum, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := writeSealed(cmd, name, []byte("other")); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("%v", err)
	}
}
