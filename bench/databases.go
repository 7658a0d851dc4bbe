package main

import (
	"context"
	"fmt"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/local/pgserver"
	"hubsync/shared/postgres"
	"hubsync/shared/routing"
)

// settings are the same for everybody. Nothing is synced to disk: what is compared is
// the work that a design makes, not the disk of this machine.
var settings = map[string]string{
	"synchronous_commit": "on",
	"shared_buffers":     "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "maintenance_work_mem": "256MB",
	"work_mem": "16MB", "random_page_cost": "1.1", "jit": "off", "autovacuum_naptime": "5s",
}

// databases is a private server; each contender gets a database of its own.
type databases struct {
	server *pgserver.Server
	n      int
}

func startDatabases(ctx context.Context) (*databases, error) {
	server, err := pgserver.Start(ctx, pgserver.Options{Settings: settings, Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	return &databases{server: server}, nil
}

func (d *databases) stop() error { return d.server.Stop() }

// database is one contender's.
type database struct {
	name, url string
	owner     *databases
}

// empty makes a database without a schema.
func (d *databases) empty(ctx context.Context) (*database, error) {
	d.n++
	db := &database{name: fmt.Sprintf("bench_%d", d.n), owner: d}
	db.url = d.server.DSN(db.name)
	return db, d.administer(ctx, "CREATE DATABASE "+db.name)
}

// hubsync makes a database with our schema and routes.
func (d *databases) hubsync(ctx context.Context, routes *routing.File) (*database, error) {
	db, err := d.empty(ctx)
	if err != nil {
		return nil, err
	}
	if _, _, err := postgres.Migrate(ctx, db.url); err != nil {
		return nil, err
	}
	pool, err := db.pool(ctx, 1, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	_, err = postgres.New(pool).ApplyRoutes(ctx, routes)
	return db, err
}

func (d *databases) administer(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, d.server.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("administer: %w", err)
	}
	_, err = conn.Exec(ctx, sql)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}

// drop gives the space back.
func (db *database) drop(ctx context.Context) error {
	return db.owner.administer(ctx, "DROP DATABASE "+db.name+" WITH (FORCE)")
}

// pool opens connections in a mode: exec is what a transaction pooler allows, the
// default prepares statements.
func (db *database) pool(ctx context.Context, conns int, mode pgx.QueryExecMode) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(db.url)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	cfg.MaxConns = int32(conns)
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	return pool, nil
}

// exec runs statements one after the other on one connection of its own.
func (db *database) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // what it did is done
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%.60s: %w", sql, err)
		}
	}
	return nil
}

// socketDir is where pgbench finds the server.
func (db *database) socketDir() (string, error) {
	u, err := url.Parse(db.url)
	if err != nil {
		return "", fmt.Errorf("database URL: %w", err)
	}
	return u.Query().Get("host"), nil
}
