package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

// Checkable is a subscription whose look at HubSpot is due, as it was before the look.
type Checkable struct {
	ContactKey, BrandID, ProductID string
	LatestSequence, Fence          int64
	LatestEvent                    uuid.UUID
	DesiredState                   outbox.DesiredState
	Payload, Consent               []byte
	ConsentAt                      time.Time
	EmailKey                       string
	UncertainUntil                 *time.Time // until then a call of ours may land
	OwnOptOut                      outbox.Stamp
	OwnWide                        []time.Time // of ours, that cover it
	ReadAt                         time.Time   // by the database's clock, before the look
}

// isLifted holds for a wide opt-out (as s) that a later consent lifted for some
// subscription: whether HubSpot still shows it is not ours to say any more.
const isLifted = `((s.product_id = '*' OR s.brand_id = '*') AND EXISTS (
    SELECT 1 FROM contact_subscription_state o
    WHERE o.contact_key = s.contact_key AND o.desired_state = 'subscribed' AND o.portal_id = s.portal_id
      AND (s.brand_id = '*' OR o.brand_id = s.brand_id)))`

// claimChecks takes what is due for a look: uncertain subscriptions (verify), or certain
// ones (audit). Taking one moves its next look, so that two checks share nothing. A
// subscription in flight, or whose newest event is not settled, is left for later: its
// commit will say when to look.
var claimChecks = `
WITH due AS MATERIALIZED (
  SELECT s.contact_key, s.brand_id, s.product_id
  FROM contact_subscription_state s
  WHERE s.portal_id = $1 AND s.check_at <= hubsync.now() AND (s.uncertain_until IS NOT NULL) = $2
  ORDER BY s.check_at
  LIMIT $3
  FOR UPDATE SKIP LOCKED
),
taken AS (
  UPDATE contact_subscription_state s
  SET check_at = hubsync.now() + CASE WHEN ` + isLifted + ` THEN interval '1 day' ELSE $4::interval END
  FROM due d
  WHERE (s.contact_key, s.brand_id, s.product_id) = (d.contact_key, d.brand_id, d.product_id)
  RETURNING s.*
)
SELECT s.contact_key, s.brand_id, s.product_id, s.latest_sequence, s.fence, s.latest_event_id::text, s.desired_state,
       e.payload::text, r.consent::text, r.consent_at, coalesce(c.email_key, ''), s.uncertain_until, s.own_opt_out_stamp,
       s.own_opt_out_event_id::text, s.own_opt_out_fence, hubsync.clock(), ` + ownWide("s", "s.portal_id") + `
FROM taken s
JOIN hubspot_outbox_events e ON e.id = s.latest_event_id
JOIN subscription_requests r ON r.id = e.request_id
JOIN contacts c ON c.contact_key = s.contact_key
WHERE e.status IN ('synced', 'superseded', 'dead') AND c.erasing_at IS NULL AND NOT ` + isLifted + `
  AND (s.lease_expires_at IS NULL OR s.lease_expires_at <= hubsync.clock())
  AND NOT (e.status = 'dead' AND s.uncertain_until IS NULL)
ORDER BY s.contact_key, s.brand_id, s.product_id`

// ClaimChecks takes up to limit subscriptions of a portal that are due for a look.
func (db *DB) ClaimChecks(ctx context.Context, portalID string, uncertain bool, limit int, again time.Duration) ([]Checkable, error) {
	return list(ctx, db, fmt.Sprintf("claim checks of portal %s", portalID), func(row pgx.CollectableRow) (c Checkable, err error) {
		var event, payload, consent string
		var stamp stampColumns
		if err = row.Scan(&c.ContactKey, &c.BrandID, &c.ProductID, &c.LatestSequence, &c.Fence, &event, &c.DesiredState, &payload,
			&consent, &c.ConsentAt, &c.EmailKey, &c.UncertainUntil, &stamp.at, &stamp.event, &stamp.fence, &c.ReadAt, &c.OwnWide); err != nil {
			return c, err
		}
		c.Payload, c.Consent = []byte(payload), []byte(consent)
		if c.OwnOptOut, err = stamp.value(); err != nil {
			return c, err
		}
		c.LatestEvent, err = uuid.Parse(event)
		return c, err
	}, claimChecks, portalID, uncertain, limit, again)
}

