package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"hubsync/migrations"
)

// Migrate brings the database of dsn to the newest schema and returns the versions
// before and after. It connects to the database itself, never through a proxy: its
// session lock, by which two migrations at once take turns, would pin a session.
func Migrate(ctx context.Context, dsn string) (from, to int64, err error) {
	return migrate(ctx, dsn, migrations.Files)
}

func migrate(ctx context.Context, dsn string, files fs.FS) (from, to int64, err error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return 0, 0, errors.New("migrate: the database URL cannot be read")
	}
	db := stdlib.OpenDB(*cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := newProvider(db, files)
	if err != nil {
		return 0, 0, err
	}
	if from, err = provider.GetDBVersion(ctx); err != nil {
		return 0, 0, fmt.Errorf("migrate: read the schema's version: %w", err)
	}
	if _, err = provider.Up(ctx); err != nil {
		return from, from, fmt.Errorf("migrate from version %d: %w", from, err)
	}
	if to, err = provider.GetDBVersion(ctx); err != nil {
		return from, from, fmt.Errorf("migrate: read the schema's version: %w", err)
	}
	return from, to, nil
}

func newProvider(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, fmt.Errorf("migrate: make the session lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("migrate: read the migrations: %w", err)
	}
	return provider, nil
}
