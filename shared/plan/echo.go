package plan

import (
	"strings"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
)

// maxExplanation keeps a consent text and its marker within what HubSpot takes.
const maxExplanation = 2000

// marker is an opaque reference to the event that wrote a preference:
// [hubsync:<env>:<u|s>:<event id>]. The environment is part of it, because an
// opt-out that a test system wrote into the same account is not our own.
func marker(env string, desired outbox.DesiredState, event uuid.UUID) string {
	direction := "s"
	if desired == outbox.Unsubscribed {
		direction = "u"
	}
	return markerPrefix(env, direction) + event.String() + "]"
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

// OwnOptOutMarker returns the event whose opt-out wrote a status, by the marker at
// the end of its explanation, where the portal returns that. Only the end counts: a
// caller's own consent text stands before the marker.
func OwnOptOutMarker(env, explanation string) (uuid.UUID, bool) {
	prefix := markerPrefix(env, "u")
	start := strings.LastIndex(explanation, prefix)
	if start < 0 || !strings.HasSuffix(explanation, "]") {
		return uuid.Nil, false
	}
	text := explanation[start+len(prefix) : len(explanation)-1]
	id, err := uuid.Parse(text)
	return id, err == nil && text == id.String()
}
