-- +goose Up
-- What operators did: one row per verb that changes something, written before it runs.
CREATE TABLE operator_actions (
  id uuid PRIMARY KEY,
  actor text NOT NULL,
  verb text NOT NULL,
  args jsonb NOT NULL,
  started_at timestamptz NOT NULL DEFAULT hubsync.clock(),
  finished_at timestamptz,
  result jsonb,
  problem text
);
CREATE INDEX operator_actions_started ON operator_actions (started_at);

-- When QStash took an event first: a line of the evidence.
ALTER TABLE hubspot_outbox_events ADD COLUMN published_at timestamptz;
