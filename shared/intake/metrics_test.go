package intake

import (
	"testing"
	"time"

	"hubsync/shared/telemetry"
)

func TestRequestsCountAsWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		outcome string
		want    telemetry.Metric
	}{
		{202, "accepted", telemetry.DecisionsAccepted}, {202, "superseded", telemetry.DecisionsAccepted}, {200, "replayed", telemetry.DecisionsReplayed},
		{400, "invalid-request", telemetry.RequestsRefused}, {422, "key-reused", telemetry.RequestsRefused}, {503, "database-unavailable", telemetry.RequestsFailed},
		{500, "internal", telemetry.RequestsFailed}, {200, "told", telemetry.Metric{}},
	} {
		got := measured(c.status, c.outcome, 3*time.Millisecond)
		if got[0] != telemetry.Lasted(telemetry.RequestDuration, 3*time.Millisecond) {
			t.Errorf("%d: no duration in %v", c.status, got)
		}
		if c.want == (telemetry.Metric{}) {
			if len(got) != 1 {
				t.Errorf("%d %s: %v", c.status, c.outcome, got)
			}
		} else if len(got) != 2 || got[1] != telemetry.Of(c.want, 1) {
			t.Errorf("%d %s: %v, want %s", c.status, c.outcome, got, c.want.Name)
		}
	}
}
