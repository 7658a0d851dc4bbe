package worker

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/telemetry"
)

func TestEventsCountAsWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	var rows []*row
	ends := map[uuid.UUID]postgres.Settled{}
	add := func(v postgres.Verdict, status outbox.Status, held bool, change func(*row)) {
		r := &row{claim: postgres.Claim{EventID: uuid.New(), Verdict: v}}
		if change != nil {
			change(r)
		}
		rows = append(rows, r)
		ends[r.claim.EventID] = postgres.Settled{EventID: r.claim.EventID, Status: status, Held: held}
	}
	add(postgres.VerdictClaimed, outbox.Synced, true, nil)
	add(postgres.VerdictClaimed, outbox.Synced, false, nil) // the claim was lost: somebody else counts it
	add(postgres.VerdictClaimed, outbox.ProcessRetry, true, func(r *row) { r.failure = failure{code: budgetCode + "burst"} })
	add(postgres.VerdictClaimed, outbox.Dead, true, nil)
	add(postgres.VerdictClaimed, outbox.Superseded, true, func(r *row) { r.claim.Takeover, r.unknown = true, true })
	add(postgres.VerdictApplied, "", false, nil)
	add(postgres.VerdictOvertaken, "", false, nil)
	add(postgres.VerdictExhausted, "", false, nil)
	add(postgres.VerdictBusy, "", false, nil)
	got := map[string]float64{}
	for _, v := range measured(rows, ends, 2*time.Second) {
		got[v.Metric.Name] = v.N
	}
	want := map[string]float64{
		telemetry.MessageDuration.Name: 2000, telemetry.EventsSynced.Name: 2, telemetry.EventsSuperseded.Name: 2, telemetry.EventsRetried.Name: 1,
		telemetry.EventsDied.Name: 2, telemetry.OutcomesUnknown.Name: 1, telemetry.Takeovers.Name: 1, telemetry.BudgetExhausted.Name: 1,
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %v, want %v", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}
