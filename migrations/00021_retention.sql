-- +goose Up
-- Retention: what was settled long ago moves out of the tables that live traffic works on.

-- How long, for the whole database; one row. A request moves when its events were settled
-- for history_after and its subscription has a newer decision; its key is honoured for
-- keys_for after its acceptance, and refused from then on.
CREATE TABLE retention (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  history_after interval NOT NULL DEFAULT '90 days' CHECK (history_after >= '14 days'),
  keys_for interval NOT NULL DEFAULT '400 days',
  -- Where the walk over the requests is: the last id that was looked at.
  walked_to uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  CHECK (keys_for > history_after)
);
INSERT INTO retention DEFAULT VALUES;

-- Partitioned by the month of the move, so that a pass writes to one partition, and what
-- moved before some month is dropped with its partitions. moved_at stands first: a column
-- that a later migration adds to a hot table is added here too, and so is the last in both.
CREATE TABLE subscription_requests_history (moved_at timestamptz NOT NULL, LIKE subscription_requests) PARTITION BY RANGE (moved_at);
CREATE TABLE hubspot_outbox_events_history (moved_at timestamptz NOT NULL, LIKE hubspot_outbox_events) PARTITION BY RANGE (moved_at);
CREATE TABLE hubspot_operation_receipts_history (moved_at timestamptz NOT NULL, LIKE hubspot_operation_receipts) PARTITION BY RANGE (moved_at);
CREATE INDEX ON subscription_requests_history (contact_key);
CREATE INDEX ON subscription_requests_history (id);
CREATE INDEX ON hubspot_outbox_events_history (request_id);
CREATE INDEX ON hubspot_outbox_events_history (id);
CREATE INDEX ON hubspot_operation_receipts_history (event_id);

-- The keys of requests that moved. They stay when history is dropped: a key that was used
-- once never makes a decision again. By their hash, because a caller's key may be anything.
CREATE TABLE settled_keys (
  key_hash bytea PRIMARY KEY,
  request_id uuid NOT NULL,
  request_hash text NOT NULL,
  sync_status text NOT NULL,
  sequence bigint,
  accepted_at timestamptz NOT NULL
);

-- Ids and keys hold no control characters, so the parts cannot run into each other. Where it
-- is an index condition, accept_v1 spells it out: called there, it costs a fifth of a decision.
CREATE FUNCTION hubsync.key_hash_v1(p_brand_id text, p_product_id text, p_key text) RETURNS bytea
LANGUAGE sql STABLE AS $$ SELECT sha256(convert_to(p_brand_id || chr(1) || p_product_id || chr(1) || p_key, 'UTF8')) $$;

-- What evidence and the answers about one request read: hot rows and history.
CREATE VIEW every_request AS
  SELECT
    id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash,
    sync_status, created_at, sequence, source, occurred_at, consent_at, consent, status_reason
  FROM subscription_requests
  UNION ALL
  SELECT
    id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash,
    sync_status, created_at, sequence, source, occurred_at, consent_at, consent, status_reason
  FROM subscription_requests_history;

CREATE VIEW every_event AS
  SELECT
    id, request_id, event_type, payload, status, publish_attempts, process_attempts, process_waits,
    next_attempt_at, lease_expires_at, qstash_message_id, last_error_code, last_error_summary, created_at,
    completed_at, portal_id, brand_id, lane, sequence, revision, generation, mapping_version, claim_token,
    fence, travels_alone, superseded_by, traceparent, published_at
  FROM hubspot_outbox_events
  UNION ALL
  SELECT
    id, request_id, event_type, payload, status, publish_attempts, process_attempts, process_waits,
    next_attempt_at, lease_expires_at, qstash_message_id, last_error_code, last_error_summary, created_at,
    completed_at, portal_id, brand_id, lane, sequence, revision, generation, mapping_version, claim_token,
    fence, travels_alone, superseded_by, traceparent, published_at
  FROM hubspot_outbox_events_history;

