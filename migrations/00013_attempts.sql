-- +goose Up
-- Which attempt at its event wrote the opt-out whose time is known: an earlier attempt
-- whose answer was lost may land late, and is told apart from a person's act by this.
ALTER TABLE contact_subscription_state ADD COLUMN own_opt_out_fence bigint;
