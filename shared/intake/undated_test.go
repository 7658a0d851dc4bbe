package intake

import (
	"log/slog"
	"testing"
	"time"

	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
)

// An undated subscribe may be a delayed one: within the window it must not lift an
// opt-out, after it it does, and a date settles the matter either way (decision 0001).
func TestAnUndatedSubscribeDoesNotOvertakeAnOptOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.handler = New(Config{DB: postgres.New(w.pool), Logger: slog.New(slog.DiscardHandler), UndatedWindow: time.Minute})
	began := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	postgrestest.SetClock(t, w.pool, began)
	decide := func(state, at, want string) {
		t.Helper()
		if got := w.request(w.decide("usr_1", "ann@example.com", "newsletter", state, at)); got.Status != want {
			t.Errorf("%s at %q after %s: %s, want %s", state, at, time.Since(began), got.Status, want)
		}
	}
	decide("subscribed", "", "pending") // nothing to overtake
	decide("unsubscribed", "", "pending")
	postgrestest.Advance(t, w.pool, 30*time.Second)
	decide("subscribed", "", "superseded")
	decide("subscribed", "2026-03-02T12:00:10Z", "pending") // dated after the opt-out
	decide("unsubscribed", "", "pending")
	postgrestest.Advance(t, w.pool, time.Minute)
	decide("subscribed", "", "superseded") // a tie goes to the opt-out
	postgrestest.Advance(t, w.pool, time.Second)
	decide("subscribed", "", "pending")
}
