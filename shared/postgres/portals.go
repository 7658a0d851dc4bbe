package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Portal is one HubSpot account.
type Portal struct {
	ID           string
	HubID        int64
	APIVersion   string
	BurstLimit   int
	BurstWindow  time.Duration
	DailyLimit   int
	TimeZone     string
	Plan         string // as its routes file says
	PausedUntil  *time.Time
	PauseReason  string
	PauseOptOuts bool
	// Recovering: its HubSpot was away, and the breaker is not closed yet.
	Recovering bool
}

// Location is the account's zone; its daily limit resets at midnight there. A zone that
// this machine does not know counts as UTC: a reset at another hour is no outage.
func (p Portal) Location() *time.Location {
	zone, err := time.LoadLocation(p.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

const selectPortals = `
SELECT id, hub_id, api_version, burst_limit, burst_window_ms, daily_limit, time_zone, coalesce(capabilities ->> 'plan', ''),
       CASE WHEN paused_until > hubsync.now() AND isfinite(paused_until) THEN paused_until
            WHEN paused_until > hubsync.now() THEN hubsync.now() + interval '10 years' END,
       coalesce(pause_reason, ''), pause_opt_outs,
       EXISTS (SELECT 1 FROM service_breakers k WHERE k.service = 'hubspot:' || p.id)
FROM hubspot_portals p
ORDER BY id`

// Portals returns every portal; PausedUntil is nil for one that is not paused now.
func (db *DB) Portals(ctx context.Context) ([]Portal, error) {
	return list(ctx, db, "read portals", func(row pgx.CollectableRow) (Portal, error) {
		var p Portal
		var windowMs int64
		err := row.Scan(&p.ID, &p.HubID, &p.APIVersion, &p.BurstLimit, &windowMs, &p.DailyLimit, &p.TimeZone, &p.Plan,
			&p.PausedUntil, &p.PauseReason, &p.PauseOptOuts, &p.Recovering)
		p.BurstWindow = time.Duration(windowMs) * time.Millisecond
		return p, err
	}, selectPortals)
}

// An automatic pause never shortens one that is there: an operator's holds.
const pausePortal = `
UPDATE hubspot_portals
SET paused_until = greatest(paused_until, $2), pause_opt_outs = CASE
      WHEN paused_until > hubsync.now() THEN pause_opt_outs OR $4 ELSE $4 END,
    pause_reason = CASE WHEN paused_until >= $2 THEN pause_reason ELSE $3 END, updated_at = hubsync.now()
WHERE id = $1`

// PausePortal stops a portal until a time; with optOutsToo even opt-outs wait.
func (db *DB) PausePortal(ctx context.Context, id string, until time.Time, reason string, optOutsToo bool) error {
	tag, err := db.pool.Exec(ctx, pausePortal, id, until, reason, optOutsToo)
	if err != nil {
		return fmt.Errorf("pause portal %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("pause portal %s: there is no such portal", id)
	}
	return nil
}

const resumePortal = `
UPDATE hubspot_portals
SET paused_until = NULL, pause_reason = NULL, pause_opt_outs = false, updated_at = hubsync.now()
WHERE id = $1`

// ResumePortal ends a pause.
func (db *DB) ResumePortal(ctx context.Context, id string) error {
	tag, err := db.pool.Exec(ctx, resumePortal, id)
	if err != nil {
		return fmt.Errorf("resume portal %s: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("resume portal %s: there is no such portal", id)
	}
	return nil
}
