-- +goose Up
-- Imports: the progress of each file, and the rows of the chunk that is being stored.

-- One row per run over a file. It is written in the transaction of every chunk, so that a
-- run that was killed goes on exactly behind the last chunk that was committed.
CREATE TABLE imports (
  id uuid PRIMARY KEY,
  -- SHA-256 of the file, and of what the command line adds to its rows.
  file_digest text NOT NULL,
  settings text NOT NULL,
  rows_total bigint NOT NULL,
  rows_done bigint NOT NULL DEFAULT 0,
  byte_offset bigint NOT NULL DEFAULT 0,
  line bigint NOT NULL DEFAULT 0,
  results_bytes bigint NOT NULL DEFAULT 0,
  accepted bigint NOT NULL DEFAULT 0,
  superseded bigint NOT NULL DEFAULT 0,
  replayed bigint NOT NULL DEFAULT 0,
  refused bigint NOT NULL DEFAULT 0,
  refused_codes jsonb NOT NULL DEFAULT '{}',
  started_at timestamptz NOT NULL DEFAULT hubsync.now(),
  updated_at timestamptz NOT NULL DEFAULT hubsync.now(),
  finished_at timestamptz,
  CHECK (rows_done = accepted + superseded + replayed + refused),
  CHECK (finished_at IS NULL OR rows_done = rows_total)
);
CREATE UNIQUE INDEX imports_unfinished ON imports (file_digest, settings) WHERE finished_at IS NULL;

