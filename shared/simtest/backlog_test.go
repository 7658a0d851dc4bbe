package simtest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// backlogSize is how many subscriptions wait; BACKLOG sets another size.
func backlogSize(t *testing.T) int {
	t.Helper()
	text := os.Getenv("BACKLOG")
	if text == "" {
		return 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 {
		t.Fatalf("BACKLOG=%q: a number from 100 on", text)
	}
	return n
}

func (h *hours) acceptMany(n int, state outbox.DesiredState, lane outbox.Lane) {
	h.t.Helper()
	at := h.clock.Now()
	for i := range n {
		h.serial++
		email := fmt.Sprintf("p%d@example.com", i)
		if _, err := h.db.Accept(h.t.Context(), postgres.Decision{
			RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: "acme", ProductID: "news", ContactKey: email, Email: email, EmailKey: email,
			DesiredState: state, IdempotencyKey: fmt.Sprint("backlog-", h.serial), RequestHash: "h", Source: "import", OccurredAt: &at, Lane: lane,
		}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// What counts under HubSpot's limit is contacts converged per call.
func TestCallsPerSubscriptionOfABacklog(t *testing.T) {
	t.Parallel()
	h := newHours(t)
	n := backlogSize(t)
	before := 0
	for _, tc := range []struct {
		state outbox.DesiredState
		most  float64
	}{{outbox.Subscribed, 0.05}, {outbox.Unsubscribed, 0.03}} {
		h.acceptMany(n, tc.state, outbox.LaneBulk)
		for h.open() != "0" {
			h.pass(5*time.Second, time.Second, nil)
		}
		calls := h.hubspot.CallCount("main")
		per := float64(calls-before) / float64(n)
		t.Logf("%s with a property: %d calls for %d subscriptions, %.4f each", tc.state, calls-before, n, per)
		// A small backlog does not fill its last messages, nor a window.
		if per > tc.most && (n >= 10_000 || per > 1.2*tc.most) {
			t.Errorf("%s: %.4f calls per subscription, at most %.2f", tc.state, per, tc.most)
		}
		before = calls
	}
	if most := h.hubspot.MaxInWindow("main", 10*time.Second); most > 1000 {
		t.Errorf("%d calls in a window of 1000", most)
	}
}
