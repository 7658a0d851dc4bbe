package postgres_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
)

// intakeWorld is a database with one brand that has one product.
func intakeWorld(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := postgrestest.New(t)
	for _, sql := range []string{
		`INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit) VALUES ('main', 1, 150, 500000)`,
		`INSERT INTO brands VALUES ('acme', 'Acme')`,
		`INSERT INTO subscription_products VALUES ('newsletter')`,
		`INSERT INTO brand_target_mappings (brand_id, version, status, portal_id, content_hash) VALUES ('acme', 1, 'active', 'main', 'x')`,
		`INSERT INTO brand_subscription_routes (brand_id, version, product_id, portal_id, subscription_type_id, legal_basis, snapshot, active)
		 VALUES ('acme', 1, 'newsletter', 'main', 1, 'NON_GDPR', '{}', true)`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

func someDecision(key string) postgres.Decision {
	return postgres.Decision{
		RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()),
		BrandID: "acme", ProductID: "newsletter", ContactKey: "usr_1", Email: "Ann@example.com", EmailKey: "ann@example.com",
		DesiredState: outbox.Subscribed, IdempotencyKey: key, RequestHash: "v1:x", Source: "api", Lane: outbox.LaneLive,
	}
}

// countingConn counts writes: in exec mode a query is flushed in one, so the
// writes of a connection that is set up are its round trips.
type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func TestIntakeCostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	var writes atomic.Int64
	config := intakeWorld(t).Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return countingConn{conn, &writes}, nil
	}
	config.MaxConns, config.MinConns = 1, 0
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := postgres.New(pool)
	if err := db.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var first postgres.DecisionReceipt
	for name, call := range map[string]func() error{
		"accept": func() (err error) { first, err = db.Accept(t.Context(), someDecision("a")); return err },
		"another": func() error {
			r, err := db.Accept(t.Context(), someDecision("b"))
			if r.Outcome != postgres.DecisionAccepted {
				t.Errorf("outcome %s", r.Outcome)
			}
			return err
		},
		"request":       func() error { _, _, err := db.RequestState(t.Context(), "acme", first.RequestID); return err },
		"subscriptions": func() error { _, err := db.ContactSubscriptions(t.Context(), "acme", "usr_1"); return err },
		"ping":          func() error { return db.Ping(t.Context()) },
	} {
		before := writes.Load()
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if trips := writes.Load() - before; trips != 1 {
			t.Errorf("%s took %d round trips", name, trips)
		}
	}
	before := writes.Load()
	replay, err := db.Accept(t.Context(), someDecision("a"))
	if err != nil || replay.Outcome != postgres.DecisionReplayed || writes.Load()-before != 1 {
		t.Errorf("replay %+v, %v, %d round trips", replay, err, writes.Load()-before)
	}
}

// I7: neither the server's message nor the driver's may carry a parameter out.
func TestIntakeErrorsQuoteNothing(t *testing.T) {
	t.Parallel()
	db := postgres.New(intakeWorld(t))
	for name, spoil := range map[string]func(*postgres.Decision){
		"text that cannot be stored": func(d *postgres.Decision) { d.Email = "canary\x00@example.com" },
		"evidence that is no JSON":   func(d *postgres.Decision) { d.Consent = `{"canary@example.com"` },
		"a state that does not exist": func(d *postgres.Decision) {
			d.DesiredState = "canary@example.com"
		},
		"a key too long for its index": func(d *postgres.Decision) {
			d.IdempotencyKey = "canary"
			for range 300 { // what repeats would be compressed
				d.IdempotencyKey += uuid.NewString()
			}
		},
	} {
		d := someDecision(name)
		spoil(&d)
		_, err := db.Accept(t.Context(), d)
		if err == nil || strings.Contains(err.Error(), "canary") || errors.Is(err, postgres.ErrBusy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Accept(cancelled, someDecision("c")); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("cancelled: %v", err)
	}
}
