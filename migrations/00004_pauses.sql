-- +goose Up
-- What an operator paused: a row, not a deploy. An empty portal or brand, or lane -1,
-- means every one. Opt-outs go on unless told otherwise.
CREATE TABLE pauses (
  portal_id text NOT NULL DEFAULT '',
  brand_id text NOT NULL DEFAULT '',
  lane smallint NOT NULL DEFAULT -1 CHECK (lane BETWEEN -1 AND 2),
  opt_outs boolean NOT NULL DEFAULT false,
  paused_until timestamptz NOT NULL,
  reason text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT hubsync.now(),
  PRIMARY KEY (portal_id, brand_id, lane)
);
-- How many events may be on their way while a service recovers: doubled by each success,
-- so that an outage's backlog does not arrive at once.
ALTER TABLE service_breakers ADD COLUMN room bigint NOT NULL DEFAULT 1 CHECK (room > 0);
