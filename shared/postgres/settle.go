package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/outbox"
)

// Outcome is how a claimed event ended.
type Outcome string

// The outcomes. An event whose subscription has a newer decision by now is
// superseded instead of retried.
const (
	OutcomeSynced Outcome = "synced"  // every required part was confirmed
	OutcomeRetry  Outcome = "retry"   // due again after Delay
	OutcomeDead   Outcome = "dead"    // waiting does not mend it
	OutcomeOptOut Outcome = "inbound" // a subscribe gave way to an opt-out found in HubSpot
)

// Settlement is what a worker has to say about one claim of its own.
type Settlement struct {
	Claim   Claim
	Outcome Outcome
	// Counts: the event itself is to blame; waiting never turns anything dead.
	Counts  bool
	Delay   time.Duration // OutcomeRetry
	Code    string        // stable error code
	Summary string        // scrubbed
	// Unknown: a call of this claim may still land, or may have landed unconfirmed,
	// even if a second try succeeded.
	Unknown bool
	// Shown is what HubSpot was seen to show, empty if it was not seen.
	Shown string
	// OwnOptOut is the stamp of an opt-out of ours that HubSpot confirmed; zero: of none.
	// One without a time is an attempt that is known to have changed nothing.
	OwnOptOut outbox.Stamp
	// OutcomeOptOut: when the person opted out in HubSpot, and the ids of the
	// request and event that say so here.
	OptedOutAt                   *time.Time
	InboundRequest, InboundEvent uuid.UUID
}

// Receipt is one operation that HubSpot confirmed for an event.
type Receipt struct {
	ID            uuid.UUID
	EventID       uuid.UUID
	Operation     string
	DesiredHash   string
	Result        string
	CorrelationID string
	HubSpotAt     *time.Time
}

// SettleOptions are the times of a commit.
type SettleOptions struct {
	Late       time.Duration
	CheckDelay time.Duration
	Audit      time.Duration // a settled subscription is compared again within this time
}

// Settled is what became of one settlement.
type Settled struct {
	EventID uuid.UUID
	// Held is false when the claim was lost meanwhile: nothing of it was written but
	// the uncertainty, which anyone may raise.
	Held   bool
	Status outbox.Status
}

const lockSettledSubscriptions = `
SELECT s.contact_key
FROM contact_subscription_state s
WHERE (s.contact_key, s.brand_id, s.product_id) IN (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
ORDER BY s.contact_key, s.brand_id, s.product_id
FOR UPDATE`

// The events of the settlements and the newest event of each subscription, which
// may have to be made due.
const lockSettledEvents = `
SELECT e.id FROM hubspot_outbox_events e
WHERE e.id = ANY ($1::uuid[] || ARRAY(
  SELECT s.latest_event_id FROM contact_subscription_state s
  WHERE (s.contact_key, s.brand_id, s.product_id) IN (
    SELECT * FROM unnest($2::text[], $3::text[], $4::text[]))))
ORDER BY e.id
FOR UPDATE`

