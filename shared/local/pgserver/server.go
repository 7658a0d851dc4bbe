package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options say what kind of server to start.
type Options struct {
	// DataDir keeps the data between runs; empty: a temporary folder that is removed
	// when the server stops, also when this process is killed.
	DataDir string
	// Durable syncs to disk. Without it a crash of the machine loses data, which a
	// test or a demo does not mind.
	Durable bool
	// Settings are further server settings, name → value.
	Settings map[string]string
	// Progress gets a line when PostgreSQL has to be fetched first; may be nil.
	Progress io.Writer
}

// Server is a running PostgreSQL.
type Server struct {
	socketDir string
	dir       string
	keep      bool
	cmd       *exec.Cmd
	lifeline  io.Closer // closing it ends the server
	log       string
	done      chan error
}

// supervise starts the server and waits for its standard input to end, which happens
// when our process ends in whatever way; then it stops the server and removes the
// folder. A parent-death signal could not remove the folder and does not survive a
// change of user.
const supervise = `
trap '' INT TERM HUP
"$1" -D "$2" -k "$3" -c listen_addresses= >"$4" 2>&1 </dev/null &
server=$!
( cat >/dev/null; kill -INT $server 2>/dev/null ) <&3 &
watcher=$!
exec 3<&-
wait $server
status=$?
kill $watcher 2>/dev/null
[ -z "$5" ] || rm -rf "$5"
exit $status`

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
	maxSocketDir = 80 // a Unix socket's whole path takes 107 bytes at most
)

// Start makes a cluster where there is none, starts the server and waits until it
// answers.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := find(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	owner, err := Unprivileged()
	if err != nil {
		return nil, err
	}
	s, err := prepare(o, owner)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(s.dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err != nil {
		if err := initdb(ctx, bin, data, owner); err != nil {
			return nil, errors.Join(err, s.remove())
		}
	}
	if err := configure(data, o); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.launch(bin, data, owner); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.waitUntilReady(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// prepare makes the folder: a new one in a temporary folder that the server's user
// can reach, or the given one.
func prepare(o Options, owner *syscall.Credential) (*Server, error) {
	s := &Server{dir: o.DataDir, keep: o.DataDir != "", done: make(chan error, 1)}
	var err error
	if s.keep {
		if s.dir, err = filepath.Abs(o.DataDir); err != nil {
			return nil, fmt.Errorf("data folder: %w", err)
		}
		if err = os.MkdirAll(s.dir, 0o755); err != nil {
			return nil, fmt.Errorf("data folder: %w", err)
		}
	} else if s.dir, err = makeTemp(owner); err != nil {
		return nil, err
	}
	s.socketDir, s.log = s.dir, filepath.Join(s.dir, "postgres.log")
	if len(s.socketDir) > maxSocketDir {
		return nil, fmt.Errorf("folder name is too long for a Unix socket (%d bytes, at most %d): choose a shorter one, or set TMPDIR=/tmp", len(s.socketDir), maxSocketDir)
	}
	if owner != nil {
		if err = os.Chown(s.dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, fmt.Errorf("give the folder to the server's user: %w", err)
		}
	}
	return s, nil
}

func makeTemp(owner *syscall.Credential) (string, error) {
	var problems []error
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if owner != nil && !traversable(parent) {
			continue
		}
		dir, err := os.MkdirTemp(parent, "hubsync-pg-")
		if err != nil {
			problems = append(problems, err)
			continue
		}
		return dir, nil
	}
	return "", fmt.Errorf("no temporary folder that PostgreSQL's user can reach: %w", errors.Join(problems...))
}

// traversable: every folder on the way can be entered by anyone.
func traversable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

func initdb(ctx context.Context, bin, data string, owner *syscall.Credential) error {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-A", "trust", "-N", "--locale=C", "-E", "UTF8", "-U", "postgres", "-D", data)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	cmd.Dir = filepath.Dir(data)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// configure writes our settings behind the cluster's own; the last one of a name holds.
func configure(data string, o Options) error {
	settings := map[string]string{"max_connections": "200", "shared_buffers": "128MB", "timezone": "UTC", "log_timezone": "UTC"}
	if !o.Durable {
		settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"] = "off", "off", "off"
	}
	for name, value := range o.Settings {
		settings[name] = value
	}
	var b strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	auto := filepath.Join(data, "postgresql.auto.conf")
	if err := os.WriteFile(auto, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

func (s *Server) launch(bin, data string, owner *syscall.Credential) error {
	lifelineRead, lifelineWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	remove := ""
	if !s.keep {
		remove = s.dir
	}
	// Its life is bound to the lifeline, not to a context: it must stop PostgreSQL in order.
	s.cmd = exec.CommandContext(context.Background(), "/bin/sh", "-c", supervise, "sh", filepath.Join(bin, "postgres"), data, s.socketDir, s.log, remove)
	s.cmd.ExtraFiles = []*os.File{lifelineRead}
	s.cmd.Dir = "/"
	// A group of its own: Ctrl-C in the terminal must reach us and not the server.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Setpgid: true}
	err = s.cmd.Start()
	_ = lifelineRead.Close() // the child has its own
	if err != nil {
		_ = lifelineWrite.Close() // nothing holds the other end
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.lifeline = lifelineWrite
	go func() { s.done <- s.cmd.Wait() }()
	return nil
}

func (s *Server) waitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.DSN("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case err := <-s.done:
			s.done <- err
			return fmt.Errorf("PostgreSQL ended at once: %s", s.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not answer: %w: %s", err, s.lastWords())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Server) lastWords() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return "it left no log"
	}
	if len(text) > 600 {
		text = text[len(text)-600:]
	}
	return strings.TrimSpace(string(text))
}

// DSN returns the URL of a database of this server.
func (s *Server) DSN(database string) string {
	return "postgres://postgres@/" + database + "?host=" + s.socketDir
}

// Stop ends the server, removes what it made, and waits for both.
func (s *Server) Stop() error {
	_ = s.lifeline.Close() // twice is once
	select {
	case err := <-s.done:
		s.done <- err // a server that was killed has stopped too
	case <-time.After(stopTimeout):
		return fmt.Errorf("PostgreSQL (process %d) did not stop within %s", s.cmd.Process.Pid, stopTimeout)
	}
	return s.remove()
}

func (s *Server) remove() error {
	if s.keep {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Unprivileged returns the user to run as when we are root, which PostgreSQL (and
// PgBouncer) refuse to be: postgres where it exists, else nobody. Nil: run as ourselves.
func Unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return nil, fmt.Errorf("running as root, and no other user can be found: %w", err)
	}
	for _, name := range []string{"postgres", "nobody"} {
		if c := credentialOf(string(passwd), name); c != nil {
			return c, nil
		}
	}
	return nil, errors.New("running as root, and there is neither a user postgres nor nobody to run PostgreSQL as")
}

func credentialOf(passwd, name string) *syscall.Credential {
	for line := range strings.Lines(passwd) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 4 || fields[0] != name {
			continue
		}
		uid, err1 := strconv.ParseUint(fields[2], 10, 32)
		gid, err2 := strconv.ParseUint(fields[3], 10, 32)
		if err1 != nil || err2 != nil {
			return nil
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return nil
}
