-- +goose Up
-- Intake in one statement: receipt → contact → subscription → request → event.
-- A function rather than a CTE in the application, because the session keeps the
-- plans of a function, while `exec` mode plans a statement anew at every call. Its
-- name carries a version: old code runs on the new schema and the reverse, so a
-- change is a new function beside this one. Few statements, because starting one costs
-- more than what most of them do: one look, and for somebody new three inserts.
--
-- outcome: accepted | superseded | replayed | unknown_brand | unknown_product | gone
--   superseded: a subscribe whose consent is not newer than a known opt-out. It is
--               stored with its receipt and takes no place in the order.
--   replayed:   the key was used before; request_hash says with which request.
-- Raises 23505 when a twin with the same key commits first: everything is rolled
-- back, the sequence included, and a second call reads the twin's receipt.
-- +goose StatementBegin
CREATE FUNCTION hubsync.accept_v1(
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
         t.version, t.portal_id, t.snapshot, c.contact_key, a.contact_key AS alias_of
  INTO v_seen
  FROM (SELECT 1) AS one
  LEFT JOIN subscription_requests r
    ON r.brand_id = p_brand_id AND r.product_id = p_product_id AND r.idempotency_key = p_idempotency_key
  LEFT JOIN brand_subscription_routes t ON t.brand_id = p_brand_id AND t.product_id = p_product_id AND t.active
  LEFT JOIN contacts c ON c.email_key = p_email_key AND c.erased_at IS NULL
  LEFT JOIN contact_aliases a ON a.alias_key = p_caller_key;
  IF v_seen.id IS NOT NULL THEN
    RETURN QUERY SELECT 'replayed'::text, v_seen.id, v_seen.request_hash,
      v_seen.sync_status, v_seen.sequence, v_seen.created_at;
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

-- readdress_v1 gives every subscription of a contact a new event, because its
-- state in HubSpot belongs to the address and does not move with the person. The
-- new events repeat the request that decided last, its consent included. The
-- caller holds the contact's lock.
-- +goose StatementBegin
CREATE FUNCTION hubsync.readdress_v1(p_contact_key text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_subscription record;
  v_event record;
  v_event_id uuid;
  v_count integer := 0;
BEGIN
  FOR v_subscription IN
    SELECT s.brand_id, s.product_id, s.latest_sequence, s.latest_event_id
    FROM contact_subscription_state s
    WHERE s.contact_key = p_contact_key
    ORDER BY s.brand_id, s.product_id
    FOR UPDATE
  LOOP
    SELECT e.request_id, e.event_type, e.payload, e.portal_id, e.lane, e.mapping_version, e.traceparent,
           (SELECT max(o.revision) + 1 FROM hubspot_outbox_events o
            WHERE o.request_id = e.request_id AND o.event_type = e.event_type) AS revision
    INTO STRICT v_event
    FROM hubspot_outbox_events e WHERE e.id = v_subscription.latest_event_id;
    v_event_id := gen_random_uuid();
    INSERT INTO hubspot_outbox_events
      (id, request_id, event_type, payload, next_attempt_at, created_at, portal_id, brand_id, lane,
       sequence, revision, mapping_version, traceparent)
    VALUES
      (v_event_id, v_event.request_id, v_event.event_type, v_event.payload, hubsync.clock(), hubsync.clock(),
       v_event.portal_id, v_subscription.brand_id, v_event.lane,
       v_subscription.latest_sequence + 1, v_event.revision, v_event.mapping_version, v_event.traceparent);
    UPDATE contact_subscription_state s
    SET latest_sequence = s.latest_sequence + 1, latest_event_id = v_event_id, updated_at = hubsync.clock()
    WHERE s.contact_key = p_contact_key AND s.brand_id = v_subscription.brand_id
      AND s.product_id = v_subscription.product_id;
    UPDATE subscription_requests r SET sync_status = 'pending' WHERE r.id = v_event.request_id;
    v_count := v_count + 1;
  END LOOP;
  RETURN v_count;
END
$$;
-- +goose StatementEnd