// noteEqual writes that HubSpot shows what was decided, only if nothing was accepted or
// claimed since the look. Uncertainty is cleared by compare-and-set, and only by a look
// that began after L: before that a late call may still land, and the next look comes
// after as long again as it has been uncertain.
const noteEqual = `
UPDATE contact_subscription_state s
SET hubspot_status = x.shown, hubspot_seen_at = x.read_at, repaired_difference = NULL,
    uncertain_until = CASE WHEN s.uncertain_until = x.uncertain_until AND x.read_at > x.uncertain_until THEN NULL
                           ELSE s.uncertain_until END,
    check_at = CASE WHEN s.uncertain_until IS NULL OR (s.uncertain_until = x.uncertain_until AND x.read_at > x.uncertain_until)
                    THEN hubsync.now() + $9::interval
                    ELSE least(s.uncertain_until, hubsync.now() + greatest(interval '30 seconds',
                               hubsync.now() - (s.uncertain_until - $10::interval))) + interval '1 second' END
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::timestamptz[])
  AS x (contact_key, brand_id, product_id, latest_sequence, fence, shown, uncertain_until, read_at)
WHERE (s.contact_key, s.brand_id, s.product_id) = (x.contact_key, x.brand_id, x.product_id)
  AND s.latest_sequence = x.latest_sequence AND s.fence = x.fence`

const resolveListed = `
UPDATE drift_listings d SET resolved_at = hubsync.now()
FROM unnest($1::text[], $2::text[], $3::text[]) AS x (contact_key, brand_id, product_id)
WHERE (d.contact_key, d.brand_id, d.product_id) = (x.contact_key, x.brand_id, x.product_id) AND d.resolved_at IS NULL`

// NoteEqual records looks that found HubSpot as decided; shown is what it shows.
func (db *DB) NoteEqual(ctx context.Context, checks []Checkable, shown []string, audit, late time.Duration) error {
	if len(checks) == 0 {
		return nil
	}
	var contacts, brands, products []string
	var sequences, fences []int64
	var uncertain []*time.Time
	var reads []time.Time
	for _, c := range checks {
		contacts, brands, products = append(contacts, c.ContactKey), append(brands, c.BrandID), append(products, c.ProductID)
		sequences, fences = append(sequences, c.LatestSequence), append(fences, c.Fence)
		uncertain, reads = append(uncertain, c.UncertainUntil), append(reads, c.ReadAt)
	}
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(lockSettledSubscriptions, contacts, brands, products)
		batch.Queue(noteEqual, contacts, brands, products, sequences, fences, shown, uncertain, reads, audit, late)
		batch.Queue(resolveListed, contacts, brands, products)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("note %d checks: %w", len(checks), err)
	}
	return nil
}

// correct repeats the request that decided last, its consent included, as a new event
// with a new sequence: only if nothing was accepted or claimed since the look, nothing
// is in flight, and this difference was not repaired before.
const correct = `
WITH guarded AS (
  UPDATE contact_subscription_state s
  SET latest_sequence = s.latest_sequence + 1, latest_event_id = $6, repaired_difference = $7,
      updated_at = hubsync.clock()
  WHERE (s.contact_key, s.brand_id, s.product_id) = ($1, $2, $3)
    AND s.latest_sequence = $4 AND s.fence = $5
    AND (s.lease_expires_at IS NULL OR s.lease_expires_at <= hubsync.clock())
    AND s.repaired_difference IS DISTINCT FROM $7
  RETURNING s.latest_sequence, s.desired_state
),
corrections AS (
  INSERT INTO hubspot_outbox_events
    (id, request_id, event_type, payload, next_attempt_at, created_at, portal_id, brand_id, lane, sequence, revision,
     mapping_version, traceparent)
  SELECT $6, e.request_id, e.event_type, e.payload, hubsync.clock(), hubsync.clock(), e.portal_id, e.brand_id,
         CASE WHEN g.desired_state = 'unsubscribed' THEN 0 ELSE 2 END, g.latest_sequence,
         (SELECT max(o.revision) + 1 FROM hubspot_outbox_events o WHERE o.request_id = e.request_id AND o.event_type = e.event_type),
         e.mapping_version, e.traceparent
  FROM guarded g, hubspot_outbox_events e
  WHERE e.id = $8
  RETURNING request_id
)
UPDATE subscription_requests r SET sync_status = 'pending', status_reason = 'corrected'
FROM corrections c WHERE r.id = c.request_id`

const listDrift = `
INSERT INTO drift_listings AS d (contact_key, brand_id, product_id, difference)
SELECT s.contact_key, s.brand_id, s.product_id, s.repaired_difference
FROM contact_subscription_state s
WHERE (s.contact_key, s.brand_id, s.product_id) = ($1, $2, $3)
  AND s.latest_sequence = $4 AND s.fence = $5 AND s.repaired_difference = $6
ON CONFLICT (contact_key, brand_id, product_id, difference)
DO UPDATE SET last_seen_at = hubsync.now(), resolved_at = NULL`

// Repair is what became of a difference.
type Repair string

// The repairs.
const (
	RepairScheduled Repair = "scheduled" // a correction is on its way
	RepairListed    Repair = "listed"    // it was repaired before and is the same again: for a person
	RepairStale     Repair = "stale"     // something happened since the look
)

