package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A database role for each function, with what its statements need and no more: whoever
// gets hold of the relay reads no person. Rights are stated anew after every migration, so
// a table that a migration adds needs a line here.

// Role is a function's role in the database.
type Role struct {
	Name string
	// Settings are set on the role, because setting them on a session would pin it in
	// RDS Proxy.
	Settings map[string]string
	// Grants are privileges by table, as GRANT spells them.
	Grants map[string]string
}

// statementTimeouts are above what a function waits for by itself, so that its own
// deadline speaks first; an idle transaction holds locks that everybody needs.
func settings(statement, lock string) map[string]string {
	return map[string]string{"statement_timeout": statement, "lock_timeout": lock, "idle_in_transaction_session_timeout": "15s"}
}

const (
	read       = "SELECT"
	readAdd    = "SELECT, INSERT"
	readChange = "SELECT, UPDATE"
	readWrite  = "SELECT, INSERT, UPDATE"
	readAll    = "SELECT, INSERT, UPDATE, DELETE"
)

// Roles are the functions' roles.
var Roles = []Role{
	{"hubsync_intake", settings("9s", "2s"), map[string]string{
		"brands": read, "subscription_products": read, "brand_target_mappings": read, "brand_subscription_routes": read, "hubspot_portals": read,
		"contacts": readWrite, "contact_aliases": readWrite, "contact_conflicts": readWrite, "contact_brand_opt_outs": readWrite,
		"contact_portal_records":     read, // HubSpot's notifications name records
		"contact_subscription_state": readWrite, "subscription_requests": readWrite, "hubspot_outbox_events": readWrite,
		"settled_keys": read, "retention": read, "every_request": read, "every_event": read,
	}},
	{"hubsync_relay", settings("20s", "5s"), map[string]string{
		"brands": read, "hubspot_portals": read, "pauses": read, "service_breakers": readAll, "hubspot_outbox_events": readChange,
		// Of a request it says only that it died, by its id.
		"subscription_requests": "SELECT (id), UPDATE (sync_status, status_reason)",
	}},
	{"hubsync_worker", settings("20s", "5s"), map[string]string{
		"brands": read, "pauses": read, "brand_subscription_routes": read, "hubspot_portals": readChange, "service_breakers": readAll,
		// Its commit never writes contacts: that order of locks made deadlocks.
		"contacts": read, "contact_brand_opt_outs": read, "contact_conflicts": readWrite, "contact_portal_records": readWrite,
		"contact_subscription_state": readChange, "subscription_requests": readWrite, "hubspot_outbox_events": readWrite,
		"hubspot_operation_receipts": readAdd,
	}},
	{"hubsync_reconcile", settings("30s", "5s"), map[string]string{
		"brands": read, "pauses": read, "brand_subscription_routes": read, "hubspot_portals": read, "service_breakers": read,
		"contacts": read, "contact_brand_opt_outs": read, "contact_portal_records": read, "contact_conflicts": readWrite,
		"contact_subscription_state": readChange, "subscription_requests": readWrite, "hubspot_outbox_events": readWrite,
		"drift_listings": readWrite, "reconcile_runs": readWrite,
	}},
}

// forOperators are the tables that no function's role may touch: they are for the admin
// function, which connects as the database's owner. History is written by a function of
// the owner's.
var forOperators = []string{
	"hubspot_targets", "operator_actions", "imports", "goose_db_version",
	"subscription_requests_history", "hubspot_outbox_events_history", "hubspot_operation_receipts_history", "every_receipt",
}

// GrantRoles makes the roles that are missing and gives each exactly its rights, in one
// transaction. It needs the right to make roles, as the owner of an RDS database has it,
// and like Migrate connects to the database itself. Where the server knows RDS's role for
// IAM tokens, the roles may use them.
func GrantRoles(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return errors.New("grant roles: the database cannot be reached with its URL")
	}
	defer func() { _ = conn.Close(ctx) }() // the work's error is what counts
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Two deployments at once take turns; roles are of the whole server.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('hubsync roles'))`); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		for _, r := range Roles {
			if err := r.grant(ctx, tx); err != nil {
				return fmt.Errorf("role %s: %w", r.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("grant roles: %w; the user that migrates must be the tables' owner and may make roles (CREATEROLE)", err)
	}
	return nil
}

const makeRole = `
DO $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '%[1]s') THEN
    CREATE ROLE %[1]s LOGIN;
  END IF;
  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'rds_iam') THEN
    GRANT rds_iam TO %[1]s;
  END IF;
END $$`

// grant takes everything away and gives what the table says; nobody sees the time between.
// Names are constants above: nothing here comes from outside.
func (r Role) grant(ctx context.Context, tx pgx.Tx) error {
	statements := []string{
		fmt.Sprintf(makeRole, r.Name),
		"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM " + r.Name,
		"GRANT USAGE ON SCHEMA public, hubsync TO " + r.Name,
	}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		statements = append(statements, fmt.Sprintf("ALTER ROLE %s SET %s = '%s'", r.Name, name, r.Settings[name]))
	}
	for _, table := range slices.Sorted(maps.Keys(r.Grants)) {
		statements = append(statements, fmt.Sprintf("GRANT %s ON %s TO %s", r.Grants[table], table, r.Name))
	}
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s); err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
			return fmt.Errorf("%s: %w", first, err)
		}
	}
	return nil
}