CREATE VIEW every_receipt AS
  SELECT
    id, event_id, operation, desired_hash, outcome, correlation_id, hubspot_at, confirmed_at
  FROM hubspot_operation_receipts
  UNION ALL
  SELECT
    id, event_id, operation, desired_hash, outcome, correlation_id, hubspot_at, confirmed_at
  FROM hubspot_operation_receipts_history;

-- history_month_v1 makes the partitions of a month where they are missing.
-- +goose StatementBegin
CREATE FUNCTION hubsync.history_month_v1(p_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_from timestamptz := date_trunc('month', p_at, 'UTC');
  v_table text;
  v_name text;
BEGIN
  FOREACH v_table IN ARRAY ARRAY['subscription_requests_history', 'hubspot_outbox_events_history', 'hubspot_operation_receipts_history'] LOOP
    v_name := v_table || to_char(v_from AT TIME ZONE 'UTC', '"_"YYYYMM');
    CONTINUE WHEN to_regclass(v_name) IS NOT NULL;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
      v_name, v_table, v_from, date_trunc('month', v_from + interval '32 days', 'UTC'));
  END LOOP;
END
$$;
-- +goose StatementEnd

-- move_settled_v1 looks at the next p_limit requests by id and moves those to history that
-- may go; behind the last one it begins anew. So a pass costs the same whatever the tables
-- hold, and a request that had to stay is looked at again in the next round.
--
-- What stays hot: whatever is not settled; the request of its subscription's newest event
-- or of our last own opt-out there, which repairs, replays and echo tests read; what an
-- unsubscribe-all made, whose receipt covers many rows. All of these reopen a request only
-- under its subscription's lock, so the look is repeated under it: subscriptions in key
-- order, requests and events in id order, and nobody is waited for. It runs as its owner: the role
-- of the function that reconciles may neither delete decisions nor make partitions.
-- +goose StatementBegin
CREATE FUNCTION hubsync.move_settled_v1(p_limit integer) RETURNS TABLE (looked_at integer, moved integer) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, hubsync, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := hubsync.now();
  v_settled_before timestamptz;
  v_walked_to uuid;
  v_seen uuid[];
  v_locked uuid[]; -- the subscriptions that are locked, by their newest events
  v_ids uuid[];
  v_events uuid[];
BEGIN
  -- One walk at a time; a second run finds the row locked and has nothing to do.
  SELECT t.walked_to, v_now - t.history_after INTO v_walked_to, v_settled_before
  FROM retention t FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN QUERY SELECT 0, 0;
    RETURN;
  END IF;
  v_seen := ARRAY(SELECT r.id FROM subscription_requests r WHERE r.id > v_walked_to ORDER BY r.id LIMIT p_limit);
  UPDATE retention SET walked_to = CASE WHEN cardinality(v_seen) < p_limit
    THEN '00000000-0000-0000-0000-000000000000' ELSE v_seen[p_limit] END;

  v_locked := ARRAY(
    SELECT s.latest_event_id
    FROM contact_subscription_state s
    WHERE (s.contact_key, s.brand_id, s.product_id) IN (
      SELECT r.contact_key, r.brand_id, r.product_id FROM subscription_requests r
      WHERE r.id = ANY (v_seen) AND r.created_at < v_settled_before AND r.sync_status <> 'pending')
    ORDER BY s.contact_key, s.brand_id, s.product_id
    FOR UPDATE SKIP LOCKED);

  v_ids := ARRAY(
    SELECT r.id
    FROM subscription_requests r
    LEFT JOIN contact_subscription_state s ON (s.contact_key, s.brand_id, s.product_id) = (r.contact_key, r.brand_id, r.product_id)
    WHERE r.id = ANY (v_seen) AND r.created_at < v_settled_before AND r.sync_status <> 'pending'
      AND r.source <> 'unsubscribe_all'
      AND (s.contact_key IS NULL OR s.latest_event_id = ANY (v_locked))
      AND NOT EXISTS (
        SELECT 1 FROM hubspot_outbox_events e
        WHERE e.request_id = r.id
          AND (e.completed_at IS NULL OR e.completed_at >= v_settled_before
               OR e.id = s.latest_event_id OR e.id = s.own_opt_out_event_id OR e.id = s.lease_event_id))
    ORDER BY r.id
    FOR UPDATE OF r SKIP LOCKED);
  v_events := ARRAY(SELECT e.id FROM hubspot_outbox_events e WHERE e.request_id = ANY (v_ids) ORDER BY e.id FOR UPDATE);
  IF cardinality(v_ids) = 0 THEN
    RETURN QUERY SELECT cardinality(v_seen), 0;
    RETURN;
  END IF;

  PERFORM hubsync.history_month_v1(v_now);
  INSERT INTO settled_keys (key_hash, request_id, request_hash, sync_status, sequence, accepted_at)
  SELECT hubsync.key_hash_v1(r.brand_id, r.product_id, r.idempotency_key), r.id, r.request_hash, r.sync_status, r.sequence, r.created_at
  FROM subscription_requests r WHERE r.id = ANY (v_ids);
  WITH gone AS (DELETE FROM hubspot_operation_receipts o WHERE o.event_id = ANY (v_events) RETURNING o.*)
  INSERT INTO hubspot_operation_receipts_history SELECT v_now, gone.* FROM gone;
  WITH gone AS (DELETE FROM hubspot_outbox_events e WHERE e.id = ANY (v_events) RETURNING e.*)
  INSERT INTO hubspot_outbox_events_history SELECT v_now, gone.* FROM gone;
  WITH gone AS (DELETE FROM subscription_requests r WHERE r.id = ANY (v_ids) RETURNING r.*)
  INSERT INTO subscription_requests_history SELECT v_now, gone.* FROM gone;
  RETURN QUERY SELECT cardinality(v_seen), cardinality(v_ids);
