-- +goose Up
-- Statistics follow the hot tables by a constant number of changes. As a share (2 % of ten
-- million rows are 200,000) they would still say "the queue is empty" when an outage has
-- filled it, and a plan that believes so walks over the backlog.
ALTER TABLE hubspot_outbox_events SET (autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);
ALTER TABLE contact_subscription_state SET (autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);
ALTER TABLE subscription_requests SET (autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
-- Tables that mostly grow: freeze and mark pages as visible before they are many.
ALTER TABLE contacts SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE contact_aliases SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE hubspot_operation_receipts SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
