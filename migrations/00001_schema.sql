-- +goose Up
-- The tables of hubsync. Times are read only through hubsync.now() and
-- hubsync.clock(), so that a test or a simulation can set the time of a whole
-- database by replacing two functions. Ids are UUIDv7 made by the application:
-- nextval in SQL text would pin a session of RDS Proxy.

CREATE SCHEMA IF NOT EXISTS hubsync;

-- now(): the transaction's time. A plain expression, so the planner inlines it
-- and an index condition stays an index condition.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION hubsync.now() RETURNS timestamptz
LANGUAGE sql STABLE AS $$ SELECT pg_catalog.now() $$;
-- +goose StatementEnd

-- clock(): the time of this very moment, for places that may have waited for a
-- lock: there the transaction's time can be older than what was committed while
-- waiting, and a decision would seem older than the one that it follows.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION hubsync.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT pg_catalog.clock_timestamp() $$;
-- +goose StatementEnd

-- ── Accounts and routing ────────────────────────────────────────────────────

-- A portal is one HubSpot account reached through one app.
CREATE TABLE hubspot_portals (
  id text PRIMARY KEY,
  hub_id bigint NOT NULL,
  api_version text NOT NULL DEFAULT '2026-03',
  burst_limit integer NOT NULL CHECK (burst_limit > 0),
  burst_window_ms integer NOT NULL DEFAULT 10000 CHECK (burst_window_ms > 0),
  daily_limit integer NOT NULL CHECK (daily_limit > 0),
  time_zone text NOT NULL DEFAULT 'UTC',
  capabilities jsonb NOT NULL DEFAULT '{}',
  secret_ref text,
  paused_until timestamptz,
  pause_reason text,
  -- Set by an operator who wants even opt-outs to wait.
  pause_opt_outs boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT hubsync.now(),
  updated_at timestamptz NOT NULL DEFAULT hubsync.now()
);

CREATE TABLE brands (
  id text PRIMARY KEY,
  name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT hubsync.now()
);

CREATE TABLE subscription_products (
  id text PRIMARY KEY,
  created_at timestamptz NOT NULL DEFAULT hubsync.now()
);

-- One version of one brand's mapping. Never edited after it was made: a change
-- is the next version.
CREATE TABLE brand_target_mappings (
  brand_id text NOT NULL REFERENCES brands (id),
  version integer NOT NULL CHECK (version > 0),
  status text NOT NULL DEFAULT 'draft'
    CHECK (status IN ('draft', 'validated', 'active', 'retired')),
  portal_id text NOT NULL REFERENCES hubspot_portals (id),
  business_unit_id bigint,
  content_hash text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT hubsync.now(),
  activated_at timestamptz,
  PRIMARY KEY (brand_id, version)
);
CREATE UNIQUE INDEX brand_target_mappings_one_active
  ON brand_target_mappings (brand_id) WHERE status = 'active';

-- A route: one product of one brand in one mapping version, with the snapshot
-- that its events carry.
CREATE TABLE brand_subscription_routes (
  brand_id text NOT NULL,
  version integer NOT NULL,
  product_id text NOT NULL REFERENCES subscription_products (id),
  portal_id text NOT NULL REFERENCES hubspot_portals (id),
  channel text NOT NULL DEFAULT 'EMAIL',
  subscription_type_id bigint NOT NULL,
  legal_basis text NOT NULL,
  snapshot jsonb NOT NULL,
  active boolean NOT NULL DEFAULT false,
  PRIMARY KEY (brand_id, version, product_id),
  FOREIGN KEY (brand_id, version) REFERENCES brand_target_mappings (brand_id, version)
);
-- Intake finds its route here; a subscription type belongs to one route of a portal.
CREATE UNIQUE INDEX brand_subscription_routes_active
  ON brand_subscription_routes (brand_id, product_id) WHERE active;
