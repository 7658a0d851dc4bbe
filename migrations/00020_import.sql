-- +goose Up
-- Imports: the progress of each file, and one call that stores a chunk of its rows.

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

-- import_v1 decides the rows of one chunk in the order of the arrays, each by accept_v1, so
-- that a file and the API cannot come to decide differently. What it adds: the locks of all
-- rows that exist are taken first, in the order that everybody keeps (contacts, then
-- subscriptions in key order), because the file's order is any order; and the settings, which
-- keep accept_v1's plans on the indexes: a session plans it once, while the tables may still
-- be empty, and that plan has to do for the millionth row.
--
-- Source is 'import', the lane bulk; a row's place in the arrays is its ordinal, from 1 on.
-- outcome: as accept_v1's; with replayed, request_hash says with which request.
-- Raises 23505 as accept_v1 does: then nothing of the chunk was stored.
-- +goose StatementBegin
CREATE FUNCTION hubsync.import_v1(
  p_request_ids uuid[], p_event_ids uuid[], p_brand_ids text[], p_product_ids text[], p_caller_keys text[],
  p_emails text[], p_email_keys text[], p_desired_states text[], p_idempotency_keys text[], p_request_hashes text[],
  p_occurred_at timestamptz[], p_consents jsonb[], p_lane smallint
) RETURNS TABLE (ordinal bigint, outcome text, request_id uuid, request_hash text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
  -- The contacts that the addresses name, FOR SHARE as in accept_v1.
  PERFORM c.contact_key
  FROM contacts c
  WHERE c.email_key = ANY (p_email_keys) AND c.erased_at IS NULL
  ORDER BY c.contact_key
  FOR SHARE;

  PERFORM s.contact_key
  FROM unnest(p_email_keys, p_brand_ids, p_product_ids) AS i (email_key, brand_id, product_id)
  JOIN contacts c ON c.email_key = i.email_key AND c.erased_at IS NULL
  JOIN contact_subscription_state s
    ON s.contact_key = c.contact_key AND s.brand_id = i.brand_id AND s.product_id = i.product_id
  ORDER BY s.contact_key, s.brand_id, s.product_id
  FOR UPDATE OF s;

  -- Each call sees what the calls before it did. OFFSET 0 keeps their order.
  RETURN QUERY
  SELECT i.ordinal, d.outcome, d.request_id, d.request_hash
  FROM (
    SELECT * FROM unnest(
      p_request_ids, p_event_ids, p_brand_ids, p_product_ids, p_caller_keys, p_emails, p_email_keys,
      p_desired_states, p_idempotency_keys, p_request_hashes, p_occurred_at, p_consents)
    WITH ORDINALITY AS x (request_id, event_id, brand_id, product_id, caller_key, email, email_key,
      desired_state, idempotency_key, request_hash, occurred_at, consent, ordinal)
    ORDER BY x.ordinal OFFSET 0) i
  CROSS JOIN LATERAL hubsync.accept_v1(
    i.request_id, i.event_id, i.brand_id, i.product_id, i.caller_key, i.email, i.email_key, i.desired_state,
    i.idempotency_key, i.request_hash, 'import', i.occurred_at, i.consent, p_lane, NULL, interval '0') d;
END
$$;
-- +goose StatementEnd
