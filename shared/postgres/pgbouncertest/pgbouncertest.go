// Package pgbouncertest puts PgBouncer in transaction mode before a PostgreSQL: what
// RDS Proxy may do to a session between two transactions, PgBouncer does. Where the
// program is missing the test fails and says what to install.
package pgbouncertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/local/child"
	"hubsync/shared/local/pgserver"
)

// Options say what differs from a plain pooler.
type Options struct {
	PoolSize int // server connections per database, default 20
	// CertFile and KeyFile, where they are set, make clients use TLS.
	CertFile, KeyFile string
}

// Server is a running PgBouncer.
type Server struct {
	Addr    string // host:port
	dir     string
	process *child.Process
}

const config = `[databases]
* = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
max_client_conn = 1000
default_pool_size = %d
server_idle_timeout = 5
`

// Start starts a pooler before the server of a database URL; Stop ends it.
func Start(ctx context.Context, databaseURL string, o Options) (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	owner, err := pgserver.Unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hubsync-pgbouncer-")
	if err != nil {
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	s := &Server{dir: dir}
	port, err := child.FreePort(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	text, err := configure(databaseURL, port, o)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("configure PgBouncer: %w", err), s.Stop())
	}
	if owner != nil {
		for _, path := range []string{dir, file} {
			if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
				return nil, errors.Join(fmt.Errorf("give PgBouncer its folder: %w", err), s.Stop())
			}
		}
	}
	if s.process, err = child.Start(owner, dir, program, file); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.Addr = "127.0.0.1:" + strconv.Itoa(port)
	if err := s.process.Wait(ctx, s.Addr); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func configure(databaseURL string, port int, o Options) (string, error) {
	target, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return "", errors.New("PgBouncer: the database URL cannot be read")
	}
	server := fmt.Sprintf("host=%s port=%d user=%s", target.Host, target.Port, target.User)
	if target.Password != "" {
		server += " password='" + strings.ReplaceAll(target.Password, "'", "''") + "'"
	}
	if o.PoolSize == 0 {
		o.PoolSize = 20
	}
	text := fmt.Sprintf(config, server, port, o.PoolSize)
	if o.CertFile != "" {
		text += "client_tls_sslmode = require\nclient_tls_cert_file = " + o.CertFile + "\nclient_tls_key_file = " + o.KeyFile + "\n"
	}
	return text, nil
}

// find looks where Debian puts it, also when the path lacks /usr/sbin.
func find() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("PgBouncer is not installed: apt-get install pgbouncer")
}

// URL is the pooler's URL of a database, without TLS.
func (s *Server) URL(database string) string {
	return "postgres://postgres@" + s.Addr + "/" + database + "?sslmode=disable"
}

// Reconnect replaces the server connections of a database by new ones, each when its
// transaction is over.
func (s *Server) Reconnect(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, s.URL("pgbouncer")+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		return fmt.Errorf("PgBouncer's console: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the command's error is what counts
	if _, err := conn.Exec(ctx, "RECONNECT "+database); err != nil {
		return fmt.Errorf("PgBouncer: RECONNECT: %w", err)
	}
	return nil
}

// Stop ends the pooler and removes what it made.
func (s *Server) Stop() error {
	var err error
	if s.process != nil {
		err = s.process.Stop()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
