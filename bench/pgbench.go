package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"hubsync/shared/local/pgserver"
)

// acceptScript is the statement that intake's handler runs, with ids that grow as
// UUIDv7 do, for another known person each time. Each client numbers its own.
const acceptScript = `\set i :i + 1
\set n :i * :clients + :client_id
SELECT outcome, request_id::text, request_hash, sync_status, sequence, accepted_at
FROM hubsync.accept_v1(
  lpad(:n::text, 32, 'f')::uuid, lpad(:n::text, 32, 'f')::uuid, 'acme', 'newsletter',
  'customer-' || :n::text, 'person-' || :n::text || '@example.com', 'person-' || :n::text || '@example.com', 'subscribed', 'key-' || :n::text,
  '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef', 'api', '2026-01-02T03:04:05Z'::timestamptz,
  '{"legalBasis":"CONSENT_WITH_NOTICE","explanation":"footer form"}'::jsonb, 1::smallint, NULL::text, '5 minutes'::interval);
`

// pgbenchMargin: its clients do not all do the same number, and no key may come twice.
const pgbenchMargin = 1.3

// leastSeconds: in a shorter run the sessions that pgbench makes anew each time, and the
// plans that they have to make first, would count too much.
const leastSeconds = 2

// pgbench measures what the statement alone can do in the same protocol mode.
type pgbench struct {
	bench   *bench
	clients int
	program string
	db      *database
	dir     string
	next    int // number of each client
}

// newPgbench returns nil where the program is not there.
func newPgbench(ctx context.Context, b *bench, clients int) (*pgbench, error) {
	program := findPgbench()
	if program == "" {
		return nil, nil
	}
	db, err := peopleDatabase(ctx, b, knownPeople(b))
	if err != nil {
		return nil, err
	}
	dir, err := db.socketDir()
	return &pgbench{bench: b, clients: clients, program: program, db: db, dir: dir}, err
}

// findPgbench looks beside the server first: its version is the same.
func findPgbench() string {
	if bin, err := pgserver.Find(); err == nil {
		if program, err := exec.LookPath(filepath.Join(bin, "pgbench")); err == nil {
			return program
		}
	}
	program, _ := exec.LookPath("pgbench") // empty where there is none
	return program
}

var tps = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// round runs the script for a round. extended is the protocol that exec mode speaks.
func (p *pgbench) round(ctx context.Context) (float64, error) {
	script, err := os.CreateTemp("", "hubsync-bench-*.sql")
	if err != nil {
		return 0, fmt.Errorf("pgbench script: %w", err)
	}
	defer func() { _ = os.Remove(script.Name()) }() // a temporary file
	if _, err = script.WriteString(acceptScript); err != nil {
		return 0, fmt.Errorf("pgbench script: %w", err)
	}
	if err = script.Close(); err != nil {
		return 0, fmt.Errorf("pgbench script: %w", err)
	}
	seconds := max(math.Round(p.bench.form.round.Seconds()), leastSeconds)
	cmd := exec.CommandContext(ctx, p.program, "-h", p.dir, "-U", "postgres", "-n", "-M", "extended", "-c", strconv.Itoa(p.clients),
		"-j", "2", "-T", strconv.Itoa(int(seconds)), "-D", "i="+strconv.Itoa(p.next), "-D", "clients="+strconv.Itoa(p.clients), "-f", script.Name(), p.db.name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, bytes.TrimSpace(out))
	}
	found := tps.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench said no rate: %s", bytes.TrimSpace(out))
	}
	rate, err := strconv.ParseFloat(string(found[1]), 64)
	p.next += int(rate * seconds * pgbenchMargin / float64(p.clients))
	return rate, err
}
