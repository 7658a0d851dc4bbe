package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const beginAction = `INSERT INTO operator_actions (id, actor, verb, args) VALUES ($1, $2, $3, $4)`

// BeginAction writes down that an operator is about to change something.
func (db *DB) BeginAction(ctx context.Context, id uuid.UUID, actor, verb, args string) error {
	if _, err := db.pool.Exec(ctx, beginAction, id.String(), actor, verb, args); err != nil {
		return fmt.Errorf("write %s into the audit: %w", verb, err)
	}
	return nil
}

const endAction = `
UPDATE operator_actions SET finished_at = hubsync.clock(), result = nullif($2, '')::jsonb, problem = nullif($3, '')
WHERE id = $1`

// EndAction writes down what came of it; result is JSON, or empty.
func (db *DB) EndAction(ctx context.Context, id uuid.UUID, result, problem string) error {
	if _, err := db.pool.Exec(ctx, endAction, id.String(), result, problem); err != nil {
		return fmt.Errorf("finish action %s in the audit: %w", id, err)
	}
	return nil
}

// Action is something that an operator changed, or tried to.
type Action struct {
	ID         string     `json:"id"`
	Actor      string     `json:"actor"`
	Verb       string     `json:"verb"`
	Args       string     `json:"args"`
	StartedAt  time.Time  `json:"startedAt"`
	FinishedAt *time.Time `json:"finishedAt"` // null: it runs, or its process was lost
	Problem    string     `json:"problem,omitzero"`
}

const selectActions = `
SELECT id::text, actor, verb, args::text, started_at, finished_at, coalesce(problem, '')
FROM operator_actions ORDER BY started_at DESC LIMIT $1`

// Actions lists what operators did, the newest first.
func (db *DB) Actions(ctx context.Context, limit int) ([]Action, error) {
	return list(ctx, db, "read the audit", pgx.RowToStructByPos[Action], selectActions, limit)
}
