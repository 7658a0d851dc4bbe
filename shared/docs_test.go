package shared_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`")
	link     = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
)

// documents returns the paths of all pages, and what they say.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("git", "-C", "..", "ls-files", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for path := range strings.FieldsSeq(string(out)) {
		content, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		pages[path] = string(content)
	}
	return pages
}

// A page that names a test as its proof must not outlive the test.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("git", "-C", "..", "grep", "-hoE", "--untracked", `^func Test[A-Z][A-Za-z0-9]+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		exists[strings.TrimSpace(strings.TrimPrefix(line, "func "))] = true
	}
	named := 0
	for path, content := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(content, -1) {
			named++
			if !exists[m[1]] {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d tests are named in all pages: is the search right?", named)
	}
}

func TestDocsLinkToFilesThatExist(t *testing.T) {
	t.Parallel()
	for path, content := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	}
}
