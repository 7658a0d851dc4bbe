package outbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	json "github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// ErrMessage says that a message's body is not one of ours; it will never be.
var ErrMessage = errors.New("message body is not {\"eventIds\":[…]} with 1 to 100 UUIDs")

// message is the body of one QStash message: references only, never data.
type message struct {
	EventIDs []string `json:"eventIds,omitempty"`
	EventID  string   `json:"eventId,omitempty"` // the seed's form, still accepted
}

// EncodeMessage returns the body for up to MaxMessage event ids.
func EncodeMessage(ids []uuid.UUID) ([]byte, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return json.Marshal(message{EventIDs: texts})
}

// DecodeMessage reads a message's body: {"eventIds":[…]} or {"eventId":"…"}, one
// value, exact member names, canonical UUIDs. Twin ids are returned once. Every
// error is ErrMessage.
func DecodeMessage(body []byte) ([]uuid.UUID, error) {
	var m message
	if err := json.UnmarshalRead(bytes.NewReader(body), &m, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: not the expected JSON", ErrMessage)
	}
	texts := m.EventIDs
	if m.EventID != "" {
		if len(texts) > 0 {
			return nil, fmt.Errorf("%w: both eventId and eventIds", ErrMessage)
		}
		texts = []string{m.EventID}
	}
	if len(texts) == 0 || len(texts) > MaxMessage {
		return nil, fmt.Errorf("%w: %d ids", ErrMessage, len(texts))
	}
	ids := make([]uuid.UUID, 0, len(texts))
	for _, text := range texts {
		id, err := uuid.Parse(text)
		if err != nil || !strings.EqualFold(text, id.String()) {
			return nil, fmt.Errorf("%w: an id is not a UUID", ErrMessage)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Reference is one event in one generation: what a message refers to.
type Reference struct {
	EventID    uuid.UUID
	Generation int
}

// DeduplicationID is what QStash tells twins by: <event>_r<generation> for one
// event, a hash of that sorted list for several. A deliberate re-send has another
// generation, so that no window, however long, can swallow it. No colon: QStash
// refuses it.
func DeduplicationID(references []Reference) string {
	parts := make([]string, len(references))
	for i, r := range references {
		parts[i] = r.EventID.String() + "_r" + strconv.Itoa(r.Generation)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return "batch_" + base64.RawURLEncoding.EncodeToString(sum[:])
}
