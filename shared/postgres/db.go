package postgres

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// DB runs hubsync's queries: one file per stage, in call order.
type DB struct {
	pool    *pgxpool.Pool
	lastUse atomic.Int64 // wall clock, nanoseconds

	mu    sync.Mutex
	bound time.Duration // idle for longer: thawed
	thaws []func()
}

// New returns a DB over a pool that Open made, or that a test made.
func New(pool *pgxpool.Pool) *DB { return &DB{pool: pool, bound: idleBound} }

// SetIdleBound says after how long without a use connections count as lost; default a
// minute.
func (db *DB) SetIdleBound(d time.Duration) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.bound = d
}

// OnThaw has something else called when the pool is thawed: the idle connections of an
// HTTP client are as dead as the database's.
func (db *DB) OnThaw(f func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.thaws = append(db.thaws, f)
}

// Close closes the pool's connections, at a function's end.
func (db *DB) Close() { db.pool.Close() }
