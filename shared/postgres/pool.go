// Package postgres holds every query of hubsync, one file per stage, in call order.
// Queries are constants above their only caller; what must be atomic stands in one
// transaction; a guarded write that touches no row is an answer, not an error.
//
// Connections run in exec mode (RDS Proxy: nothing may be prepared on a session),
// with uuids as text and jsonb as text or json.RawMessage.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connection settings of a function that is frozen between invocations. A connection
// that was dropped while frozen blocks a pool of one for the whole deadline, and the
// next query too, because pgx holds the slot for up to 15 s while it closes. So does
// every query that ran into its deadline at a database that hung: with two slots a
// function that works again was blocked for that long. Four are opened only where they
// are needed.
const (
	defaultMaxConns = 4
	pingTimeout     = 500 * time.Millisecond
	idleBound       = 60 * time.Second
)

// Config says how to open a pool.
type Config struct {
	URL string
	// Password returns the password of a new connection, for IAM tokens and passwords that
	// are secrets of their own; nil: the URL's.
	Password func(ctx context.Context, host string, port uint16, user string) (string, error)
	// Current returns the URL whose user and password a new connection takes, for a
	// secret that is rotated; nil: URL's.
	Current func(ctx context.Context) (string, error)
	// Refused is told that the server refused what Password or Current gave; true: they
	// may give something else now. Nil: they are not tried before they are used.
	Refused func() bool
	// RequireTLS refuses a URL that does not say how far another machine is to be trusted.
	RequireTLS bool
	MaxConns   int32 // default 4; a local world takes more
}

// Open returns a pool in exec mode. A URL with options or run-time parameters is
// refused: they would pin every session of RDS Proxy. Set them on the role.
func Open(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	if err := checkURL(cfg.URL); err != nil {
		return nil, err
	}
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, errors.New("database URL cannot be read: it should look like postgres://user@host:5432/name")
	}
	if cfg.RequireTLS {
		if err := checkTLS(pc.ConnConfig, cfg.URL); err != nil {
			return nil, err
		}
	}
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pc.MaxConns = defaultMaxConns
	if cfg.MaxConns > 0 {
		pc.MaxConns = cfg.MaxConns
	}
	pc.PingTimeout = pingTimeout
	if cfg.Password != nil || cfg.Current != nil {
		pc.BeforeConnect = cfg.freshCredentials
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	return pool, nil
}

// connectionParameters are those that say how to connect; every other one would be
// sent to the session.
var connectionParameters = []string{
	"sslmode", "sslrootcert", "sslcert", "sslkey", "sslsni", "host", "port", "user", "password", "dbname", "connect_timeout",
	"application_name", "default_query_exec_mode", "pool_max_conns", "target_session_attrs",
}

func checkURL(text string) error {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return errors.New("database URL does not begin with postgres://")
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("database URL cannot be read: it should look like postgres://user@host:5432/name")
	}
	for name := range u.Query() {
		if !slices.Contains(connectionParameters, name) {
			return fmt.Errorf("database URL: parameter %q would be set on every session and pin it in RDS Proxy; set it on the role instead", name)
		}
	}
	return nil
}

// Thaw drops the connections of a pool that was not used for a minute by the wall
// clock: a frozen function may hold dead sockets, and finding out costs a deadline.
func (db *DB) Thaw(now time.Time) {
	last := db.lastUse.Swap(now.UnixNano())
	db.mu.Lock()
	defer db.mu.Unlock()
	if last == 0 || now.UnixNano()-last <= int64(db.bound) {
		return
	}
	db.pool.Reset()
	for _, f := range db.thaws {
		f()
	}
}

// Thawed wraps a handler so that the pool is thawed before each request.
func (db *DB) Thawed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		db.Thaw(time.Now())
		h.ServeHTTP(w, r)
	})
}

// InTx runs work in one READ COMMITTED transaction, and once more after a deadlock or
// a serialisation failure: work must be able to run twice.
func InTx(ctx context.Context, pool *pgxpool.Pool, work func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, pool, work)
	if isRetryable(err) && ctx.Err() == nil {
		err = pgx.BeginFunc(ctx, pool, work)
	}
	return err
}

// isRetryable: deadlock_detected, serialization_failure.
func isRetryable(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == "40P01" || pe.Code == "40001")
}
