package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

// Pause stops what it names: an empty portal or brand, or EveryLane, means every one.
// Nothing is lost by it, and it takes effect at the next claim, also for messages that
// are published already. Opt-outs go on unless OptOuts is set.
type Pause struct {
	PortalID string
	BrandID  string
	Lane     outbox.Lane
	OptOuts  bool
	Until    time.Time
	Reason   string
}

// EveryLane is a pause's lane that means all of them.
const EveryLane outbox.Lane = -1

const setPause = `
INSERT INTO pauses AS p (portal_id, brand_id, lane, opt_outs, paused_until, reason)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (portal_id, brand_id, lane) DO UPDATE
SET opt_outs = excluded.opt_outs, paused_until = excluded.paused_until, reason = excluded.reason, created_at = hubsync.now()`

// SetPause pauses, or changes a pause of the same scope.
func (db *DB) SetPause(ctx context.Context, p Pause) error {
	if _, err := db.pool.Exec(ctx, setPause, p.PortalID, p.BrandID, int16(p.Lane), p.OptOuts, p.Until, p.Reason); err != nil {
		return fmt.Errorf("pause portal %q, brand %q: %w", p.PortalID, p.BrandID, err)
	}
	return nil
}

const clearPause = `DELETE FROM pauses WHERE portal_id = $1 AND brand_id = $2 AND lane = $3`

// ClearPause ends the pause of exactly this scope; false: there was none.
func (db *DB) ClearPause(ctx context.Context, portalID, brandID string, lane outbox.Lane) (bool, error) {
	tag, err := db.pool.Exec(ctx, clearPause, portalID, brandID, int16(lane))
	if err != nil {
		return false, fmt.Errorf("resume portal %q, brand %q: %w", portalID, brandID, err)
	}
	return tag.RowsAffected() > 0, nil
}

const selectPauses = `
SELECT portal_id, brand_id, lane, opt_outs, paused_until, reason FROM pauses
WHERE paused_until > hubsync.now()
ORDER BY portal_id, brand_id, lane`

// Pauses lists what is paused now.
func (db *DB) Pauses(ctx context.Context) ([]Pause, error) {
	return list(ctx, db, "read pauses", func(row pgx.CollectableRow) (p Pause, err error) {
		err = row.Scan(&p.PortalID, &p.BrandID, &p.Lane, &p.OptOuts, &p.Until, &p.Reason)
		return p, err
	}, selectPauses)
}