END
$$;
-- +goose StatementEnd

-- accept_v1 as in 00002, and with a look at the keys of requests that moved. Replaced, not
-- put beside: its answers to everything else are the same, and code from before this
-- migration must not take a moved key for a new one either.
-- outcome, further: expired (the key was used longer than keys_for ago; nothing is stored)
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION hubsync.accept_v1(
  p_request_id uuid, p_event_id uuid,
  p_brand_id text, p_product_id text, p_caller_key text,
  p_email text, p_email_key text,
  p_desired_state text, p_idempotency_key text, p_request_hash text,
  p_source text, p_occurred_at timestamptz, p_consent jsonb,
  p_lane smallint, p_traceparent text,
  p_undated_window interval
) RETURNS TABLE (
  outcome text, request_id uuid, request_hash text, sync_status text,
  sequence bigint, accepted_at timestamptz
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  -- A subscribe without a date may be a delayed one: it counts as this much older
  -- than its arrival, so that it cannot overtake an opt-out that came just before it.
  v_window interval := CASE WHEN p_desired_state = 'subscribed' THEN p_undated_window ELSE interval '0' END;
  v_seen record;
  v_contact record;
  v_alias text;
  v_seen_key text;
  v_is_new boolean := false;
  v_opted_out_at timestamptz;
  v_accepted_at timestamptz;
  v_consent_at timestamptz;
  v_superseded boolean;
  v_superseded_by uuid;
  v_sequence bigint;
  v_applied_sequence bigint;
  v_latest_event_id uuid;
BEGIN
  -- 1. One look at all that is only read. A key that was used before has its receipt; a
  --    replay changes nothing.
  SELECT r.id, r.request_hash, r.sync_status, r.sequence, r.created_at,
         t.version, t.portal_id, t.snapshot, c.contact_key, a.contact_key AS alias_of, k.request_id AS settled_id
  INTO v_seen
  FROM (SELECT 1) AS one
  LEFT JOIN subscription_requests r
    ON r.brand_id = p_brand_id AND r.product_id = p_product_id AND r.idempotency_key = p_idempotency_key
  LEFT JOIN brand_subscription_routes t ON t.brand_id = p_brand_id AND t.product_id = p_product_id AND t.active
  LEFT JOIN contacts c ON c.email_key = p_email_key AND c.erased_at IS NULL
  LEFT JOIN contact_aliases a ON a.alias_key = p_caller_key
  LEFT JOIN settled_keys k ON k.key_hash = sha256(convert_to(p_brand_id || chr(1) || p_product_id || chr(1) || p_idempotency_key, 'UTF8'));
  IF v_seen.id IS NOT NULL THEN
    RETURN QUERY SELECT 'replayed'::text, v_seen.id, v_seen.request_hash,
      v_seen.sync_status, v_seen.sequence, v_seen.created_at;
    RETURN;
  END IF;
  -- The request moved to history: its key is honoured for a time, and then refused.
  IF v_seen.settled_id IS NOT NULL THEN
    RETURN QUERY
    SELECT CASE WHEN k.accepted_at > hubsync.now() - t.keys_for THEN 'replayed' ELSE 'expired' END,
           k.request_id, k.request_hash, k.sync_status, k.sequence, k.accepted_at
    FROM settled_keys k, retention t
    WHERE k.key_hash = hubsync.key_hash_v1(p_brand_id, p_product_id, p_idempotency_key);
    RETURN;
  END IF;
  IF v_seen.version IS NULL THEN
    RETURN QUERY SELECT CASE WHEN EXISTS (SELECT 1 FROM brands b WHERE b.id = p_brand_id)
        THEN 'unknown_product' ELSE 'unknown_brand' END,
      NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::timestamptz;
    RETURN;
  END IF;
  v_seen_key := v_seen.contact_key;
  v_alias := v_seen.alias_of;

  -- 2. The contact, by address; locked FOR SHARE, so that an unsubscribe-all or an
  --    erasure (FOR UPDATE) also covers a subscription that is being made now.
  FOR attempt IN 1..3 LOOP
    IF attempt > 1 THEN
      SELECT c.contact_key, a.contact_key INTO v_seen_key, v_alias
      FROM (SELECT 1) AS one
      LEFT JOIN contacts c ON c.email_key = p_email_key AND c.erased_at IS NULL
      LEFT JOIN contact_aliases a ON a.alias_key = p_caller_key;
    END IF;
    IF v_seen_key IS NOT NULL THEN
      SELECT c.contact_key, c.opted_out_at, c.erasing_at INTO v_contact
      FROM contacts c
      WHERE c.contact_key = v_seen_key AND c.email_key = p_email_key AND c.erased_at IS NULL
      FOR SHARE;
      EXIT WHEN FOUND;
      -- The address moved away while we waited, and our lock stays on the row. Going
      -- on would mean to raise that lock below, and two that do so deadlock.
      RAISE EXCEPTION 'the address of a contact changed meanwhile' USING ERRCODE = '40001';
    END IF;

    IF v_alias IS NOT NULL THEN
      -- A new address under a known key: the contact's address changes. Where that
      -- contact was erased, the answer is that it is gone.
      UPDATE contacts c
      SET email = p_email, email_key = p_email_key,
          previous_email_keys = array_append(array_remove(c.previous_email_keys, p_email_key), c.email_key),
          updated_at = hubsync.clock()
      WHERE c.contact_key = v_alias AND c.erasing_at IS NULL AND c.erased_at IS NULL
      RETURNING c.contact_key, c.opted_out_at, c.erasing_at INTO v_contact;
      IF FOUND THEN
        PERFORM hubsync.readdress_v1(v_alias);
        EXIT;
      END IF;
      RETURN QUERY SELECT 'gone'::text, NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::timestamptz;
      RETURN;
    END IF;

    WITH made AS (
      INSERT INTO contacts AS c (contact_key, email, email_key)
      VALUES (p_caller_key, p_email, p_email_key)
      ON CONFLICT DO NOTHING
      RETURNING c.contact_key
    )
    INSERT INTO contact_aliases AS a (alias_key, contact_key)
    SELECT m.contact_key, m.contact_key FROM made m
    ON CONFLICT (alias_key) DO NOTHING
    RETURNING a.contact_key, NULL::timestamptz AS opted_out_at, NULL::timestamptz AS erasing_at INTO v_contact;
    v_is_new := FOUND;
    EXIT WHEN FOUND;
    -- Another transaction made this contact, or this alias, just now: look again.
  END LOOP;
  IF v_contact.contact_key IS NULL THEN
    RAISE EXCEPTION 'contact could not be settled after three looks' USING ERRCODE = '40001';
  END IF;
  IF v_contact.erasing_at IS NOT NULL THEN
    RETURN QUERY SELECT 'gone'::text, NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::timestamptz;
    RETURN;
  END IF;

  -- The caller's key becomes an alias. One that names another contact keeps doing
  -- so, and the clash is listed: no decision is refused because of its key.
  IF NOT v_is_new AND p_caller_key <> v_contact.contact_key AND v_alias IS DISTINCT FROM v_contact.contact_key THEN
    INSERT INTO contact_aliases AS a (alias_key, contact_key)
    VALUES (p_caller_key, v_contact.contact_key)
    ON CONFLICT (alias_key) DO NOTHING;
    IF NOT FOUND THEN
      SELECT a.contact_key INTO v_alias FROM contact_aliases a WHERE a.alias_key = p_caller_key;
      IF v_alias <> v_contact.contact_key THEN
        INSERT INTO contact_conflicts AS k (contact_key, kind, detail)
        VALUES (v_contact.contact_key, 'shared_key', p_caller_key)
        ON CONFLICT (contact_key, kind, detail)
        DO UPDATE SET seen_count = k.seen_count + 1, last_seen_at = hubsync.clock();
      END IF;
    END IF;
  END IF;

  IF NOT v_is_new THEN
    SELECT greatest(v_contact.opted_out_at, (
      SELECT o.opted_out_at FROM contact_brand_opt_outs o
      WHERE o.contact_key = v_contact.contact_key AND o.brand_id = p_brand_id)) INTO v_opted_out_at;
  END IF;

  -- 3. The subscription. The sequence is allocated under its row lock, so its order
  --    is commit order; the time is read there too, because the lock may have been
  --    waited for. One evaluation of the clock decides everything.
  v_accepted_at := hubsync.clock();
  v_consent_at := least(coalesce(p_occurred_at, v_accepted_at - v_window), v_accepted_at);
  v_superseded := p_desired_state = 'subscribed' AND v_consent_at <= v_opted_out_at;
  IF v_is_new THEN
    INSERT INTO contact_subscription_state
      (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id,
       desired_state, opted_out_at, updated_at)
    VALUES (v_contact.contact_key, p_brand_id, p_product_id, v_seen.portal_id, 1, p_event_id,
       p_desired_state, CASE WHEN p_desired_state = 'unsubscribed' THEN v_consent_at END, v_accepted_at);
    v_sequence := 1;
    v_superseded := false;
  ELSIF v_superseded IS NOT TRUE THEN
    INSERT INTO contact_subscription_state AS s
      (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id,
       desired_state, opted_out_at, updated_at)
    VALUES (v_contact.contact_key, p_brand_id, p_product_id, v_seen.portal_id, 1, p_event_id,
       p_desired_state, CASE WHEN p_desired_state = 'unsubscribed' THEN v_consent_at END, v_accepted_at)
    ON CONFLICT (contact_key, brand_id, product_id) DO UPDATE
    SET (latest_sequence, latest_event_id, desired_state, opted_out_at, portal_id, updated_at) = (
      SELECT
        s.latest_sequence + CASE WHEN d.takes_effect THEN 1 ELSE 0 END,
        CASE WHEN d.takes_effect THEN p_event_id ELSE s.latest_event_id END,
        CASE WHEN d.takes_effect THEN p_desired_state ELSE s.desired_state END,
        CASE WHEN p_desired_state = 'unsubscribed' THEN greatest(s.opted_out_at, d.consent_at) ELSE s.opted_out_at END,
        CASE WHEN d.takes_effect THEN v_seen.portal_id ELSE s.portal_id END,
        d.accepted_at
      FROM (
        SELECT m.accepted_at, m.consent_at,
               p_desired_state = 'unsubscribed' OR s.opted_out_at IS NULL
                 OR m.consent_at > s.opted_out_at AS takes_effect
        FROM (
          SELECT n.accepted_at, least(coalesce(p_occurred_at, n.accepted_at - v_window), n.accepted_at) AS consent_at
          FROM (SELECT hubsync.clock() AS accepted_at OFFSET 0) n
        ) m
      ) d)
    RETURNING s.latest_sequence, s.applied_sequence, s.latest_event_id, s.updated_at
    INTO v_sequence, v_applied_sequence, v_latest_event_id, v_accepted_at;
    v_consent_at := least(coalesce(p_occurred_at, v_accepted_at - v_window), v_accepted_at);
    v_superseded := v_latest_event_id <> p_event_id;
    IF v_superseded THEN
      v_superseded_by := v_latest_event_id;
      v_sequence := NULL;
    END IF;
  END IF;

  -- 4. The request, without ON CONFLICT: a racing twin must roll back whole; and the
  --    event. An unsubscribe is always lane 0.
  WITH request AS (
    INSERT INTO subscription_requests
      (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key,
       request_hash, sync_status, status_reason, created_at, sequence, source, occurred_at, consent_at, consent)
    VALUES
      (p_request_id, p_brand_id, v_contact.contact_key, p_product_id, p_desired_state, v_seen.version,
       p_idempotency_key, p_request_hash,
       CASE WHEN v_superseded THEN 'superseded' ELSE 'pending' END,
       CASE WHEN v_superseded THEN 'consent_older_than_opt_out' END,
       v_accepted_at, v_sequence,
       p_source, p_occurred_at, v_consent_at, p_consent)
  )
  INSERT INTO hubspot_outbox_events
    (id, request_id, event_type, payload, status, next_attempt_at, created_at, completed_at,
     portal_id, brand_id, lane, sequence, mapping_version, superseded_by, traceparent)
  VALUES
    (p_event_id, p_request_id, 'subscription.desired-state.v1', v_seen.snapshot,
     CASE WHEN v_superseded THEN 'superseded' ELSE 'pending' END,
     v_accepted_at, v_accepted_at, CASE WHEN v_superseded THEN v_accepted_at END,
     v_seen.portal_id, p_brand_id, CASE WHEN p_desired_state = 'unsubscribed' THEN 0 ELSE p_lane END,
     v_sequence,
     v_seen.version, v_superseded_by, p_traceparent);

  -- 5. Coalescing: what of this subscription still waits is overtaken now, so that it is
  --    never published. Each decision does so for the ones just before it; whatever a
  --    relay holds at this moment, or was missed, the worker's claim finds. Where the
  --    decision just before was applied, nothing waits.
  --    What waits is said as what it is not: as IN (…) it would match the partial index
  --    of due events, and the plan, made while the queue was empty and then kept by the
  --    session, would walk over the whole backlog at every decision.
  IF v_applied_sequence < v_sequence - 1 THEN
    WITH stale AS MATERIALIZED (
      SELECT e.id, e.request_id
      FROM subscription_requests r
      JOIN hubspot_outbox_events e ON e.request_id = r.id
      WHERE r.contact_key = v_contact.contact_key AND r.brand_id = p_brand_id AND r.product_id = p_product_id
        AND r.sequence BETWEEN v_sequence - 3 AND v_sequence - 1
        AND e.completed_at IS NULL AND e.status <> ALL ('{publishing,queued,processing}') AND e.sequence < v_sequence
      ORDER BY e.id
      FOR UPDATE OF e SKIP LOCKED
    ), overtaken AS (
      UPDATE hubspot_outbox_events e
      SET status = 'superseded', superseded_by = p_event_id, completed_at = v_accepted_at, lease_expires_at = NULL, claim_token = NULL
      FROM stale WHERE e.id = stale.id AND e.completed_at IS NULL AND e.status <> ALL ('{publishing,queued,processing}')
      RETURNING e.request_id
    )
    UPDATE subscription_requests r SET sync_status = 'superseded', status_reason = 'newer_decision'
    FROM overtaken WHERE r.id = overtaken.request_id;
  END IF;

  RETURN QUERY SELECT
    CASE WHEN v_superseded THEN 'superseded' ELSE 'accepted' END, p_request_id, p_request_hash,
    CASE WHEN v_superseded THEN 'superseded' ELSE 'pending' END,
    v_sequence, v_accepted_at;
END
$$;
-- +goose StatementEnd