// settleEvents writes every settlement whose claim is still held: the subscription
// has its fence and the event is in processing under it. The guard is the seed's,
// applied_sequence < $new, with the fence beside it. A claim that was lost leaves
// only what needs no fence: that something may still land, and whose echo it is.
const settleEvents = `
WITH moment AS MATERIALIZED (SELECT hubsync.clock() AS at),
settlement AS (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::boolean[],
    $8::bigint[], $9::text[], $10::text[], $11::boolean[], $12::text[], $13::timestamptz[], $14::timestamptz[],
    $15::uuid[], $16::uuid[], $17::uuid[], $18::bigint[])
  AS x (event_id, contact_key, brand_id, product_id, fence, outcome, counts, delay_ms, code, summary, unknown,
        shown, own_stamp, opted_out_at, inbound_request, inbound_event,
        own_event, own_fence)
),
judged AS MATERIALIZED (
  SELECT x.*, e.request_id, e.sequence, s.latest_sequence, s.latest_event_id, r.desired_state,
         s.fence = x.fence AND e.status = 'processing' AND e.fence = x.fence AS held,
         CASE WHEN x.outcome IN ('retry', 'inbound') AND s.latest_sequence > e.sequence THEN 'superseded'
              ELSE x.outcome END AS ending,
         x.own_event IS NOT NULL
           AND coalesce(x.own_stamp, '-infinity') >= coalesce(s.own_opt_out_stamp, '-infinity') AS stamp_counts
  FROM settlement x
  JOIN contact_subscription_state s
    ON (s.contact_key, s.brand_id, s.product_id) = (x.contact_key, x.brand_id, x.product_id)
  JOIN hubspot_outbox_events e ON e.id = x.event_id
  JOIN subscription_requests r ON r.id = e.request_id
),
guarded AS (
  UPDATE contact_subscription_state s
  SET applied_sequence = j.sequence, applied_state = j.desired_state,
      lease_expires_at = NULL, lease_event_id = NULL,
      hubspot_status = coalesce(j.shown, s.hubspot_status),
      hubspot_seen_at = CASE WHEN j.shown IS NULL THEN s.hubspot_seen_at ELSE m.at END,
      own_opt_out_stamp = coalesce(j.own_stamp, s.own_opt_out_stamp),
      own_opt_out_event_id = CASE WHEN j.own_event IS NULL THEN s.own_opt_out_event_id ELSE j.own_event END,
      own_opt_out_fence = CASE WHEN j.own_event IS NULL THEN s.own_opt_out_fence ELSE j.own_fence END,
      uncertain_until = CASE WHEN j.unknown THEN greatest(s.uncertain_until, m.at + $19::interval)
                             ELSE s.uncertain_until END,
      -- A repair is looked at soon: if it mended the difference, the same one a day later
      -- is a new one, and is repaired too.
      check_at = CASE WHEN j.unknown OR s.uncertain_until IS NOT NULL OR s.repaired_difference IS NOT NULL
                      THEN m.at + $20::interval ELSE m.at + $21::interval END,
      updated_at = m.at
  FROM judged j, moment m
  WHERE j.held AND j.ending = 'synced'
    AND (s.contact_key, s.brand_id, s.product_id) = (j.contact_key, j.brand_id, j.product_id)
    AND s.fence = j.fence
    AND s.applied_sequence < j.sequence
),
released AS (
  UPDATE contact_subscription_state s
  SET lease_expires_at = NULL, lease_event_id = NULL,
      latest_sequence = s.latest_sequence + (j.ending = 'inbound')::integer,
      latest_event_id = CASE WHEN j.ending = 'inbound' THEN j.inbound_event ELSE s.latest_event_id END,
      desired_state = CASE WHEN j.ending = 'inbound' THEN 'unsubscribed' ELSE s.desired_state END,
      opted_out_at = CASE WHEN j.ending = 'inbound' THEN greatest(s.opted_out_at, j.opted_out_at)
                          ELSE s.opted_out_at END,
      hubspot_status = coalesce(j.shown, s.hubspot_status),
      hubspot_seen_at = CASE WHEN j.shown IS NULL THEN s.hubspot_seen_at ELSE m.at END,
      own_opt_out_stamp = coalesce(j.own_stamp, s.own_opt_out_stamp),
      own_opt_out_event_id = CASE WHEN j.own_event IS NULL THEN s.own_opt_out_event_id ELSE j.own_event END,
      own_opt_out_fence = CASE WHEN j.own_event IS NULL THEN s.own_opt_out_fence ELSE j.own_fence END,
      uncertain_until = CASE WHEN j.unknown THEN greatest(s.uncertain_until, m.at + $19::interval)
                             ELSE s.uncertain_until END,
      check_at = CASE WHEN j.unknown OR s.uncertain_until IS NOT NULL THEN m.at + $20::interval ELSE s.check_at END,
      updated_at = m.at
  FROM judged j, moment m
  WHERE j.held AND j.ending <> 'synced'
    AND (s.contact_key, s.brand_id, s.product_id) = (j.contact_key, j.brand_id, j.product_id)
    AND s.fence = j.fence
),
lost AS (
  UPDATE contact_subscription_state s
  SET uncertain_until = greatest(s.uncertain_until, m.at + $19::interval),
      check_at = least(s.check_at, m.at + $20::interval),
      own_opt_out_stamp = greatest(s.own_opt_out_stamp, j.own_stamp),
      own_opt_out_event_id = CASE WHEN j.stamp_counts THEN j.own_event ELSE s.own_opt_out_event_id END,
      own_opt_out_fence = CASE WHEN j.stamp_counts THEN j.own_fence ELSE s.own_opt_out_fence END
  FROM judged j, moment m
  WHERE NOT j.held
    AND (s.contact_key, s.brand_id, s.product_id) = (j.contact_key, j.brand_id, j.product_id)
),
events AS (
  UPDATE hubspot_outbox_events e
  SET status = CASE j.ending WHEN 'synced' THEN 'synced' WHEN 'dead' THEN 'dead' WHEN 'retry' THEN 'process_retry'
                    ELSE 'superseded' END,
      completed_at = CASE WHEN j.ending <> 'retry' THEN m.at END,
      superseded_by = CASE j.ending WHEN 'inbound' THEN j.inbound_event
                                    WHEN 'superseded' THEN j.latest_event_id END,
      next_attempt_at = m.at + j.delay_ms * interval '1 millisecond',
      generation = e.generation + (j.ending = 'retry')::integer,
      process_attempts = e.process_attempts + j.counts::integer,
      process_waits = e.process_waits + (j.ending = 'retry' AND NOT j.counts)::integer,
      lease_expires_at = NULL, claim_token = NULL,
      last_error_code = CASE WHEN j.code = '' THEN e.last_error_code ELSE j.code END,
      last_error_summary = CASE WHEN j.code = '' THEN e.last_error_summary ELSE j.summary END
  FROM judged j, moment m
  WHERE e.id = j.event_id AND j.held AND e.status = 'processing' AND e.fence = j.fence
),
requests AS (
  UPDATE subscription_requests r
  SET sync_status = CASE j.ending WHEN 'synced' THEN 'synced' WHEN 'dead' THEN 'dead' ELSE 'superseded' END,
      status_reason = CASE j.ending WHEN 'dead' THEN j.code WHEN 'inbound' THEN 'opted_out_in_hubspot'
                                    WHEN 'superseded' THEN 'newer_decision' END
  FROM judged j
  WHERE r.id = j.request_id AND j.held AND j.ending <> 'retry'
    AND NOT (j.ending = 'superseded' AND EXISTS (
      SELECT 1 FROM hubspot_outbox_events n WHERE n.id = j.latest_event_id AND n.request_id = j.request_id))
),
inbound_requests AS (
  INSERT INTO subscription_requests
    (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash,
     created_at, sequence, source, occurred_at, consent_at, consent)
  SELECT j.inbound_request, j.brand_id, j.contact_key, j.product_id, 'unsubscribed', r.mapping_version,
         'hubspot:' || j.event_id, 'hubspot:' || j.event_id, m.at, j.latest_sequence + 1, 'hubspot',
         j.opted_out_at, least(j.opted_out_at, m.at), '{}'
  FROM judged j JOIN subscription_requests r ON r.id = j.request_id, moment m
  WHERE j.held AND j.ending = 'inbound'
),
inbound_events AS (
  INSERT INTO hubspot_outbox_events
    (id, request_id, event_type, payload, next_attempt_at, created_at, portal_id, brand_id, lane, sequence,
     mapping_version, traceparent)
  SELECT j.inbound_event, j.inbound_request, e.event_type, e.payload, m.at, m.at, e.portal_id, e.brand_id, 0,
         j.latest_sequence + 1, e.mapping_version, e.traceparent
  FROM judged j JOIN hubspot_outbox_events e ON e.id = j.event_id, moment m
  WHERE j.held AND j.ending = 'inbound'
),
successors AS (
  -- A newer decision waited behind this one: it is due now.
  UPDATE hubspot_outbox_events e
  SET next_attempt_at = m.at
  FROM judged j, moment m
  WHERE j.held AND j.latest_sequence > j.sequence
    AND e.id = j.latest_event_id AND e.status = 'process_retry' AND e.next_attempt_at > m.at
)
SELECT j.event_id::text, j.held, CASE j.ending WHEN 'synced' THEN 'synced' WHEN 'dead' THEN 'dead'
         WHEN 'retry' THEN 'process_retry' ELSE 'superseded' END
FROM judged j`

