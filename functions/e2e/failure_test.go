package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"hubsync/shared/hubspot/hubspottest"
)

func TestAFunctionThatWasFrozenAnswersOverLostConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mustAccept(t, w, "before@example.com")
	w.settle()
	time.Sleep(idleBound + 300*time.Millisecond)
	lost := w.lose()
	if lost["postgres"] == 0 || lost["hubspot"] == 0 || lost["redis"] == 0 || lost["qstash"] == 0 {
		t.Errorf("there was nothing to lose: %v", lost)
	}
	environments := w.functions["intake"].Environments() + w.functions["worker"].Environments()
	started := time.Now()
	mustAccept(t, w, "after@example.com")
	intakeTook := time.Since(started)
	// Measured from the delivery to HubSpot's having it: relay's own wait is not the worker's.
	w.tick("relay")
	for w.status("after@example.com") != "SUBSCRIBED" && time.Since(started) < 20*time.Second {
		time.Sleep(2 * time.Millisecond)
	}
	took := time.Since(started)
	if n := w.functions["intake"].Environments() + w.functions["worker"].Environments(); n != environments {
		t.Errorf("other environments answered: %d, there were %d", n, environments)
	}
	t.Logf("after a freeze with lost connections: intake answered in %s, HubSpot had the decision %s after it was sent, a relay run and a delivery later", intakeTook.Round(time.Millisecond), took.Round(time.Millisecond))
	if intakeTook > slack(time.Second) {
		t.Errorf("intake answered after %s, must be within 1 s", intakeTook)
	}
	if took > slack(2*time.Second) {
		t.Errorf("HubSpot had the decision after %s, must be within 2 s", took)
	}
}

func mustAccept(t *testing.T, w *world, email string) {
	t.Helper()
	w.serial++
	if code, body := w.postOnce(fmt.Sprint("key-", w.serial), email, "subscribed"); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
}

func TestAWorkerThatIsKilledAtWorkLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, SlowMs: 3000})
	mustAccept(t, w, "killed@example.com")
	w.tick("relay")
	waitFor(t, "the worker to be at work", func() bool {
		return w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE status = 'processing'`) == "1" && len(w.hubspot.Ledger()) > 0
	})
	if n := w.functions["worker"].Crash(); n != 1 {
		t.Fatalf("%d environments crashed", n)
	}
	waitFor(t, "QStash to hear of it", func() bool { return w.qstash.Stats().Retried+w.qstash.Stats().Waiting > 0 })
	w.expireLeases()
	w.tick("reconcile")
	w.settle()
	if got := w.status("killed@example.com"); got != "SUBSCRIBED" {
		t.Errorf("HubSpot has %q", got)
	}
	if w.text(`SELECT (uncertain_until IS NOT NULL)::text FROM contact_subscription_state`) != "true" {
		t.Error("a worker died at work, and nobody is to look again")
	}
}

// expireLeases lets the time pass that a dead worker's claims live.
func (w *world) expireLeases() {
	w.t.Helper()
	for _, sql := range []string{
		`UPDATE hubspot_outbox_events SET lease_expires_at = now() WHERE lease_expires_at IS NOT NULL`,
		`UPDATE contact_subscription_state SET lease_expires_at = now() WHERE lease_expires_at IS NOT NULL`,
	} {
		if _, err := w.pool.Exec(w.t.Context(), sql); err != nil {
			w.t.Fatal(err)
		}
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

func TestAWorkerWhoseTimeIsTooShortStartsNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.workerTimeout = 3 * time.Second })
	mustAccept(t, w, "short@example.com")
	w.tick("relay")
	waitFor(t, "the message to be answered", func() bool {
		return w.text(`SELECT count(*)::text FROM hubspot_outbox_events WHERE last_error_code = 'lease_too_short'`) == "1"
	})
	if calls := len(w.hubspot.Ledger()); calls != 0 || w.functions["worker"].Environments() != 1 {
		t.Errorf("%d calls were started that may not end in time", calls)
	}
	w.workerTimeout = 0
	w.deployOne("worker")
	w.retryNow()
	w.settle()
	if got := w.status("short@example.com"); got != "SUBSCRIBED" {
		t.Errorf("HubSpot has %q", got)
	}
}

// retryNow lets the time pass that retries wait.
func (w *world) retryNow() {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), `UPDATE hubspot_outbox_events SET next_attempt_at = now() WHERE status IN ('publish_retry', 'process_retry')`); err != nil {
		w.t.Fatal(err)
	}
}

func TestADatabaseThatDoesNotAnswerEndsNoInvocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.intakeTimeout = 1500 * time.Millisecond })
	mustAccept(t, w, "before@example.com")
	w.holes["postgres"].lose()
	w.holes["postgres"].swallow(true)
	for range 2 { // the second finds what the first left
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.apiURL+"/v1/brands/acme/subscription-requests/01a231c8-48e3-7986-ae88-d61530135162", nil)
		if err != nil {
			t.Fatal(err)
		}
		if code, body := w.do(r); code != http.StatusServiceUnavailable || !strings.Contains(body, "database-unavailable") {
			t.Errorf("%d %s, must be the function's own 503", code, body)
		}
	}
	if n := w.functions["intake"].Environments(); n != 1 {
		t.Errorf("%d environments are left: intake was killed at its timeout", n)
	}
	w.holes["postgres"].swallow(false)
	time.Sleep(idleBound + 100*time.Millisecond)
	started := time.Now()
	mustAccept(t, w, "after@example.com")
	took := time.Since(started)
	t.Logf("a database that hung answers again: intake answered in %s", took.Round(time.Millisecond))
	if took > slack(time.Second) {
		t.Errorf("intake answered after %s, must be within 1 s", took)
	}
}

func TestSIGTERMClosesTheConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mustAccept(t, w, "sigterm@example.com")
	w.settle()
	if w.holes["postgres"].count() == 0 {
		t.Fatal("no function holds a connection")
	}
	for name, f := range w.functions {
		n := f.Environments()
		if ended := f.Recycle(); ended != n {
			t.Errorf("%s: %d of %d environments ended by themselves at SIGTERM", name, ended, n)
		}
	}
	for _, name := range []string{"postgres", "redis"} {
		waitFor(t, "the connections to "+name+" to be closed", func() bool { return w.holes[name].count() == 0 })
	}
}

func TestWhatIsNoEventHarmsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"intake", "worker", "reconcile"} {
		f := w.functions[name]
		for i, payload := range []string{`{}`, `[]`, `"x"`, `{"requestContext":{"http":{"method":"bad method"}}}`} {
			if name == "reconcile" && i > 0 && i < 3 {
				continue // anything without a request starts its run
			}
			r, err := f.Invoke(t.Context(), []byte(payload))
			t.Logf("%s %s: %s %v", name, payload, r.Payload, err)
		}
		if n := f.Environments(); n != 1 {
			t.Errorf("%s: %d environments are left of 1", name, n)
		}
	}
	if r, err := w.functions["admin"].Invoke(t.Context(), []byte(`{"verb":"drop"}`)); err != nil || !strings.Contains(string(r.Payload), `verb \"drop\" is not one of`) {
		t.Errorf("admin takes any verb: %v %s", err, r.Payload)
	}
	r, err := w.functions["admin"].Invoke(t.Context(), []byte(`{"verb":"migrate"}`))
	if err != nil {
		t.Errorf("migrate through the pooler: %v %s", err, r.Payload)
	}
}

func TestThrottledDeliveriesComeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.workerConcurrency = 1 })
	for i := range 3 {
		mustAccept(t, w, fmt.Sprintf("throttled%d@example.com", i))
	}
	w.hubspot.SetFaults(hubspottest.Fault{Probability: 1, Count: 1, SlowMs: 200})
	// A message each: three deliveries at once for one environment.
	if _, err := w.pool.Exec(t.Context(), `UPDATE hubspot_outbox_events SET travels_alone = true`); err != nil {
		t.Fatal(err)
	}
	w.settle()
	for i := range 3 {
		if got := w.status(fmt.Sprintf("throttled%d@example.com", i)); got != "SUBSCRIBED" {
			t.Errorf("contact %d: %q", i, got)
		}
	}
}
