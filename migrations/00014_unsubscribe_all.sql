-- +goose Up
-- An opt-out of everything in a brand, or everywhere. It is a subscription of its own in
-- the order: product '*' stands for all products of a brand, brand '*' for all brands of
-- the portal that the product names. Its event makes HubSpot show the wide opt-out; every
-- subscription that there is gets an unsubscribe of its own beside it, and those that do
-- not exist yet are covered by contacts.opted_out_at and contact_brand_opt_outs.

-- new_id makes a UUIDv7 (RFC 9562) where a statement makes as many rows as there are.
-- +goose StatementBegin
CREATE FUNCTION hubsync.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(set_bit(set_bit(
    overlay(uuid_send(gen_random_uuid())
      PLACING substring(int8send(floor(extract(epoch FROM hubsync.clock()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
    52, 1), 53, 1), 'hex')::uuid
$$;
-- +goose StatementEnd

-- lock_contact_v1 settles whom an address and a key mean, as accept_v1 does, and locks
-- the contact FOR UPDATE: nothing is accepted for it until the caller is done. A new
-- address under a known key changes that contact's address. No row: it is gone.
-- +goose StatementBegin
CREATE FUNCTION hubsync.lock_contact_v1(p_caller_key text, p_email text, p_email_key text)
RETURNS TABLE (contact_key text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_contact record;
  v_alias text;
BEGIN
  FOR attempt IN 1..3 LOOP
    SELECT c.contact_key, c.erasing_at INTO v_contact
    FROM contacts c WHERE c.email_key = p_email_key AND c.erased_at IS NULL FOR UPDATE;
    EXIT WHEN FOUND;
    SELECT a.contact_key INTO v_alias FROM contact_aliases a WHERE a.alias_key = p_caller_key;
    IF FOUND THEN
      UPDATE contacts c
      SET email = p_email, email_key = p_email_key,
          previous_email_keys = array_append(array_remove(c.previous_email_keys, p_email_key), c.email_key),
          updated_at = hubsync.clock()
      WHERE c.contact_key = v_alias AND c.erasing_at IS NULL AND c.erased_at IS NULL
      RETURNING c.contact_key, c.erasing_at INTO v_contact;
      IF NOT FOUND THEN
        RETURN;
      END IF;
      PERFORM hubsync.readdress_v1(v_alias);
      EXIT;
    END IF;
    WITH made AS (
      INSERT INTO contacts AS c (contact_key, email, email_key) VALUES (p_caller_key, p_email, p_email_key)
      ON CONFLICT DO NOTHING
      RETURNING c.contact_key
    )
    INSERT INTO contact_aliases AS a (alias_key, contact_key) SELECT m.contact_key, m.contact_key FROM made m
    ON CONFLICT (alias_key) DO NOTHING
    RETURNING a.contact_key, NULL::timestamptz AS erasing_at INTO v_contact;
    EXIT WHEN FOUND;
  END LOOP;
  IF v_contact.contact_key IS NULL THEN
    RAISE EXCEPTION 'contact could not be settled after three looks' USING ERRCODE = '40001';
  END IF;
  IF v_contact.erasing_at IS NOT NULL THEN
    RETURN;
  END IF;
  -- A key that names another contact keeps doing so, and the clash is listed.
  INSERT INTO contact_aliases AS a (alias_key, contact_key) VALUES (p_caller_key, v_contact.contact_key)
  ON CONFLICT (alias_key) DO NOTHING;
  SELECT a.contact_key INTO v_alias FROM contact_aliases a WHERE a.alias_key = p_caller_key;
  IF v_alias <> v_contact.contact_key THEN
    INSERT INTO contact_conflicts AS k (contact_key, kind, detail)
    VALUES (v_contact.contact_key, 'shared_key', p_caller_key)
    ON CONFLICT (contact_key, kind, detail) DO UPDATE SET seen_count = k.seen_count + 1, last_seen_at = hubsync.clock();
  END IF;
  RETURN QUERY SELECT v_contact.contact_key;
END
$$;
-- +goose StatementEnd

-- unsubscribe_all_v1 stores an opt-out of a brand (p_brand_id), or of everything ('*').
-- Its outcomes and columns are those of accept_v1; the receipt is that of the wide
-- opt-out, with several portals of the first one.
-- +goose StatementBegin
CREATE FUNCTION hubsync.unsubscribe_all_v1(
  p_request_id uuid, p_event_id uuid, p_brand_id text, p_caller_key text, p_email text, p_email_key text,
  p_idempotency_key text, p_request_hash text, p_source text, p_occurred_at timestamptz, p_consent jsonb,
  p_traceparent text
) RETURNS TABLE (
  outcome text, request_id uuid, request_hash text, sync_status text,
  sequence bigint, accepted_at timestamptz
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_seen record;
  v_contact_key text;
  v_accepted_at timestamptz;
  v_consent_at timestamptz;
  v_sequence bigint;
  v_first bigint;
  v_request_id uuid := p_request_id;
  v_event_id uuid := p_event_id;
  v_target record;
BEGIN
  SELECT r.id, r.request_hash, r.sync_status, r.sequence, r.created_at INTO v_seen
  FROM subscription_requests r
  WHERE r.brand_id = p_brand_id AND r.idempotency_key = p_idempotency_key
    AND (r.product_id = '*' OR (p_brand_id = '*' AND r.product_id IN (SELECT id FROM hubspot_portals)))
  ORDER BY r.product_id LIMIT 1;
  IF FOUND THEN
    RETURN QUERY SELECT 'replayed'::text, v_seen.id, v_seen.request_hash, v_seen.sync_status, v_seen.sequence, v_seen.created_at;
    RETURN;
  END IF;
  IF NOT EXISTS (SELECT 1 FROM brand_subscription_routes t WHERE t.active AND (p_brand_id = '*' OR t.brand_id = p_brand_id)) THEN
    RETURN QUERY SELECT 'unknown_brand'::text, NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::timestamptz;
    RETURN;
  END IF;
  SELECT l.contact_key INTO v_contact_key FROM hubsync.lock_contact_v1(p_caller_key, p_email, p_email_key) l;
  IF NOT FOUND THEN
    RETURN QUERY SELECT 'gone'::text, NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::timestamptz;
    RETURN;
  END IF;
  PERFORM 1 FROM contact_subscription_state s WHERE s.contact_key = v_contact_key
  ORDER BY s.contact_key, s.brand_id, s.product_id FOR UPDATE;
  v_accepted_at := hubsync.clock();
  v_consent_at := least(coalesce(p_occurred_at, v_accepted_at), v_accepted_at);
  IF p_brand_id = '*' THEN
    UPDATE contacts c SET opted_out_at = greatest(c.opted_out_at, v_consent_at), updated_at = v_accepted_at
    WHERE c.contact_key = v_contact_key;
  ELSE
    INSERT INTO contact_brand_opt_outs AS o (contact_key, brand_id, opted_out_at)
    VALUES (v_contact_key, p_brand_id, v_consent_at)
    ON CONFLICT (contact_key, brand_id) DO UPDATE SET opted_out_at = greatest(o.opted_out_at, excluded.opted_out_at);
  END IF;

  -- First the wide opt-outs, so that the receipt's row is the first; then a decision for
  -- each subscription that wants to be subscribed. Those that opted out already keep their
  -- place, with the newer time.
  FOR v_target IN
    SELECT 0 AS rank, w.brand_id, w.product_id, w.portal_id, w.holder, w.mapping_version, w.payload
    FROM (
      SELECT DISTINCT ON (t.portal_id) '*' AS brand_id, t.portal_id AS product_id, t.portal_id, t.brand_id AS holder,
             t.version AS mapping_version,
             jsonb_build_object('portal', t.portal_id, 'brandId', '*', 'productId', t.portal_id, 'mappingVersion', t.version,
               'channel', 'EMAIL', 'subscriptionTypeId', 0, 'legalBasis', '', 'wide', 'portal') AS payload
      FROM brand_subscription_routes t WHERE t.active AND p_brand_id = '*'
      ORDER BY t.portal_id, t.brand_id, t.product_id
    ) w
    UNION ALL
    SELECT 0, w.brand_id, '*', w.portal_id, w.brand_id, w.version,
           jsonb_build_object('portal', w.portal_id, 'brandId', w.brand_id, 'productId', '*', 'mappingVersion', w.version,
             'channel', 'EMAIL', 'subscriptionTypeId', 0, 'legalBasis', '', 'wide', 'brand',
             'businessUnitId', coalesce((w.snapshot ->> 'businessUnitId')::bigint, 0))
    FROM (SELECT t.* FROM brand_subscription_routes t WHERE t.active AND t.brand_id = p_brand_id ORDER BY t.product_id LIMIT 1) w
    UNION ALL
    SELECT 1, s.brand_id, s.product_id, coalesce(t.portal_id, s.portal_id), s.brand_id, coalesce(t.version, e.mapping_version), coalesce(t.snapshot, e.payload)
    FROM contact_subscription_state s
    JOIN hubspot_outbox_events e ON e.id = s.latest_event_id
    LEFT JOIN brand_subscription_routes t ON t.brand_id = s.brand_id AND t.product_id = s.product_id AND t.active
    WHERE s.contact_key = v_contact_key AND (s.desired_state = 'subscribed' OR e.status = 'dead') AND s.product_id <> '*' AND s.brand_id <> '*' AND (p_brand_id = '*' OR s.brand_id = p_brand_id)
    ORDER BY 1, 2, 3
  LOOP
    INSERT INTO contact_subscription_state AS s
      (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state, opted_out_at, updated_at)
    VALUES (v_contact_key, v_target.brand_id, v_target.product_id, v_target.portal_id, 1, v_event_id, 'unsubscribed', v_consent_at, v_accepted_at)
    ON CONFLICT (contact_key, brand_id, product_id) DO UPDATE
    SET latest_sequence = s.latest_sequence + 1, latest_event_id = v_event_id, desired_state = 'unsubscribed',
        opted_out_at = greatest(s.opted_out_at, v_consent_at), portal_id = v_target.portal_id, updated_at = v_accepted_at
    RETURNING s.latest_sequence INTO v_sequence;
    v_first := coalesce(v_first, v_sequence);
    INSERT INTO subscription_requests
      (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash, created_at,
       sequence, source, occurred_at, consent_at, consent)
    VALUES (v_request_id, v_target.brand_id, v_contact_key, v_target.product_id, 'unsubscribed', v_target.mapping_version,
       CASE WHEN v_target.rank = 0 THEN p_idempotency_key ELSE 'unsubscribe-all:' || p_request_id END, p_request_hash, v_accepted_at,
       v_sequence, p_source, p_occurred_at, v_consent_at, p_consent);
    INSERT INTO hubspot_outbox_events
      (id, request_id, event_type, payload, next_attempt_at, created_at, portal_id, brand_id, lane, sequence, mapping_version, traceparent)
    VALUES (v_event_id, v_request_id, 'subscription.desired-state.v1', v_target.payload, v_accepted_at, v_accepted_at,
       v_target.portal_id, v_target.holder, 0, v_sequence, v_target.mapping_version, p_traceparent);
    v_request_id := hubsync.new_id();
    v_event_id := hubsync.new_id();
  END LOOP;
  UPDATE contact_subscription_state s SET opted_out_at = greatest(s.opted_out_at, v_consent_at)
  WHERE s.contact_key = v_contact_key AND (p_brand_id = '*' OR s.brand_id = p_brand_id) AND s.opted_out_at IS DISTINCT FROM greatest(s.opted_out_at, v_consent_at);
  RETURN QUERY SELECT 'accepted'::text, p_request_id, p_request_hash, 'pending'::text, v_first, v_accepted_at;
END
$$;
-- +goose StatementEnd

-- change_email_v1 gives a contact another address. outcome: changed | unchanged |
-- unknown_brand | unknown_contact | gone | address_taken. A key that two contacts share
-- means the one that it named first.
-- +goose StatementBegin
CREATE FUNCTION hubsync.change_email_v1(p_brand_id text, p_caller_key text, p_email text, p_email_key text)
RETURNS TABLE (outcome text, subscriptions integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_contact record;
  v_other text;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM brands b WHERE b.id = p_brand_id) THEN
    RETURN QUERY SELECT 'unknown_brand'::text, 0;
    RETURN;
  END IF;
  SELECT c.contact_key, c.email_key, c.erasing_at, c.erased_at INTO v_contact
  FROM contact_aliases a JOIN contacts c ON c.contact_key = a.contact_key
  WHERE a.alias_key = p_caller_key
  FOR UPDATE OF c;
  IF NOT FOUND THEN
    RETURN QUERY SELECT 'unknown_contact'::text, 0;
    RETURN;
  END IF;
  IF v_contact.erasing_at IS NOT NULL OR v_contact.erased_at IS NOT NULL THEN
    RETURN QUERY SELECT 'gone'::text, 0;
    RETURN;
  END IF;
  IF v_contact.email_key = p_email_key THEN
    UPDATE contacts c SET email = p_email, updated_at = hubsync.clock() WHERE c.contact_key = v_contact.contact_key AND c.email <> p_email;
    RETURN QUERY SELECT 'unchanged'::text, 0;
    RETURN;
  END IF;
  SELECT c.contact_key INTO v_other FROM contacts c WHERE c.email_key = p_email_key AND c.erased_at IS NULL;
  IF FOUND THEN
    INSERT INTO contact_conflicts AS k (contact_key, kind, detail)
    VALUES (v_contact.contact_key, 'address_taken', v_other)
    ON CONFLICT (contact_key, kind, detail)
    DO UPDATE SET seen_count = k.seen_count + 1, last_seen_at = hubsync.clock(), resolved_at = NULL;
    RETURN QUERY SELECT 'address_taken'::text, 0;
    RETURN;
  END IF;
  UPDATE contacts c
  SET email = p_email, email_key = p_email_key,
      previous_email_keys = array_append(array_remove(c.previous_email_keys, p_email_key), c.email_key),
      updated_at = hubsync.clock()
  WHERE c.contact_key = v_contact.contact_key;
  RETURN QUERY SELECT 'changed'::text, hubsync.readdress_v1(v_contact.contact_key);
END
$$;
-- +goose StatementEnd
