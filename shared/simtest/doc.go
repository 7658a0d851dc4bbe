// Package simtest tests hubsync whole: the real intake, relay, worker and reconcile over
// a real PostgreSQL, between the emulators, with failures at the points where they hurt.
package simtest