// Correct schedules a correction for a difference, or lists it where a repair did not
// help.
func (db *DB) Correct(ctx context.Context, c Checkable, difference string, event uuid.UUID) (Repair, error) {
	result := RepairStale
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		result = RepairStale
		tag, err := tx.Exec(ctx, correct, c.ContactKey, c.BrandID, c.ProductID, c.LatestSequence, c.Fence, event.String(),
			difference, c.LatestEvent.String())
		if err != nil {
			return err
		}
		if tag.RowsAffected() > 0 {
			result = RepairScheduled
			return nil
		}
		if tag, err = tx.Exec(ctx, listDrift, c.ContactKey, c.BrandID, c.ProductID, c.LatestSequence, c.Fence, difference); err != nil {
			return err
		}
		if tag.RowsAffected() > 0 {
			result = RepairListed
		}
		return nil
	})
	if err != nil {
		return RepairStale, fmt.Errorf("correct a subscription of brand %s: %w", c.BrandID, err)
	}
	return result, nil
}

// acceptInbound makes an opt-out that a person made inside HubSpot the newest decision,
// only if nothing was accepted or claimed since the look. It is written, even though
// HubSpot seems to have it.
const acceptInbound = `
WITH guarded AS (
  UPDATE contact_subscription_state s
  SET latest_sequence = s.latest_sequence + 1, latest_event_id = $6::uuid, desired_state = 'unsubscribed',
      opted_out_at = greatest(s.opted_out_at, $7), hubspot_status = 'UNSUBSCRIBED', hubspot_seen_at = hubsync.now(),
      updated_at = hubsync.clock()
  WHERE (s.contact_key, s.brand_id, s.product_id) = ($1, $2, $3)
    AND s.latest_sequence = $4 AND s.fence = $5
    AND (s.lease_expires_at IS NULL OR s.lease_expires_at <= hubsync.clock())
  RETURNING s.latest_sequence
),
requests AS (
  INSERT INTO subscription_requests
    (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash, created_at,
     sequence, source, occurred_at, consent_at, consent)
  SELECT $8::uuid, $2, $1, $3, 'unsubscribed', e.mapping_version, 'hubspot:' || ($8::uuid)::text, 'hubspot:' || ($8::uuid)::text, hubsync.clock(),
         g.latest_sequence, 'hubspot', $7, least($7, hubsync.clock()), '{}'
  FROM guarded g, hubspot_outbox_events e WHERE e.id = $9::uuid
)
INSERT INTO hubspot_outbox_events
  (id, request_id, event_type, payload, next_attempt_at, created_at, portal_id, brand_id, lane, sequence, mapping_version)
SELECT $6::uuid, $8::uuid, e.event_type, e.payload, hubsync.clock(), hubsync.clock(), e.portal_id, e.brand_id, 0, g.latest_sequence, e.mapping_version
FROM guarded g, hubspot_outbox_events e WHERE e.id = $9::uuid`

// AcceptInbound takes an opt-out that HubSpot shows; false: something happened since the
// look, and the next one decides.
func (db *DB) AcceptInbound(ctx context.Context, c Checkable, at time.Time, request, event uuid.UUID) (bool, error) {
	var done bool
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, acceptInbound, c.ContactKey, c.BrandID, c.ProductID, c.LatestSequence, c.Fence, event.String(), at,
			request.String(), c.LatestEvent.String())
		done = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("accept an opt-out found in HubSpot, brand %s: %w", c.BrandID, err)
	}
	return done, nil
}

const holdRun = `UPDATE reconcile_runs SET held_at = hubsync.clock() WHERE id = $1`

// HoldRun stops all repairs until somebody approved this run.
func (db *DB) HoldRun(ctx context.Context, id uuid.UUID) error {
	if _, err := db.pool.Exec(ctx, holdRun, id.String()); err != nil {
		return fmt.Errorf("hold check run %s: %w", id, err)
	}
	return nil
}

const selectHeld = `SELECT id::text FROM reconcile_runs WHERE held_at IS NOT NULL AND approved_at IS NULL ORDER BY held_at LIMIT 1`

// HeldRun returns the run that waits for an approval, or uuid.Nil.
func (db *DB) HeldRun(ctx context.Context) (uuid.UUID, error) {
	var text string
	err := db.pool.QueryRow(ctx, selectHeld).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, nil
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("read held check run: %w", err)
	}
	return uuid.Parse(text)
}

const approveRun = `UPDATE reconcile_runs SET approved_at = hubsync.now() WHERE id = $1 AND held_at IS NOT NULL AND approved_at IS NULL`

// ApproveRun lets repairs go on; false: there is no such run that waits.
func (db *DB) ApproveRun(ctx context.Context, id uuid.UUID) (bool, error) {
	tag, err := db.pool.Exec(ctx, approveRun, id.String())
	if err != nil {
		return false, fmt.Errorf("approve check run %s: %w", id, err)
	}
	return tag.RowsAffected() > 0, nil
}
