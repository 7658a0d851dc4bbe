package postgres

import (
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// DB runs hubsync's queries: one file per stage, in call order.
type DB struct {
	pool    *pgxpool.Pool
	lastUse atomic.Int64 // wall clock, nanoseconds
}

// New returns a DB over a pool that Open made, or that a test made.
func New(pool *pgxpool.Pool) *DB { return &DB{pool: pool} }