CREATE UNIQUE INDEX brand_subscription_routes_cell
  ON brand_subscription_routes (portal_id, subscription_type_id) WHERE active;

CREATE TABLE hubspot_targets (
  brand_id text NOT NULL,
  version integer NOT NULL,
  product_id text NOT NULL,
  ordinal smallint NOT NULL,
  kind text NOT NULL
    CHECK (kind IN ('CONTACT_PROPERTY', 'MANUAL_SEGMENT', 'BRAND_ASSIGNMENT')),
  required boolean NOT NULL,
  settings jsonb NOT NULL,
  PRIMARY KEY (brand_id, version, product_id, ordinal),
  FOREIGN KEY (brand_id, version, product_id)
    REFERENCES brand_subscription_routes (brand_id, version, product_id)
);

-- ── People ──────────────────────────────────────────────────────────────────

-- The address is the identity, because it is HubSpot's. contact_key is the key
-- of the first caller and the value of external_contact_id in HubSpot.
CREATE TABLE contacts (
  contact_key text PRIMARY KEY,
  email text,
  email_key text,
  -- Addresses that this contact had before, normalised: their opt-outs count.
  previous_email_keys text[] NOT NULL DEFAULT '{}',
  -- The newest wide opt-out (all products of all brands).
  opted_out_at timestamptz,
  erasing_at timestamptz,
  erased_at timestamptz,
  email_tombstone bytea,
  created_at timestamptz NOT NULL DEFAULT hubsync.now(),
  updated_at timestamptz NOT NULL DEFAULT hubsync.now(),
  CHECK (erased_at IS NOT NULL OR (email IS NOT NULL AND email_key IS NOT NULL)),
  CHECK (erased_at IS NULL OR (email IS NULL AND email_key IS NULL))
);
CREATE UNIQUE INDEX contacts_email_key ON contacts (email_key) WHERE erased_at IS NULL;
CREATE INDEX contacts_tombstone ON contacts (email_tombstone) WHERE erased_at IS NOT NULL;

-- A brand-wide opt-out also covers subscriptions that do not exist yet.
CREATE TABLE contact_brand_opt_outs (
  contact_key text NOT NULL REFERENCES contacts (contact_key),
  brand_id text NOT NULL REFERENCES brands (id),
  opted_out_at timestamptz NOT NULL,
  PRIMARY KEY (contact_key, brand_id)
);

-- Every key by which callers know a contact, the first one included.
CREATE TABLE contact_aliases (
  alias_key text PRIMARY KEY,
  contact_key text NOT NULL REFERENCES contacts (contact_key),
  created_at timestamptz NOT NULL DEFAULT hubsync.now()
);

-- What an operator should look at: a key that names two addresses' contacts,
-- an address that was changed inside HubSpot, and the like.
CREATE TABLE contact_conflicts (
  contact_key text NOT NULL,
  kind text NOT NULL,
  detail text NOT NULL,
  seen_count integer NOT NULL DEFAULT 1,
  first_seen_at timestamptz NOT NULL DEFAULT hubsync.now(),
  last_seen_at timestamptz NOT NULL DEFAULT hubsync.now(),
  resolved_at timestamptz,
  PRIMARY KEY (contact_key, kind, detail)
);

-- The record that a contact has in a portal, as last confirmed. A merge makes a new
-- record, so nothing is keyed on it.
CREATE TABLE contact_portal_records (
  contact_key text NOT NULL,
  portal_id text NOT NULL,
  hubspot_id text NOT NULL DEFAULT '',
  -- HubSpot had the record before us: its address is never sent.
  adopted boolean NOT NULL DEFAULT false,
  -- One worker at a time makes a contact: a second one, sending the address while the
  -- first adopts a record that has it as a secondary one, would change the primary.
  creating_until timestamptz,
  seen_at timestamptz NOT NULL DEFAULT hubsync.now(),
  PRIMARY KEY (contact_key, portal_id)
);

