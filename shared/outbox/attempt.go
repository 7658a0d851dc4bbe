package outbox

import (
	"time"

	"github.com/google/uuid"
)

// Attempt is one claim of an event. Two attempts at one event are two calls, and the
// first of them may land long after the second was confirmed.
type Attempt struct {
	Event uuid.UUID
	Fence int64
}

// Stamp is HubSpot's time of an opt-out of ours, and the attempt that wrote it; zero if
// there is none.
type Stamp struct {
	At time.Time
	Attempt
}
