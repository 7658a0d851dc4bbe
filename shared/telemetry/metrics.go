// Package telemetry names every metric of hubsync once and writes them: a metric is a
// member of a log line in CloudWatch's embedded metric format, so that measuring costs no
// call. The alarms and the dashboard of template.yaml are tested against these names.
// Nothing here takes an address, a token or a text of a caller.
package telemetry

// Namespace holds every metric in CloudWatch.
const Namespace = "hubsync"

// Dimensions. Each metric has Environment; some have Lane or Portal beside it.
const (
	Environment = "Environment"
	Lane        = "Lane"
)

// Unit is a unit as CloudWatch spells it.
type Unit string

// The units in use.
const (
	Count        Unit = "Count"
	Seconds      Unit = "Seconds"
	Milliseconds Unit = "Milliseconds"
)

// Metric is one metric's name, its unit, and the dimension that it has beside
// Environment, if any.
type Metric struct {
	Name      string
	Unit      Unit
	Dimension string
}

// What the functions count and measure. An operator reads the comment in the dashboard.
var (
	// Intake, one line per request.
	DecisionsAccepted = Metric{"DecisionsAccepted", Count, ""}
	DecisionsReplayed = Metric{"DecisionsReplayed", Count, ""}
	RequestsRefused   = Metric{"RequestsRefused", Count, ""} // 4xx
	RequestsFailed    = Metric{"RequestsFailed", Count, ""}  // 5xx
	RequestDuration   = Metric{"RequestDuration", Milliseconds, ""}

	// Relay, one line per run.
	EventsPublished = Metric{"EventsPublished", Count, ""}
	PublishFailures = Metric{"PublishFailures", Count, ""}
	RelayRuns       = Metric{"RelayRuns", Count, ""} // silence is an alarm

	// Worker, one line per message.
	EventsSynced      = Metric{"EventsSynced", Count, ""}
	EventsSuperseded  = Metric{"EventsSuperseded", Count, ""}
	EventsRetried     = Metric{"EventsRetried", Count, ""}
	EventsDied        = Metric{"EventsDied", Count, ""}
	OutcomesUnknown   = Metric{"OutcomesUnknown", Count, ""}   // HubSpot's reply was lost
	Takeovers         = Metric{"Takeovers", Count, ""}         // a claim whose worker was lost
	BudgetExhausted   = Metric{"BudgetExhausted", Count, ""}   // events that waited for the call budget
	SignatureFailures = Metric{"SignatureFailures", Count, ""} // deliveries that are not QStash's
	MessageDuration   = Metric{"MessageDuration", Milliseconds, ""}

	// Reconcile, one line per run.
	SweepRuns         = Metric{"SweepRuns", Count, ""} // silence is an alarm
	CheckRuns         = Metric{"CheckRuns", Count, ""}
	StuckRescheduled  = Metric{"StuckRescheduled", Count, ""}
	DriftCorrected    = Metric{"DriftCorrected", Count, ""}
	OptOutsTakenIn    = Metric{"OptOutsTakenIn", Count, ""}
	OldestUnconverged = Metric{"OldestUnconverged", Seconds, Lane} // since the decision was accepted
	DeadEvents        = Metric{"DeadEvents", Count, ""}            // that still decide their subscription
	DriftListed       = Metric{"DriftListed", Count, ""}           // differences that a repair did not mend
	ChecksHeld        = Metric{"ChecksHeld", Count, ""}            // 1: too many differences, a person must say
	PortalsPaused     = Metric{"PortalsPaused", Count, ""}
)

// All returns every metric, for the test of the template.
func All() []Metric {
	return []Metric{
		DecisionsAccepted, DecisionsReplayed, RequestsRefused, RequestsFailed, RequestDuration,
		EventsPublished, PublishFailures, RelayRuns,
		EventsSynced, EventsSuperseded, EventsRetried, EventsDied, OutcomesUnknown, Takeovers, BudgetExhausted, SignatureFailures, MessageDuration,
		SweepRuns, CheckRuns, StuckRescheduled, DriftCorrected, OptOutsTakenIn, OldestUnconverged, DeadEvents, DriftListed, ChecksHeld, PortalsPaused,
	}
}
