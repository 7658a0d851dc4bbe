package shared_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// pinning is what makes RDS Proxy keep a server connection for one client until it
// disconnects, after AWS's "Avoiding pinning" for PostgreSQL, and what a pooler in
// transaction mode breaks. SQL here has its keywords in upper case.
var pinning = map[string]*regexp.Regexp{
	"SET":                  regexp.MustCompile(`(^|;)\s*(SET|RESET)\s`),
	"set_config":           regexp.MustCompile(`(?i)\bset_config\s*\(`),
	"a prepared statement": regexp.MustCompile(`(^|;)\s*(PREPARE|EXECUTE|DEALLOCATE)\s`),
	"DISCARD":              regexp.MustCompile(`(^|;)\s*DISCARD\s`),
	"LISTEN":               regexp.MustCompile(`(^|;)\s*(LISTEN|UNLISTEN)\s`),
	"a sequence":           regexp.MustCompile(`(?i)\b(nextval|setval|currval|lastval)\s*\(`),
	"a session's lock":     regexp.MustCompile(`(?i)\bpg_(try_)?advisory_(unlock|lock)(_shared|_all)?\s*\(`),
	"a temporary table":    regexp.MustCompile(`(?i)\b(CREATE|INTO)\s+(LOCAL\s+)?TEMP(ORARY)?\s`),
	"a cursor":             regexp.MustCompile(`(^|;)\s*(DECLARE|FETCH|MOVE|CLOSE)\s`),
	"a library":            regexp.MustCompile(`(^|;)\s*LOAD\s`),
}

// pins says what in an SQL text pins; "" is nothing.
func pins(sql string) string {
	sql = strings.TrimSpace(comment.ReplaceAllString(sql, ""))
	if len(sql) > 16<<10 {
		return "its length"
	}
	for what, pattern := range pinning {
		if pattern.MatchString(sql) {
			return what
		}
	}
	return ""
}

var comment = regexp.MustCompile(`--[^\n]*`)

func TestPinsKnowsWhatPins(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"SET statement_timeout = '1s'", "SET LOCAL lock_timeout = '1s'", "BEGIN; SET x = 1", "SELECT set_config('a', 'b', true)", "PREPARE p AS SELECT 1",
		"LISTEN outbox", "SELECT nextval('s')", "SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock(1)", "CREATE TEMP TABLE x (a int)",
		"DECLARE c CURSOR FOR SELECT 1", "DISCARD ALL", "-- why\nSET x = 1", "SELECT '" + strings.Repeat("x", 17_000) + "'",
	} {
		if pins(bad) == "" {
			t.Errorf("%.60q is not seen", bad)
		}
	}
	for _, good := range []string{
		"UPDATE t\nSET a = 1", "SELECT pg_advisory_xact_lock(1)", "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 1", "SELECT offset_config(1)",
		"UPDATE t -- ; SET\nSET a = 2",
	} {
		if what := pins(good); what != "" {
			t.Errorf("%q: %s", good, what)
		}
	}
}

// TestNothingPinsASession reads every text in the code that the functions are made of.
func TestNothingPinsASession(t *testing.T) {
	t.Parallel()
	texts := 0
	for _, root := range []string{".", "../functions"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasSuffix(d.Name(), "test") || d.Name() == "local"):
				return fs.SkipDir // for this machine only
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Errorf("%s: %v", path, err)
				}
				texts++
				if what := pins(text); what != "" {
					t.Errorf("%s: %s pins a session of RDS Proxy: %.80q", path, what, text)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if texts < 500 {
		t.Errorf("only %d texts were read", texts)
	}
}
