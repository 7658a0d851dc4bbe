package ops

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"hubsync/shared/postgres"
)

// longest is how long a text in the audit may be; a longer one, such as a routes file,
// stands there by its hash.
const longest = 200

// begin writes down what is about to be done: also what its process does not survive.
func (o *Ops) begin(ctx context.Context, r Request) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return id, err
	}
	by := r.By
	if by == "" {
		by = "unknown"
	}
	return id, o.cfg.DB.BeginAction(ctx, id, by, r.Verb, brief(r.Args))
}

// end writes down what came of it. The evidence of a person is not repeated there.
func (o *Ops) end(ctx context.Context, id uuid.UUID, r Response) error {
	// What was done is written down even if who asked has gone.
	return o.cfg.DB.EndAction(context.WithoutCancel(ctx), id, brief(r.Result), r.Error)
}

// brief is a JSON object whose long members are replaced by their hash; empty, or what is
// no object, is {}.
func brief(value jsontext.Value) string {
	var members map[string]jsontext.Value
	if json.Unmarshal(value, &members) != nil {
		return "{}"
	}
	for name, member := range members {
		if len(member) <= longest {
			continue
		}
		sum := sha256.Sum256(member)
		members[name] = jsontext.Value(`"sha256:` + hex.EncodeToString(sum[:]) + `"`)
	}
	text, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return "{}"
	}
	return string(text)
}

// AuditArgs says how much of the audit to show.
type AuditArgs struct {
	Limit int `json:"limit,omitzero"`
}

// AuditLog is what operators did, the newest first.
type AuditLog struct {
	Actions []postgres.Action `json:"actions"`
}

// Audit lists what operators did.
func (o *Ops) Audit(ctx context.Context, in AuditArgs) (AuditLog, error) {
	db, err := o.db()
	if err != nil {
		return AuditLog{}, err
	}
	actions, err := db.Actions(ctx, limitOf(in.Limit))
	return AuditLog{actions}, err
}