-- ── Decisions, events, subscriptions ────────────────────────────────────────

CREATE TABLE subscription_requests (
  id uuid PRIMARY KEY,
  brand_id text NOT NULL,
  contact_key text NOT NULL,
  product_id text NOT NULL,
  desired_state text NOT NULL CHECK (desired_state IN ('subscribed', 'unsubscribed')),
  mapping_version integer NOT NULL,
  idempotency_key text NOT NULL,
  request_hash text NOT NULL,
  sync_status text NOT NULL DEFAULT 'pending'
    CHECK (sync_status IN ('pending', 'synced', 'superseded', 'dead', 'cancelled')),
  created_at timestamptz NOT NULL DEFAULT hubsync.now(),
  -- NULL: superseded at once, it never took a place in the order.
  sequence bigint CHECK (sequence > 0),
  source text NOT NULL DEFAULT 'api'
    CHECK (source IN ('api', 'import', 'hubspot', 'unsubscribe_all', 'one_click')),
  -- As claimed by the caller: evidence, never order.
  occurred_at timestamptz,
  -- least(coalesce(occurred_at, accepted_at), accepted_at); an undated subscribe counts
  -- as a little older than its arrival (docs/decisions/0001).
  consent_at timestamptz NOT NULL,
  consent jsonb NOT NULL DEFAULT '{}',
  status_reason text,
  UNIQUE (brand_id, product_id, idempotency_key)
);
CREATE INDEX subscription_requests_subscription
  ON subscription_requests (contact_key, brand_id, product_id, sequence);

CREATE TABLE hubspot_outbox_events (
  id uuid PRIMARY KEY,
  request_id uuid NOT NULL REFERENCES subscription_requests (id),
  event_type text NOT NULL,
  payload jsonb NOT NULL,
  status text NOT NULL DEFAULT 'pending'
    CHECK (status IN ('pending', 'publishing', 'publish_retry', 'queued', 'processing',
                      'process_retry', 'synced', 'superseded', 'dead', 'cancelled')),
  publish_attempts integer NOT NULL DEFAULT 0,
  process_attempts integer NOT NULL DEFAULT 0,
  -- Failures that were not the event's fault: they never make it dead, but the waits
  -- between them grow.
  process_waits integer NOT NULL DEFAULT 0,
  -- The deadline of every state that is not terminal: when a waiting event is
  -- due, when a publishing or processing lease ends, when a queued message
  -- counts as lost. One scan over it finds whatever is stuck.
  next_attempt_at timestamptz NOT NULL DEFAULT hubsync.now(),
  lease_expires_at timestamptz,
  qstash_message_id text,
  last_error_code text,
  last_error_summary text,
  created_at timestamptz NOT NULL DEFAULT hubsync.now(),
  completed_at timestamptz,
  portal_id text NOT NULL,
  brand_id text NOT NULL,
  lane smallint NOT NULL CHECK (lane BETWEEN 0 AND 2),
  sequence bigint CHECK (sequence > 0),
  revision integer NOT NULL DEFAULT 1,
  generation integer NOT NULL DEFAULT 1,
  mapping_version integer NOT NULL,
  claim_token uuid,
  fence bigint,
  travels_alone boolean NOT NULL DEFAULT false,
  superseded_by uuid,
  traceparent text,
  UNIQUE (request_id, event_type, revision),
  CHECK ((status IN ('synced', 'superseded', 'dead', 'cancelled')) = (completed_at IS NOT NULL))
);

-- The relay's claim, both for what is due and for publishing leases that ended:
-- one index per route (portal, lane), so that a paused portal's rows are never
-- walked over.
CREATE INDEX hubspot_outbox_events_due
  ON hubspot_outbox_events (portal_id, lane, brand_id, next_attempt_at)
  WHERE status IN ('pending', 'publishing', 'publish_retry', 'process_retry');
