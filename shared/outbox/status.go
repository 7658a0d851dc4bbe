package outbox

// Status is the state of an event.
type Status string

// The states. Every state that is not terminal has a deadline in next_attempt_at.
const (
	Pending      Status = "pending"       // accepted, waits for the relay
	Publishing   Status = "publishing"    // a relay holds it until its lease ends
	PublishRetry Status = "publish_retry" // publishing failed, due again later
	Queued       Status = "queued"        // QStash has it; lost if nothing is heard within the delivery window
	Processing   Status = "processing"    // a worker holds it until its lease ends
	ProcessRetry Status = "process_retry" // due again later, in a new generation
	Synced       Status = "synced"        // HubSpot confirmed it
	Superseded   Status = "superseded"    // a newer decision, or an opt-out, took its place
	Dead         Status = "dead"          // failed for a reason that waiting does not mend; listed, replayable
	Cancelled    Status = "cancelled"     // the contact was erased
)

// Statuses lists every state, in the order of an event's life.
var Statuses = []Status{
	Pending, Publishing, PublishRetry, Queued, Processing, ProcessRetry,
	Synced, Superseded, Dead, Cancelled,
}

// transitions is the one table of legal moves; SQL and diagram are tested
// against it. Every state that is not terminal may become processing, because a
// message can arrive before its mark, and each of them may be superseded (by a
// newer decision at the claim) or cancelled (by an erasure).
var transitions = map[Status][]Status{
	Pending:      {Publishing, Processing, ProcessRetry, Synced, Superseded, Cancelled},
	Publishing:   {Publishing, Queued, PublishRetry, Processing, ProcessRetry, Synced, Superseded, Dead, Cancelled},
	PublishRetry: {Publishing, Processing, ProcessRetry, Synced, Superseded, Cancelled},
	Queued:       {Processing, ProcessRetry, Synced, Superseded, Cancelled},
	Processing:   {Processing, ProcessRetry, Synced, Superseded, Dead, Cancelled},
	ProcessRetry: {Publishing, Processing, ProcessRetry, Synced, Superseded, Dead, Cancelled},
}

// Terminal reports whether an event in this state is settled for good.
func (s Status) Terminal() bool {
	return s == Synced || s == Superseded || s == Dead || s == Cancelled
}

// CanBecome reports whether the move from s to next is legal.
func (s Status) CanBecome(next Status) bool {
	for _, t := range transitions[s] {
		if t == next {
			return true
		}
	}
	return false
}
