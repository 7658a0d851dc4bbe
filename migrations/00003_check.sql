-- +goose Up
-- What the check needs: the difference that was repaired last, what is listed because
-- a repair did not mend it, and runs that stopped and ask.
ALTER TABLE contact_subscription_state ADD COLUMN repaired_difference text;
CREATE INDEX contact_subscription_state_uncertain
  ON contact_subscription_state (portal_id, check_at) WHERE uncertain_until IS NOT NULL;

CREATE TABLE drift_listings (
  contact_key text NOT NULL,
  brand_id text NOT NULL,
  product_id text NOT NULL,
  difference text NOT NULL,
  first_seen_at timestamptz NOT NULL DEFAULT hubsync.now(),
  last_seen_at timestamptz NOT NULL DEFAULT hubsync.now(),
  resolved_at timestamptz,
  PRIMARY KEY (contact_key, brand_id, product_id, difference)
);

-- A run that would have repaired too much: nothing is repaired until somebody approved it.
ALTER TABLE reconcile_runs ADD COLUMN held_at timestamptz;
ALTER TABLE reconcile_runs ADD COLUMN approved_at timestamptz;
CREATE INDEX reconcile_runs_held ON reconcile_runs (held_at) WHERE held_at IS NOT NULL AND approved_at IS NULL;