-- The sweep, and the count of what is queued per route.
CREATE INDEX hubspot_outbox_events_in_flight
  ON hubspot_outbox_events (portal_id, lane, next_attempt_at)
  WHERE status IN ('queued', 'processing');
CREATE INDEX hubspot_outbox_events_dead
  ON hubspot_outbox_events (portal_id, completed_at)
  WHERE status = 'dead';

-- The unit of order. latest_* is what was decided, applied_* what HubSpot confirmed.
CREATE TABLE contact_subscription_state (
  contact_key text NOT NULL,
  brand_id text NOT NULL,
  product_id text NOT NULL,
  portal_id text NOT NULL,
  latest_sequence bigint NOT NULL CHECK (latest_sequence > 0),
  latest_event_id uuid NOT NULL,
  desired_state text NOT NULL CHECK (desired_state IN ('subscribed', 'unsubscribed')),
  -- The newest consent time of an opt-out; a later subscribe does not clear it.
  opted_out_at timestamptz,
  applied_sequence bigint NOT NULL DEFAULT 0,
  applied_state text CHECK (applied_state IN ('subscribed', 'unsubscribed')),
  -- The fencing token: raised at every claim, carried by every later write of it.
  fence bigint NOT NULL DEFAULT 0,
  -- Set by a claim, cleared by its holder only. A past value means that the
  -- holder was lost: the next claim is a takeover.
  lease_expires_at timestamptz,
  lease_event_id uuid,
  -- Until then a call of ours may still land in HubSpot.
  uncertain_until timestamptz,
  check_at timestamptz,
  -- HubSpot's timestamp of our own last confirmed opt-out, and the event that wrote
  -- it: a status with this time is an echo, not a person's act.
  own_opt_out_stamp timestamptz,
  own_opt_out_event_id uuid,
  hubspot_status text,
  hubspot_seen_at timestamptz,
  updated_at timestamptz NOT NULL DEFAULT hubsync.now(),
  PRIMARY KEY (contact_key, brand_id, product_id)
);
CREATE INDEX contact_subscription_state_check
  ON contact_subscription_state (portal_id, check_at) WHERE check_at IS NOT NULL;

-- What HubSpot confirmed: a ledger, never a reason to skip. A retry does
-- everything again, consent reads included.
CREATE TABLE hubspot_operation_receipts (
  id uuid PRIMARY KEY,
  event_id uuid NOT NULL,
  operation text NOT NULL,
  desired_hash text NOT NULL,
  outcome text NOT NULL,
  correlation_id text,
  hubspot_at timestamptz,
  confirmed_at timestamptz NOT NULL DEFAULT hubsync.now()
);
CREATE INDEX hubspot_operation_receipts_event ON hubspot_operation_receipts (event_id);

-- ── Operation ───────────────────────────────────────────────────────────────

-- Breakers of services that belong to no portal (QStash refusing our token).
CREATE TABLE service_breakers (
  service text PRIMARY KEY,
  open_until timestamptz NOT NULL,
  reason text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT hubsync.now()
);

-- One row per run, so that silence can raise an alarm.
CREATE TABLE reconcile_runs (
  id uuid PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('sweep', 'check')),
  started_at timestamptz NOT NULL DEFAULT hubsync.now(),
  finished_at timestamptz,
  checked integer NOT NULL DEFAULT 0,
  scheduled integer NOT NULL DEFAULT 0,
  problem text
);
CREATE INDEX reconcile_runs_started ON reconcile_runs (kind, started_at);

-- Hot tables: vacuum by a constant number of dead rows rather than by a share
-- of a growing table, and leave room for updates in the page.
ALTER TABLE hubspot_outbox_events SET (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1,
  autovacuum_vacuum_insert_scale_factor = 0.05, fillfactor = 85);
ALTER TABLE contact_subscription_state SET (
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1, fillfactor = 80);
ALTER TABLE subscription_requests SET (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05, fillfactor = 90);
