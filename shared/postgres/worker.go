package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

// Verdict is what a claim found out about an event.
type Verdict string

// The verdicts, in the order in which they are tested. A twin of work in flight
// must not be judged by its sequence: it would mark that work as superseded.
const (
	VerdictBusy      Verdict = "busy"       // this event is being processed under a live lease
	VerdictSettled   Verdict = "settled"    // terminal: nothing to do
	VerdictErased    Verdict = "erased"     // the contact is being erased: the event is cancelled now
	VerdictOvertaken Verdict = "superseded" // a newer decision exists: superseded now, no call
	VerdictApplied   Verdict = "applied"    // HubSpot has it already: synced now
	VerdictBusyOther Verdict = "busy_other" // another event of the subscription is in flight: due again in a second
	VerdictPaused    Verdict = "paused"     // its portal waits: due again when that ends
	VerdictExhausted Verdict = "exhausted"  // its workers were lost too often: dead now
	VerdictClaimed   Verdict = "claimed"    // ours, until the lease ends
)

const codeWorkerLost = "worker_lost"

// ClaimOptions are the times of a claim.
type ClaimOptions struct {
	Lease       time.Duration // of subscription and event
	Late        time.Duration // L: how long a lost worker's call may still land
	CheckDelay  time.Duration // from an uncertainty to its first check
	MaxAttempts int
}

// Claim is one event of a message as the claim left it. Unless Verdict is VerdictClaimed,
// only EventID, Verdict, LeaseLeft and the keys are meaningful.
type Claim struct {
	EventID        uuid.UUID
	Verdict        Verdict
	Fence          int64
	Takeover       bool
	Attempts       int // failed settles and takeovers so far
	Waits          int // failures so far that were not its fault
	Sequence       int64
	Lane           outbox.Lane
	PortalID       string
	ContactKey     string
	BrandID        string
	ProductID      string
	DesiredState   outbox.DesiredState
	Payload        []byte // routing.Snapshot as JSON
	ConsentAt      time.Time
	Consent        []byte // {legalBasis, explanation, source, wordingVersion} as JSON
	EmailKey       string
	PreviousEmails []string
	OwnOptOut      outbox.Stamp
	OwnWide        []time.Time // HubSpot's times of wide opt-outs of ours that cover it
	RecordID       string      // HubSpot's record of the contact in this portal, if one was confirmed
	Traceparent    string
	LeaseLeft      time.Duration // of the lease that makes it busy
}

// Lock order, here as everywhere: subscriptions by key, then events by id.
const lockClaimedSubscriptions = `
SELECT s.contact_key
FROM contact_subscription_state s
WHERE (s.contact_key, s.brand_id, s.product_id) IN (
  SELECT r.contact_key, r.brand_id, r.product_id
  FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id
  WHERE e.id = ANY($1::uuid[]))
ORDER BY s.contact_key, s.brand_id, s.product_id
FOR UPDATE`

const lockEvents = `
SELECT e.id FROM hubspot_outbox_events e
WHERE e.id = ANY($1::uuid[])
ORDER BY e.id
FOR UPDATE`

