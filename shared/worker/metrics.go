package worker

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/telemetry"
)

// measured is what a message counts as.
func measured(rows []*row, ends map[uuid.UUID]postgres.Settled, took time.Duration) []telemetry.Value {
	counts := map[telemetry.Metric]int{}
	for _, r := range rows {
		if r.claim.Takeover {
			counts[telemetry.Takeovers]++
		}
		if r.unknown {
			counts[telemetry.OutcomesUnknown]++
		}
		if strings.HasPrefix(r.failure.code, budgetCode) {
			counts[telemetry.BudgetExhausted]++
		}
		if m, ok := endedAs(r.claim.Verdict, ends[r.claim.EventID]); ok {
			counts[m]++
		}
	}
	values := []telemetry.Value{telemetry.Lasted(telemetry.MessageDuration, took)}
	for _, m := range []telemetry.Metric{
		telemetry.EventsSynced, telemetry.EventsSuperseded, telemetry.EventsRetried, telemetry.EventsDied,
		telemetry.OutcomesUnknown, telemetry.Takeovers, telemetry.BudgetExhausted,
	} {
		if counts[m] > 0 {
			values = append(values, telemetry.Of(m, counts[m]))
		}
	}
	return values
}

// endedAs is the metric of what became of an event: at the claim, or at the commit if the
// claim was still ours.
func endedAs(v postgres.Verdict, end postgres.Settled) (telemetry.Metric, bool) {
	switch v {
	case postgres.VerdictOvertaken:
		return telemetry.EventsSuperseded, true
	case postgres.VerdictApplied:
		return telemetry.EventsSynced, true
	case postgres.VerdictExhausted:
		return telemetry.EventsDied, true
	case postgres.VerdictClaimed:
		if !end.Held {
			return telemetry.Metric{}, false
		}
	default:
		return telemetry.Metric{}, false
	}
	m, ok := settledAs[end.Status]
	return m, ok
}

// settledAs is the metric of the states in which a commit leaves an event.
var settledAs = map[outbox.Status]telemetry.Metric{
	outbox.Synced: telemetry.EventsSynced, outbox.Superseded: telemetry.EventsSuperseded,
	outbox.Dead: telemetry.EventsDied, outbox.ProcessRetry: telemetry.EventsRetried,
}
