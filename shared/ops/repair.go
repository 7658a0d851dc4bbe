package ops

import (
	"context"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/postgres"
)

// ReplayArgs selects dead events to give another try under the active mapping; empty
// members select all.
type ReplayArgs struct {
	Code           string    `json:"code,omitzero"`
	Brand          string    `json:"brand,omitzero"`
	MappingVersion int       `json:"mappingVersion,omitzero"`
	From           time.Time `json:"from,omitzero"` // when it died, included
	To             time.Time `json:"to,omitzero"`   // not included
	Limit          int       `json:"limit,omitzero"`
	PerSecond      float64   `json:"perSecond,omitzero"` // default 50
	DryRun         bool      `json:"dryRun,omitzero"`
}

// Replayed is the answer of Replay.
type Replayed struct {
	DryRun bool `json:"dryRun"`
	// Events that were, or would be, replayed. Those that a newer decision has replaced
	// stay dead, and so do those whose product has no route any more.
	Events int `json:"events"`
	// Seconds until the last of them is due.
	Seconds float64 `json:"seconds"`
}

// Defaults and bounds of a replay.
const (
	replayRate  = 50.0 // a second: a backlog of it leaves most of a budget to others
	replayMost  = 100_000
	replayBatch = 500 // in one transaction
)

// Replay makes new events for dead ones, due one after the other at a rate.
func (o *Ops) Replay(ctx context.Context, in ReplayArgs) (Replayed, error) {
	db, err := o.db()
	if err != nil {
		return Replayed{}, err
	}
	if in.Limit == 0 {
		in.Limit = replayMost
	}
	if in.PerSecond == 0 {
		in.PerSecond = replayRate
	}
	if in.Limit < 0 || in.Limit > replayMost || in.PerSecond < 0 || in.PerSecond > 10_000 || in.MappingVersion < 0 {
		return Replayed{}, usage("limit takes 1 to %d, per second up to 10000, and a mapping version is not negative", replayMost)
	}
	if !in.From.IsZero() && !in.To.IsZero() && !in.From.Before(in.To) {
		return Replayed{}, usage("from must be before to")
	}
	gap := time.Duration(float64(time.Second) / in.PerSecond)
	f := postgres.ReplayFilter{Code: in.Code, BrandID: in.Brand, MappingVersion: in.MappingVersion, From: in.From, To: in.To, Gap: gap}
	out := Replayed{DryRun: in.DryRun}
	if in.DryRun {
		out.Events, err = db.CountReplayable(ctx, f, in.Limit)
	} else {
		out.Events, err = replayAll(ctx, db, f, in.Limit)
	}
	out.Seconds = (time.Duration(max(out.Events-1, 0)) * gap).Seconds()
	return out, err
}

// replayAll goes on in short transactions, so that nothing waits long for its locks. What
// was replayed before an error stays so, and the next call goes on with the rest.
func replayAll(ctx context.Context, db *postgres.DB, f postgres.ReplayFilter, limit int) (int, error) {
	done := 0
	for done < limit {
		f.First = time.Duration(done) * f.Gap
		n, err := db.ReplayDead(ctx, f, min(replayBatch, limit-done))
		done += n
		if err != nil || n == 0 {
			return done, err
		}
	}
	return done, nil
}

// DriftArgs selects differences.
type DriftArgs struct {
	Brand string `json:"brand,omitzero"`
	Limit int    `json:"limit,omitzero"`
}

// Drift is what differs from HubSpot for good, and the runs that wait for an approval.
type Drift struct {
	Listed   []postgres.DriftRow `json:"listed"`
	HeldRuns []postgres.RunRow   `json:"heldRuns"`
}

// DriftReport lists the differences that a repair did not mend, and the runs of the check
// that would have repaired too much at once: until one is approved, nothing is repaired.
func (o *Ops) DriftReport(ctx context.Context, in DriftArgs) (Drift, error) {
	db, err := o.db()
	if err != nil {
		return Drift{}, err
	}
	var d Drift
	if d.Listed, err = db.Drift(ctx, in.Brand, limitOf(in.Limit)); err != nil {
		return Drift{}, err
	}
	d.HeldRuns, err = db.HeldRuns(ctx)
	return d, err
}

// ApproveArgs names a run of the check.
type ApproveArgs struct {
	Run string `json:"run"`
}

// Approved is the answer of DriftApprove.
type Approved struct {
	Run string `json:"run"`
}

// DriftApprove lets repairs go on after a run that stopped and asked.
func (o *Ops) DriftApprove(ctx context.Context, in ApproveArgs) (Approved, error) {
	db, err := o.db()
	if err != nil {
		return Approved{}, err
	}
	id, err := uuid.Parse(in.Run)
	if err != nil {
		return Approved{}, usage("a run is named by its id, a UUID: 'hubsync drift report' lists those that wait")
	}
	ok, err := db.ApproveRun(ctx, id)
	if err != nil {
		return Approved{}, err
	}
	if !ok {
		return Approved{}, usage("run %s does not wait for an approval: 'hubsync drift report' lists those that do", id)
	}
	return Approved{id.String()}, nil
}

// ConflictsArgs selects conflicts.
type ConflictsArgs struct {
	Kind  string `json:"kind,omitzero"`
	Limit int    `json:"limit,omitzero"`
}

// Conflicts is what about contacts waits for a person.
type Conflicts struct {
	Conflicts []postgres.ConflictRow `json:"conflicts"`
}

// Conflicts lists keys that name two contacts, and addresses that were changed inside
// HubSpot.
func (o *Ops) Conflicts(ctx context.Context, in ConflictsArgs) (Conflicts, error) {
	db, err := o.db()
	if err != nil {
		return Conflicts{}, err
	}
	rows, err := db.Conflicts(ctx, in.Kind, limitOf(in.Limit))
	return Conflicts{rows}, err
}

// ResolveArgs names a contact's conflicts of one kind.
type ResolveArgs struct {
	ContactKey string `json:"contactKey"`
	Kind       string `json:"kind"`
}

// Resolved is how many lines left the list.
type Resolved struct {
	Resolved int `json:"resolved"`
}

// ConflictsResolve takes conflicts off the list; they come back when they are seen again.
func (o *Ops) ConflictsResolve(ctx context.Context, in ResolveArgs) (Resolved, error) {
	db, err := o.db()
	if err != nil {
		return Resolved{}, err
	}
	if in.ContactKey == "" || in.Kind == "" {
		return Resolved{}, usage("name the contact's key and the kind, as 'hubsync conflicts list' shows them")
	}
	n, err := db.ResolveConflicts(ctx, in.ContactKey, in.Kind)
	if err == nil && n == 0 {
		return Resolved{}, usage("this contact has no open conflict of this kind: 'hubsync conflicts list' shows those there are")
	}
	return Resolved{n}, err
}
