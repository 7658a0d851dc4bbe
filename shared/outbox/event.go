// Package outbox says what an outbox event is: its states and the moves between
// them, its lanes, the message that refers to it, and how long a failed one
// waits. It does no I/O; the database's CHECK, the table here and the diagram in
// docs/ are tested to be the same.
package outbox

import (
	"math"
	"time"
)

// EventType names what an event asks for: "make HubSpot show this sequence under
// this mapping version".
const EventType = "subscription.desired-state.v1"

// Lane is an event's urgency. Lower lanes are claimed, delivered and budgeted first.
type Lane int16

// The lanes. An unsubscribe is always in LaneOptOut, whatever its source.
const (
	LaneOptOut Lane = 0
	LaneLive   Lane = 1
	LaneBulk   Lane = 2 // imports, corrections and replays of subscribes
)

// Lanes lists every lane, the most urgent first.
var Lanes = []Lane{LaneOptOut, LaneLive, LaneBulk}

func (l Lane) String() string {
	switch l {
	case LaneOptOut:
		return "optout"
	case LaneLive:
		return "live"
	case LaneBulk:
		return "bulk"
	}
	return "unknown"
}

// DesiredState is what a decision asks for.
type DesiredState string

// The two decisions there are.
const (
	Subscribed   DesiredState = "subscribed"
	Unsubscribed DesiredState = "unsubscribed"
)

// Defaults of the protocol, in the design's words. Where an operator would want
// another value it is a field of the stage's Config.
const (
	RelayLease     = 2 * time.Minute  // a claimed event whose relay is gone is claimed again after this
	WorkerLease    = 90 * time.Second // subscription and event; above the worker's time limit and QStash's timeout
	WorkerLimit    = 60 * time.Second // how long one message may be worked on
	DeliverTimeout = 75 * time.Second // Upstash-Timeout: above WorkerLimit, or QStash retries beside a living run
	DeliveryWindow = 10 * time.Minute // a queued event without a word for so long counts as lost
	LateWindow     = 10 * time.Minute // L: how long a call may land late in HubSpot
	CallTimeout    = 10 * time.Second // one HubSpot call
	AuditPeriod    = 24 * time.Hour   // every subscription is compared with HubSpot once in this time
	MaxAttempts    = 8                // failed settles and takeovers before an event is dead
	MaxMessage     = 100              // event ids in one QStash message: HubSpot's batch size
	RetryFloor     = 2 * time.Second  // failed events wait between RetryFloor and RetryCap, with full jitter
	RetryCap       = 10 * time.Minute
	UndatedWindow  = time.Minute     // an undated subscribe this soon after an opt-out does not lift it
	PublishCap     = 5 * time.Minute // publishing is retried for ever, at most this far apart
)

// Backoff returns how long to wait before attempt+1, drawn with full jitter from
// [floor, min(limit, floor·2^attempt)]. random returns a number in [0, 1).
// Full jitter: a thousand events that failed together must not come back together.
func Backoff(attempt int, floor, limit time.Duration, random func() float64) time.Duration {
	ceiling := float64(floor) * math.Pow(2, float64(max(attempt, 0)))
	if ceiling > float64(limit) {
		ceiling = float64(limit)
	}
	return floor + time.Duration(random()*(ceiling-float64(floor)))
}