// The ledger holds facts, so it needs no fence.
const insertReceipts = `
INSERT INTO hubspot_operation_receipts
  (id, event_id, operation, desired_hash, outcome, correlation_id, hubspot_at, confirmed_at)
SELECT x.id, x.event_id, x.operation, x.desired_hash, x.outcome, nullif(x.correlation_id, ''), x.hubspot_at, hubsync.now()
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
  AS x (id, event_id, operation, desired_hash, outcome, correlation_id, hubspot_at)`

// SettleEvents commits what a worker did with its claims, row by row in one
// transaction: a lost fence affects that row only. At most one settlement per
// subscription, which a claim guarantees.
func (db *DB) SettleEvents(ctx context.Context, settlements []Settlement, receipts []Receipt, o SettleOptions) ([]Settled, error) {
	if len(settlements) == 0 {
		return nil, nil
	}
	c := columnsOf(settlements)
	var settled []Settled
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(lockSettledSubscriptions, c.contacts, c.brands, c.products)
		batch.Queue(lockSettledEvents, c.events, c.contacts, c.brands, c.products)
		batch.Queue(settleEvents, c.events, c.contacts, c.brands, c.products, c.fences, c.outcomes, c.counts,
			c.delays, c.codes, c.summaries, c.unknown, c.shown, c.stamps, c.optedOut, c.inboundRequests,
			c.inboundEvents, c.ownEvents, c.ownFences, o.Late, o.CheckDelay, o.Audit).Query(func(rows pgx.Rows) (err error) {
			settled, err = pgx.CollectRows(rows, scanSettled)
			return err
		})
		if len(receipts) > 0 {
			queueReceipts(batch, receipts)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("settle %d events: %w", len(settlements), err)
	}
	return settled, nil
}

