package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// QStashBreaker is the name of the breaker that a refused QStash token opens.
const QStashBreaker = "qstash"

// PortalBreaker is the name of the breaker that an outage of a portal's HubSpot opens:
// while it is open nothing is published for it and nothing claimed.
func PortalBreaker(portalID string) string { return "hubspot:" + portalID }

// The time doubles from one opening to the next, whichever process opened it: functions
// come and go. One that is open is left alone, so that two relays that are refused at
// the same moment count once.
const openBreaker = `
INSERT INTO service_breakers AS b (service, open_until, reason, updated_at)
VALUES ($1, hubsync.now() + $2::interval, $4, hubsync.now())
ON CONFLICT (service) DO UPDATE
SET open_until = hubsync.now() + least(greatest(2 * (b.open_until - b.updated_at), $2::interval), $3::interval), room = 1,
    reason = excluded.reason, updated_at = excluded.updated_at
WHERE b.open_until <= hubsync.now()`

// OpenBreaker keeps everybody from a service, for the time first, then longer at every
// opening without a success between, at most for the time most.
func (db *DB) OpenBreaker(ctx context.Context, service string, first, most time.Duration, reason string) error {
	if _, err := db.pool.Exec(ctx, openBreaker, service, first, most, reason); err != nil {
		return fmt.Errorf("open breaker of %s: %w", service, err)
	}
	return nil
}

// Breaker is the state of a service's breaker.
type Breaker struct {
	Open   bool
	Exists bool // it was opened and no success has closed it: the next call is a probe
}

const selectBreaker = `SELECT open_until > hubsync.now() FROM service_breakers WHERE service = $1`

// Breaker reads a service's breaker.
func (db *DB) Breaker(ctx context.Context, service string) (Breaker, error) {
	b := Breaker{Exists: true}
	err := db.pool.QueryRow(ctx, selectBreaker, service).Scan(&b.Open)
	if errors.Is(err, pgx.ErrNoRows) {
		return Breaker{}, nil
	}
	if err != nil {
		return Breaker{}, fmt.Errorf("read breaker of %s: %w", service, err)
	}
	return b, nil
}

const closeBreaker = `DELETE FROM service_breakers WHERE service = $1`

// CloseBreaker says that a service works again.
func (db *DB) CloseBreaker(ctx context.Context, service string) error {
	if _, err := db.pool.Exec(ctx, closeBreaker, service); err != nil {
		return fmt.Errorf("close breaker of %s: %w", service, err)
	}
	return nil
}

// Recovered events on their way after which an outage is history.
const breakerRoomMost = 16384

const widenBreaker = `
WITH closed AS (
  DELETE FROM service_breakers WHERE service = $1 AND open_until <= hubsync.now() AND 2 * room >= $2::bigint
)
UPDATE service_breakers SET room = 2 * room WHERE service = $1 AND open_until <= hubsync.now() AND 2 * room < $2::bigint`

// WidenBreaker says that a call of a service that was away got through: twice as much
// may be on its way, and in the end the breaker is closed.
func (db *DB) WidenBreaker(ctx context.Context, service string) error {
	if _, err := db.pool.Exec(ctx, widenBreaker, service, breakerRoomMost); err != nil {
		return fmt.Errorf("widen breaker of %s: %w", service, err)
	}
	return nil
}
