package postgres

import (
	"context"
	"fmt"
)

const moveSettled = `SELECT looked_at, moved FROM hubsync.move_settled_v1($1)`

// MoveSettled looks at the next requests, limit at most, and moves those that were settled
// long ago to history, with their events and receipts. Less looked at than limit: the walk
// reached its end, or another run is at it.
func (db *DB) MoveSettled(ctx context.Context, limit int) (lookedAt, moved int, err error) {
	if err := db.pool.QueryRow(ctx, moveSettled, int32(limit)).Scan(&lookedAt, &moved); err != nil {
		return 0, 0, fmt.Errorf("move settled requests to history: %w", intakeError(err))
	}
	return lookedAt, moved, nil
}