func scanSettled(row pgx.CollectableRow) (Settled, error) {
	var s Settled
	var id string
	if err := row.Scan(&id, &s.Held, &s.Status); err != nil {
		return Settled{}, err
	}
	var err error
	s.EventID, err = uuid.Parse(id)
	return s, err
}

// settlementColumns are the settlements as arrays, one per parameter.
type settlementColumns struct {
	events, contacts, brands, products, outcomes, codes, summaries []string
	inboundRequests, inboundEvents, ownEvents, shown               []*string
	fences, delays, ownFences                                      []int64
	counts, unknown                                                []bool
	stamps, optedOut                                               []*time.Time
}

func columnsOf(settlements []Settlement) settlementColumns {
	var c settlementColumns
	for _, s := range settlements {
		c.events = append(c.events, s.Claim.EventID.String())
		c.contacts = append(c.contacts, s.Claim.ContactKey)
		c.brands = append(c.brands, s.Claim.BrandID)
		c.products = append(c.products, s.Claim.ProductID)
		c.fences = append(c.fences, s.Claim.Fence)
		c.outcomes = append(c.outcomes, string(s.Outcome))
		c.counts = append(c.counts, s.Counts)
		c.delays = append(c.delays, s.Delay.Milliseconds())
		c.codes = append(c.codes, s.Code)
		c.summaries = append(c.summaries, s.Summary)
		c.unknown = append(c.unknown, s.Unknown)
		c.stamps = append(c.stamps, timeOrNull(s.OwnOptOut.At))
		c.ownEvents = append(c.ownEvents, idOrNull(s.OwnOptOut.Event))
		c.ownFences = append(c.ownFences, s.OwnOptOut.Fence)
		c.optedOut = append(c.optedOut, s.OptedOutAt)
		c.shown = append(c.shown, textOrNull(s.Shown))
		c.inboundRequests = append(c.inboundRequests, idOrNull(s.InboundRequest))
		c.inboundEvents = append(c.inboundEvents, idOrNull(s.InboundEvent))
	}
	return c
}

func queueReceipts(batch *pgx.Batch, receipts []Receipt) {
	var ids, events, operations, hashes, results, correlations []string
	var times []*time.Time
	for _, r := range receipts {
		ids = append(ids, r.ID.String())
		events = append(events, r.EventID.String())
		operations = append(operations, r.Operation)
		hashes = append(hashes, r.DesiredHash)
		results = append(results, r.Result)
		correlations = append(correlations, r.CorrelationID)
		times = append(times, r.HubSpotAt)
	}
	batch.Queue(insertReceipts, ids, events, operations, hashes, results, correlations, times)
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func idOrNull(id uuid.UUID) *string {
	if id == uuid.Nil {
		return nil
	}
	text := id.String()
	return &text
}

// Only what is still queued: every other state has a deadline of its own, and a
// callback may come late, twice, or for events long done.
const requeueFailed = `
WITH failed AS MATERIALIZED (
  SELECT e.id FROM hubspot_outbox_events e
  WHERE e.id = ANY($1::uuid[]) AND e.status = 'queued' AND e.qstash_message_id = $2
  ORDER BY e.id
  FOR UPDATE SKIP LOCKED
)
UPDATE hubspot_outbox_events e
SET status = 'process_retry', generation = e.generation + 1, next_attempt_at = hubsync.now(),
    last_error_code = 'delivery_failed', last_error_summary = 'the message ran out of retries'
FROM failed f
WHERE e.id = f.id AND e.status = 'queued'`

// RequeueFailed makes the events of a message that QStash gave up due again, in a
// new generation, and returns how many.
func (db *DB) RequeueFailed(ctx context.Context, ids []uuid.UUID, messageID string) (int, error) {
	tag, err := db.pool.Exec(ctx, requeueFailed, uuidTexts(ids), messageID)
	if err != nil {
		return 0, fmt.Errorf("requeue %d events of a failed message: %w", len(ids), err)
	}
	return int(tag.RowsAffected()), nil
}
