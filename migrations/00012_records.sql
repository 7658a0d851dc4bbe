-- +goose Up
-- HubSpot's notifications name records.
CREATE INDEX contact_portal_records_record ON contact_portal_records (portal_id, hubspot_id) WHERE hubspot_id <> '';
