package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLinkStaysInside(t *testing.T) {
	t.Parallel()
	for list, ok := range map[string]bool{
		`[{"source":"native/lib/a.so.1","target":"native/lib/a.so"}]`:           true,
		`[{"source":"../../etc/passwd","target":"native/lib/a.so"}]`:            false,
		`[{"source":"native/lib/a.so.1","target":"../outside"}]`:                false,
		`[{"source":"native/lib/a.so.1","target":"/tmp/hubsync-link-outside"}]`: false,
		`nonsense`: false,
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "native", "lib"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"native/pg-symlinks.json": list, "native/lib/a.so.1": "x"} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := link(root)
		if (err == nil) != ok {
			t.Errorf("%s: %v", list, err)
		}
		if content, err := os.ReadFile(filepath.Join(root, "native/lib/a.so")); ok && (err != nil || string(content) != "x") {
			t.Errorf("the link leads nowhere: %v", err)
		}
	}
}

// Without npm and without a network the one sentence remains.
func TestWithoutNPMItSaysWhatToInstall(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("PATH", t.TempDir())
	if _, err := fetch(t.Context(), nil); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("error %v", err)
	}
}
