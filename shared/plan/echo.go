package plan

import (
	"strconv"
	"strings"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
)

// maxExplanation keeps a consent text and its marker within what HubSpot takes.
const maxExplanation = 2000

// marker is an opaque reference to the attempt that wrote a preference:
// [hubsync:<env>:<u|s>:<event id>.<fence>]. The environment is part of it, because an
// opt-out that a test system wrote into the same account is not our own; the fence,
// because an attempt whose answer was lost may land after a later one was confirmed.
func marker(env string, desired outbox.DesiredState, a outbox.Attempt) string {
	direction := "s"
	if desired == outbox.Unsubscribed {
		direction = "u"
	}
	return markerPrefix(env, direction) + a.Event.String() + "." + strconv.FormatInt(a.Fence, 10) + "]"
}

func markerPrefix(env, direction string) string { return "[hubsync:" + env + ":" + direction + ":" }

func withMarker(explanation, mark string) string {
	if explanation == "" {
		return mark
	}
	if room := maxExplanation - len(mark) - 1; len(explanation) > room {
		explanation = strings.ToValidUTF8(explanation[:room], "")
	}
	return explanation + " " + mark
}

// OwnOptOutMarker returns the attempt whose opt-out wrote a status, by the marker at
// the end of its explanation, where the portal returns that. Only the end counts: a
// caller's own consent text stands before the marker.
func OwnOptOutMarker(env, explanation string) (outbox.Attempt, bool) {
	prefix := markerPrefix(env, "u")
	start := strings.LastIndex(explanation, prefix)
	if start < 0 || !strings.HasSuffix(explanation, "]") {
		return outbox.Attempt{}, false
	}
	id, number, _ := strings.Cut(explanation[start+len(prefix):len(explanation)-1], ".")
	event, err := uuid.Parse(id)
	if err != nil || id != event.String() {
		return outbox.Attempt{}, false
	}
	fence, err := strconv.ParseInt(number, 10, 64)
	if err != nil || number != strconv.FormatInt(fence, 10) {
		return outbox.Attempt{}, false
	}
	return outbox.Attempt{Event: event, Fence: fence}, true
}