// claimEvents judges every event under the locks and writes what follows from the
// verdict. A takeover is a claim on a lease that its holder never released, whatever
// event held it: that holder's calls may still land, so uncertainty is raised in this
// very transaction, and the event travels alone from now on. A superseded event leaves
// the lease as it is, because only its holder can say that nothing is in flight.
var claimEvents = `
WITH moment AS MATERIALIZED (SELECT hubsync.clock() AS at),
judged AS MATERIALIZED (
  SELECT e.id, e.request_id, e.status, e.sequence, e.process_attempts,
         r.contact_key, r.brand_id, r.product_id, s.latest_event_id,
         s.lease_expires_at IS NOT NULL AS takeover,
         (s.lease_expires_at IS NOT NULL AND s.lease_event_id = e.id)::integer AS own_takeover,
         greatest(s.lease_expires_at, e.lease_expires_at) - m.at AS lease_left,
         CASE
           WHEN e.status = 'processing' AND e.lease_expires_at > m.at THEN 'busy'
           WHEN e.completed_at IS NOT NULL THEN 'settled'
           WHEN c.erasing_at IS NOT NULL THEN 'erased'
           WHEN e.sequence < s.latest_sequence THEN 'superseded'
           WHEN e.sequence <= s.applied_sequence THEN 'applied'
           WHEN s.lease_expires_at > m.at THEN 'busy_other'
           WHEN p.paused_until > m.at AND (e.lane <> 0 OR p.pause_opt_outs) THEN 'paused'
           WHEN k.open_until > m.at OR ` + isPaused + ` THEN 'paused'
           WHEN s.lease_event_id = e.id AND s.lease_expires_at IS NOT NULL
                AND e.process_attempts + 1 >= $5::integer THEN 'exhausted'
           ELSE 'claimed'
         END AS verdict
  FROM moment m, hubspot_outbox_events e
  JOIN subscription_requests r ON r.id = e.request_id
  JOIN contact_subscription_state s
    ON (s.contact_key, s.brand_id, s.product_id) = (r.contact_key, r.brand_id, r.product_id)
  JOIN contacts c ON c.contact_key = r.contact_key
  JOIN hubspot_portals p ON p.id = e.portal_id
  LEFT JOIN service_breakers k ON k.service = 'hubspot:' || e.portal_id
  WHERE e.id = ANY($1::uuid[])
),
subscriptions AS (
  UPDATE contact_subscription_state s
  SET fence = s.fence + (j.verdict = 'claimed')::integer,
      lease_expires_at = CASE WHEN j.verdict = 'claimed' THEN m.at + $2::interval ELSE s.lease_expires_at END,
      lease_event_id = CASE WHEN j.verdict = 'claimed' THEN j.id ELSE s.lease_event_id END,
      uncertain_until = CASE WHEN j.takeover THEN greatest(s.uncertain_until, m.at + $3::interval)
                             ELSE s.uncertain_until END,
      check_at = CASE WHEN j.takeover THEN least(s.check_at, m.at + $4::interval) ELSE s.check_at END
  FROM judged j, moment m
  WHERE j.verdict IN ('claimed', 'exhausted')
    AND (s.contact_key, s.brand_id, s.product_id) = (j.contact_key, j.brand_id, j.product_id)
  RETURNING s.contact_key, s.brand_id, s.product_id, s.fence, s.own_opt_out_stamp, s.own_opt_out_event_id,
            s.own_opt_out_fence
),
events AS (
  UPDATE hubspot_outbox_events e
  SET status = CASE j.verdict WHEN 'claimed' THEN 'processing' WHEN 'superseded' THEN 'superseded'
        WHEN 'applied' THEN 'synced' WHEN 'erased' THEN 'cancelled' WHEN 'exhausted' THEN 'dead'
        ELSE 'process_retry' END,
      completed_at = CASE WHEN j.verdict IN ('superseded', 'applied', 'erased', 'exhausted') THEN m.at END,
      superseded_by = CASE WHEN j.verdict = 'superseded' THEN j.latest_event_id END,
      lease_expires_at = CASE WHEN j.verdict = 'claimed' THEN m.at + $2::interval END,
      next_attempt_at = CASE j.verdict WHEN 'claimed' THEN m.at + $2::interval
        WHEN 'busy_other' THEN m.at + interval '1 second' ELSE m.at END,
      fence = CASE WHEN j.verdict = 'claimed' THEN s.fence ELSE e.fence END,
      -- A delivery proves that it was published; its mark may come late, or never.
      published_at = coalesce(e.published_at, m.at),
      claim_token = NULL,
      generation = e.generation + (j.verdict IN ('busy_other', 'paused'))::integer,
      process_attempts = e.process_attempts
        + CASE WHEN j.verdict IN ('claimed', 'exhausted') THEN j.own_takeover ELSE 0 END,
      travels_alone = e.travels_alone OR (j.verdict = 'claimed' AND j.takeover),
      last_error_code = CASE WHEN j.verdict = 'exhausted' THEN $6::text ELSE e.last_error_code END,
      last_error_summary = CASE WHEN j.verdict = 'exhausted'
        THEN 'the worker was lost at every attempt' ELSE e.last_error_summary END
  FROM moment m, judged j
  LEFT JOIN subscriptions s
    ON (s.contact_key, s.brand_id, s.product_id) = (j.contact_key, j.brand_id, j.product_id)
  WHERE e.id = j.id AND j.verdict NOT IN ('busy', 'settled')
  RETURNING e.id, e.process_attempts
),
requests AS (
  UPDATE subscription_requests r
  SET sync_status = CASE j.verdict WHEN 'superseded' THEN 'superseded' WHEN 'applied' THEN 'synced'
        WHEN 'erased' THEN 'cancelled' ELSE 'dead' END,
      status_reason = CASE j.verdict WHEN 'superseded' THEN 'newer_decision' WHEN 'erased' THEN 'erased'
        WHEN 'exhausted' THEN $6::text END
  FROM judged j
  WHERE r.id = j.request_id AND j.verdict IN ('superseded', 'applied', 'erased', 'exhausted')
    AND NOT (j.verdict = 'superseded' AND EXISTS (
      SELECT 1 FROM hubspot_outbox_events n WHERE n.id = j.latest_event_id AND n.request_id = j.request_id))
)
SELECT j.id::text, j.verdict, coalesce(s.fence, 0), j.takeover, coalesce(u.process_attempts, j.process_attempts),
       e.process_waits, coalesce(j.sequence, 0), e.lane, e.portal_id, j.contact_key, j.brand_id, j.product_id,
       r.desired_state, e.payload::text, r.consent_at, r.consent::text, coalesce(c.email_key, ''),
       c.previous_email_keys, s.own_opt_out_stamp, s.own_opt_out_event_id::text, s.own_opt_out_fence, coalesce(e.traceparent, ''),
       coalesce(greatest((extract(epoch FROM j.lease_left) * 1000)::bigint, 0), 0),
       coalesce((SELECT a.hubspot_id FROM contact_portal_records a
                 WHERE a.contact_key = j.contact_key AND a.portal_id = e.portal_id), ''),
       ` + ownWide("j", "e.portal_id") + `
FROM judged j
JOIN hubspot_outbox_events e ON e.id = j.id
JOIN subscription_requests r ON r.id = j.request_id
JOIN contacts c ON c.contact_key = j.contact_key
LEFT JOIN events u ON u.id = j.id
LEFT JOIN subscriptions s
  ON (s.contact_key, s.brand_id, s.product_id) = (j.contact_key, j.brand_id, j.product_id)
  AND j.verdict = 'claimed'
ORDER BY j.id`

