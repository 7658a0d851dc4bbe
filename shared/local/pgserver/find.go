// Package pgserver finds a PostgreSQL on this machine and runs a server of its own:
// in a temporary folder that goes away with it, on a Unix socket, never as root.
package pgserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// ErrNotFound says what to install.
var ErrNotFound = errors.New("no PostgreSQL found: install it (Debian: apt-get install postgresql; macOS: brew install postgresql), " +
	"or name its programs' folder in PG_BIN, or give a running server in DATABASE_URL")

// Find returns the folder with initdb and postgres: PG_BIN, the PATH, Debian's
// folders (the newest version first), Homebrew's.
func Find() (string, error) {
	if dir := os.Getenv("PG_BIN"); dir != "" {
		if !complete(dir) {
			return "", errors.New("PG_BIN names a folder without initdb and postgres")
		}
		return dir, nil
	}
	for _, dir := range candidates() {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", ErrNotFound
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

func candidates() []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// PATH may hold a link to a single program: its neighbours are at the target.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern) // a constant pattern has no error
		slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// version reads the first number in a path: /usr/lib/postgresql/15/bin → 15.
func version(path string) int {
	start := -1
	for i, r := range path {
		digit := r >= '0' && r <= '9'
		if digit && start < 0 {
			start = i
		}
		if !digit && start >= 0 {
			n, _ := strconv.Atoi(path[start:i]) // digits only
			return n
		}
	}
	return 0
}
