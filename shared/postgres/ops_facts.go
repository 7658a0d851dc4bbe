package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"hubsync/migrations"
)

// Facts are what a database says of itself.
type Facts struct {
	Server string    // its version
	Schema int64     // the newest migration that was applied
	Newest int64     // the newest that this program knows
	Clock  time.Time // the database's
}

const selectFacts = `
SELECT current_setting('server_version'), (SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied), hubsync.clock()`

// Facts reads the schema's version and the server's.
func (db *DB) Facts(ctx context.Context) (f Facts, err error) {
	if f.Newest, err = newestMigration(); err != nil {
		return f, err
	}
	if err = db.pool.QueryRow(ctx, selectFacts).Scan(&f.Server, &f.Schema, &f.Clock); err != nil {
		return f, fmt.Errorf("read the schema's version: %w", err)
	}
	return f, nil
}

func newestMigration() (newest int64, err error) {
	entries, err := fs.ReadDir(migrations.Files, ".")
	if err != nil {
		return 0, fmt.Errorf("list migrations: %w", err)
	}
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
	return newest, nil
}

const selectLastRun = `SELECT started_at FROM reconcile_runs WHERE kind = $1 ORDER BY started_at DESC LIMIT 1`

// LastRun returns when a sweep or a check began last; nil: never.
func (db *DB) LastRun(ctx context.Context, kind string) (*time.Time, error) {
	var at time.Time
	err := db.pool.QueryRow(ctx, selectLastRun, kind).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read last %s run: %w", kind, err)
	}
	return &at, nil
}

// Opt-outs only: the other lanes may wait for the budget. What is paused is not meant to
// be published.
const selectOldestPublishable = `
SELECT min(e.next_attempt_at)
FROM hubspot_portals p
CROSS JOIN brands b
CROSS JOIN LATERAL (
  SELECT e.next_attempt_at
  FROM hubspot_outbox_events e
  WHERE e.portal_id = p.id AND e.lane = 0 AND e.brand_id = b.id AND e.status IN ('pending', 'publishing', 'publish_retry', 'process_retry')
    AND e.next_attempt_at <= hubsync.now() AND NOT ` + isPaused + `
  ORDER BY e.next_attempt_at
  LIMIT 1) e
WHERE NOT (p.pause_opt_outs AND p.paused_until > hubsync.now())
  AND NOT EXISTS (SELECT 1 FROM service_breakers k WHERE k.service = 'hubspot:' || p.id)`

// OldestPublishable returns since when the opt-out that waits longest has been due; nil:
// none is.
func (db *DB) OldestPublishable(ctx context.Context) (at *time.Time, err error) {
	if err = db.pool.QueryRow(ctx, selectOldestPublishable).Scan(&at); err != nil {
		return nil, fmt.Errorf("read the oldest opt-out that waits: %w", err)
	}
	return at, nil
}
