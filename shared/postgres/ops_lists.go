package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DriftRow is a difference that a repair did not mend.
type DriftRow struct {
	ContactKey  string    `json:"contactKey"`
	Brand       string    `json:"brand"`
	Product     string    `json:"product"`
	Difference  string    `json:"difference"`
	FirstSeenAt time.Time `json:"firstSeenAt"`
	LastSeenAt  time.Time `json:"lastSeenAt"`
}

const selectDrift = `
SELECT contact_key, brand_id, product_id, difference, first_seen_at, last_seen_at
FROM drift_listings
WHERE resolved_at IS NULL AND ($1 = '' OR brand_id = $1)
ORDER BY last_seen_at DESC, contact_key, brand_id, product_id
LIMIT $2`

// Drift lists the differences that wait for a person.
func (db *DB) Drift(ctx context.Context, brandID string, limit int) ([]DriftRow, error) {
	return list(ctx, db, "list differences", pgx.RowToStructByPos[DriftRow], selectDrift, brandID, limit)
}

// RunRow is one run of the sweep or the check.
type RunRow struct {
	ID         string     `json:"id"`
	Kind       string     `json:"kind"`
	StartedAt  time.Time  `json:"startedAt"`
	FinishedAt *time.Time `json:"finishedAt"`
	Checked    int        `json:"checked"`
	Scheduled  int        `json:"scheduled"`
	Problem    string     `json:"problem,omitzero"`
	HeldAt     *time.Time `json:"heldAt"` // it would have repaired too much, and asks
}

const selectHeldRuns = `
SELECT id::text, kind, started_at, finished_at, checked, scheduled, coalesce(problem, ''), held_at
FROM reconcile_runs
WHERE held_at IS NOT NULL AND approved_at IS NULL
ORDER BY held_at`

// HeldRuns lists the runs that wait for an approval; until then nothing is repaired.
func (db *DB) HeldRuns(ctx context.Context) ([]RunRow, error) {
	return list(ctx, db, "list held runs", pgx.RowToStructByPos[RunRow], selectHeldRuns)
}

// ConflictRow is something about a contact that only a person can decide.
type ConflictRow struct {
	ContactKey  string    `json:"contactKey"`
	Kind        string    `json:"kind"`
	Detail      string    `json:"detail"`
	SeenCount   int       `json:"seenCount"`
	FirstSeenAt time.Time `json:"firstSeenAt"`
	LastSeenAt  time.Time `json:"lastSeenAt"`
}

const selectConflicts = `
SELECT contact_key, kind, detail, seen_count, first_seen_at, last_seen_at
FROM contact_conflicts
WHERE resolved_at IS NULL AND ($1 = '' OR kind = $1)
ORDER BY last_seen_at DESC, contact_key, kind, detail
LIMIT $2`

// Conflicts lists what about contacts waits for a person.
func (db *DB) Conflicts(ctx context.Context, kind string, limit int) ([]ConflictRow, error) {
	return list(ctx, db, "list conflicts", pgx.RowToStructByPos[ConflictRow], selectConflicts, kind, limit)
}

const resolveConflicts = `
UPDATE contact_conflicts SET resolved_at = hubsync.now()
WHERE contact_key = $1 AND kind = $2 AND resolved_at IS NULL`

// ResolveConflicts takes a contact's conflicts of a kind off the list; they come back
// when they are seen again. It returns how many.
func (db *DB) ResolveConflicts(ctx context.Context, contactKey, kind string) (int, error) {
	tag, err := db.pool.Exec(ctx, resolveConflicts, contactKey, kind)
	if err != nil {
		return 0, fmt.Errorf("resolve conflicts %s: %w", kind, err)
	}
	return int(tag.RowsAffected()), nil
}

const setLimits = `
UPDATE hubspot_portals p
SET burst_limit = CASE WHEN $2::integer > 0 THEN $2::integer ELSE p.burst_limit END,
    daily_limit = CASE WHEN $3::integer > 0 THEN $3::integer ELSE p.daily_limit END, updated_at = hubsync.now()
FROM hubspot_portals old
WHERE p.id = $1 AND old.id = p.id
  AND CASE WHEN $3::integer > 0 THEN $3::integer ELSE p.daily_limit END >= CASE WHEN $2::integer > 0 THEN $2::integer ELSE p.burst_limit END
RETURNING old.burst_limit, old.daily_limit, p.burst_limit, p.daily_limit`

// LimitsChange is a portal's call limits before and after.
type LimitsChange struct {
	BurstBefore, DailyBefore, BurstAfter, DailyAfter int
}

// SetLimits changes a portal's call limits; 0 leaves one as it is. The day's never
// becomes less than the burst's; false: that, or there is no such portal.
func (db *DB) SetLimits(ctx context.Context, portalID string, burst, daily int) (c LimitsChange, ok bool, err error) {
	err = db.pool.QueryRow(ctx, setLimits, portalID, burst, daily).Scan(&c.BurstBefore, &c.DailyBefore, &c.BurstAfter, &c.DailyAfter)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("set limits of portal %s: %w", portalID, err)
	}
	return c, true, nil
}