-- The rows of one chunk, from its COPY to the end of the same transaction: nobody else
-- ever sees one. Unlogged, because it never holds anything that is to be kept.
CREATE UNLOGGED TABLE import_rows (
  import_id uuid NOT NULL,
  row_number bigint NOT NULL,
  request_id uuid NOT NULL,
  event_id uuid NOT NULL,
  brand_id text NOT NULL,
  product_id text NOT NULL,
  caller_key text NOT NULL,
  email text NOT NULL,
  email_key text NOT NULL,
  desired_state text NOT NULL,
  idempotency_key text NOT NULL,
  request_hash text NOT NULL,
  occurred_at timestamptz,
  consent jsonb NOT NULL,
  -- No other row of the chunk has its address with another key, its key with another
  -- address, its subscription or its idempotency key; nor is that so for another row of
  -- its contact.
  simple boolean NOT NULL,
  -- The first row of its contact in the chunk.
  leads boolean NOT NULL,
  PRIMARY KEY (import_id, row_number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- import_v1 decides the staged rows of one chunk together, exactly as accept_v1 would one
-- by one, where that is simple: the address is new and so is the key, or the key is one
-- that the address's contact is known by, and no other row has to do with it. The rows
-- that are not simple come back as 'left', for accept_v1 in file order: rows of different
-- contacts do not depend on each other, so their order among each other is free.
--
-- Locks are taken in the order that everybody keeps: contacts, subscriptions in key
-- order, requests, events. A statement sees what was committed before it began, so the
-- rows are read by a statement that begins after all locks were granted.
--
-- The settings keep the cached plans on the indexes: the first plan is made while the
-- tables may be empty, and has to do for the millionth row.
--
-- outcome: left, or one of accept_v1's; with replayed, request_hash says with which request.
-- Raises 23505 as accept_v1 does: then nothing of the chunk was stored.
-- +goose StatementBegin
CREATE FUNCTION hubsync.import_v1(p_import_id uuid) RETURNS TABLE (
  row_number bigint, outcome text, request_id uuid, request_hash text
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
BEGIN
  -- 1. The contacts that the addresses name, FOR SHARE as in accept_v1, then their
  --    subscriptions that the rows are about.
  PERFORM c.contact_key
  FROM import_rows i
  JOIN contacts c ON c.email_key = i.email_key AND c.erased_at IS NULL
  WHERE i.import_id = p_import_id AND i.simple
  ORDER BY c.contact_key
  FOR SHARE OF c;

  PERFORM s.contact_key
  FROM import_rows i
  JOIN contacts c ON c.email_key = i.email_key AND c.erased_at IS NULL
  JOIN contact_subscription_state s
    ON s.contact_key = c.contact_key AND s.brand_id = i.brand_id AND s.product_id = i.product_id
  WHERE i.import_id = p_import_id AND i.simple
  ORDER BY s.contact_key, s.brand_id, s.product_id
  FOR UPDATE OF s;

  -- 2. Under the locks: one moment for all, and the rules of accept_v1, 2 to 5.
  v_now := hubsync.clock();
  RETURN QUERY
  WITH told AS MATERIALIZED (
    SELECT i.row_number, i.request_id, i.event_id, i.brand_id, i.product_id, i.caller_key, i.email, i.email_key,
           i.desired_state, i.idempotency_key, i.request_hash, i.occurred_at, i.consent, i.leads,
           r.id AS receipt_id, r.request_hash AS receipt_hash,
           t.version, t.portal_id, t.snapshot,
           c.contact_key AS known_key, coalesce(c.contact_key, i.caller_key) AS contact_key,
           s.latest_sequence, s.latest_event_id, s.opted_out_at,
           least(coalesce(i.occurred_at, v_now), v_now) AS consent_at,
           greatest(c.opted_out_at, (
             SELECT o.opted_out_at FROM contact_brand_opt_outs o
             WHERE o.contact_key = c.contact_key AND o.brand_id = i.brand_id)) AS wide_opt_out,
           CASE WHEN r.id IS NOT NULL THEN 'replayed'
                WHEN NOT i.simple OR c.erasing_at IS NOT NULL OR c.contact_key IS DISTINCT FROM a.contact_key THEN 'left'
                WHEN t.version IS NOT NULL THEN 'new'
                WHEN EXISTS (SELECT 1 FROM brands b WHERE b.id = i.brand_id) THEN 'unknown_product'
                ELSE 'unknown_brand' END AS outcome
    FROM import_rows i
    LEFT JOIN subscription_requests r
      ON r.brand_id = i.brand_id AND r.product_id = i.product_id AND r.idempotency_key = i.idempotency_key
    LEFT JOIN brand_subscription_routes t
      ON t.brand_id = i.brand_id AND t.product_id = i.product_id AND t.active
    LEFT JOIN contacts c ON c.email_key = i.email_key AND c.erased_at IS NULL
    LEFT JOIN contact_aliases a ON a.alias_key = i.caller_key
    LEFT JOIN contact_subscription_state s
      ON s.contact_key = c.contact_key AND s.brand_id = i.brand_id AND s.product_id = i.product_id
    WHERE i.import_id = p_import_id
  ), judged AS MATERIALIZED (
    SELECT t.*,
           t.desired_state = 'subscribed' AND coalesce(t.consent_at <= t.wide_opt_out, false) AS behind_wide,
           t.desired_state = 'unsubscribed'
             OR coalesce(t.consent_at > greatest(t.wide_opt_out, t.opted_out_at), true) AS takes_effect
    FROM told t
    WHERE t.outcome = 'new'
  ), made_contacts AS (
    INSERT INTO contacts (contact_key, email, email_key)
    SELECT j.contact_key, j.email, j.email_key FROM judged j WHERE j.known_key IS NULL AND j.leads
    RETURNING contact_key
  ), made_aliases AS (
    INSERT INTO contact_aliases (alias_key, contact_key)
    SELECT m.contact_key, m.contact_key FROM made_contacts m
  ), made_subscriptions AS (
    INSERT INTO contact_subscription_state
      (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state, opted_out_at, updated_at)
    SELECT j.contact_key, j.brand_id, j.product_id, j.portal_id, 1, j.event_id, j.desired_state,
           CASE WHEN j.desired_state = 'unsubscribed' THEN j.consent_at END, v_now
    FROM judged j
    WHERE j.latest_sequence IS NULL AND NOT j.behind_wide
  ), moved_subscriptions AS (
    UPDATE contact_subscription_state s
    SET latest_sequence = s.latest_sequence + CASE WHEN j.takes_effect THEN 1 ELSE 0 END,
        latest_event_id = CASE WHEN j.takes_effect THEN j.event_id ELSE s.latest_event_id END,
        desired_state = CASE WHEN j.takes_effect THEN j.desired_state ELSE s.desired_state END,
        opted_out_at = CASE WHEN j.desired_state = 'unsubscribed' THEN greatest(s.opted_out_at, j.consent_at) ELSE s.opted_out_at END,
        portal_id = CASE WHEN j.takes_effect THEN j.portal_id ELSE s.portal_id END,
        updated_at = v_now
    FROM judged j
    WHERE j.latest_sequence IS NOT NULL AND NOT j.behind_wide
      AND s.contact_key = j.contact_key AND s.brand_id = j.brand_id AND s.product_id = j.product_id
  ), made_requests AS (
    INSERT INTO subscription_requests
      (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key,
       request_hash, sync_status, status_reason, created_at, sequence, source, occurred_at, consent_at, consent)
    SELECT j.request_id, j.brand_id, j.contact_key, j.product_id, j.desired_state, j.version, j.idempotency_key,
           j.request_hash, CASE WHEN j.takes_effect THEN 'pending' ELSE 'superseded' END,
           CASE WHEN NOT j.takes_effect THEN 'consent_older_than_opt_out' END,
           v_now, CASE WHEN j.takes_effect THEN coalesce(j.latest_sequence, 0) + 1 END, 'import',
           j.occurred_at, j.consent_at, j.consent
    FROM judged j
  ), made_events AS (
    INSERT INTO hubspot_outbox_events
      (id, request_id, event_type, payload, status, next_attempt_at, created_at, completed_at,
       portal_id, brand_id, lane, sequence, mapping_version, superseded_by)
    SELECT j.event_id, j.request_id, 'subscription.desired-state.v1', j.snapshot,
           CASE WHEN j.takes_effect THEN 'pending' ELSE 'superseded' END,
           v_now, v_now, CASE WHEN NOT j.takes_effect THEN v_now END,
           j.portal_id, j.brand_id, CASE WHEN j.desired_state = 'unsubscribed' THEN 0 ELSE 2 END,
           CASE WHEN j.takes_effect THEN coalesce(j.latest_sequence, 0) + 1 END, j.version,
           CASE WHEN NOT j.takes_effect AND NOT j.behind_wide THEN j.latest_event_id END
    FROM judged j
  )
  SELECT t.row_number, t.outcome, t.receipt_id, t.receipt_hash
  FROM told t
  WHERE t.outcome <> 'new'
  UNION ALL
  SELECT j.row_number, CASE WHEN j.takes_effect THEN 'accepted' ELSE 'superseded' END, j.request_id, j.request_hash
  FROM judged j;
END
$$;
-- +goose StatementEnd
