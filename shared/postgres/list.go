package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// list runs a query and returns all its rows; what names the query in an error. A query
// that fails at once fails when its rows are collected.
func list[T any](ctx context.Context, db *DB, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.pool.Query(ctx, sql, args...)
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}
