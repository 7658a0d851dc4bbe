// Package e2e runs the real bootstraps under a Lambda of our own, with a real Redis, a
// PostgreSQL behind PgBouncer in transaction mode, and the emulators of QStash and
// HubSpot: what is deployed is what is tested.
package e2e