// ownWide selects the times of our own wide opt-outs that cover a subscription: of its
// brand, or of its portal.
func ownWide(subscription, portal string) string {
	return `ARRAY(SELECT w.own_opt_out_stamp FROM contact_subscription_state w
             WHERE w.contact_key = ` + subscription + `.contact_key AND w.own_opt_out_stamp IS NOT NULL
               AND (w.brand_id, w.product_id) IN ((` + subscription + `.brand_id, '*'), ('*', ` + portal + `)))`
}

// ClaimEvents claims the events of one message in one transaction. An id that names
// no event is missing from the result.
func (db *DB) ClaimEvents(ctx context.Context, ids []uuid.UUID, o ClaimOptions) ([]Claim, error) {
	texts := uuidTexts(ids)
	var claims []Claim
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		claims = claims[:0]
		// One round trip: the locks must be statements of their own, because a
		// statement sees what was committed before it began, not while it waited.
		batch := &pgx.Batch{}
		batch.Queue(lockClaimedSubscriptions, texts)
		batch.Queue(lockEvents, texts)
		batch.Queue(claimEvents, texts, o.Lease, o.Late, o.CheckDelay, o.MaxAttempts, codeWorkerLost).
			Query(func(rows pgx.Rows) (err error) {
				claims, err = pgx.CollectRows(rows, scanClaim)
				return err
			})
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("claim %d events: %w", len(ids), err)
	}
	return claims, nil
}

func scanClaim(row pgx.CollectableRow) (Claim, error) {
	var c Claim
	var id, payload, consent string
	var stamp stampColumns
	var leaseLeftMs int64
	err := row.Scan(&id, &c.Verdict, &c.Fence, &c.Takeover, &c.Attempts, &c.Waits, &c.Sequence,
		&c.Lane, &c.PortalID, &c.ContactKey, &c.BrandID, &c.ProductID, &c.DesiredState, &payload,
		&c.ConsentAt, &consent, &c.EmailKey, &c.PreviousEmails, &stamp.at, &stamp.event,
		&stamp.fence, &c.Traceparent, &leaseLeftMs, &c.RecordID, &c.OwnWide)
	if err != nil {
		return Claim{}, err
	}
	c.Payload, c.Consent = []byte(payload), []byte(consent)
	c.LeaseLeft = time.Duration(leaseLeftMs) * time.Millisecond
	if c.EventID, err = uuid.Parse(id); err != nil {
		return Claim{}, err
	}
	c.OwnOptOut, err = stamp.value()
	return c, err
}

// stampColumns are the three columns of a stamp; without an event there is none, without a
// time it is of an attempt that changed nothing.
type stampColumns struct {
	at    *time.Time
	event *string
	fence *int64
}

func (s stampColumns) value() (stamp outbox.Stamp, err error) {
	if s.event == nil {
		return stamp, nil
	}
	if s.at != nil {
		stamp.At = *s.at
	}
	if s.fence != nil {
		stamp.Fence = *s.fence
	}
	stamp.Event, err = uuid.Parse(*s.event)
	return stamp, err
}

// uuidTexts writes ids as text: exec mode sends uuid arrays that way.
func uuidTexts(ids []uuid.UUID) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return texts
}
