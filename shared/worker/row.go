package worker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
	"hubsync/shared/routing"
)

// row is one event of a message on its way through the phases.
type row struct {
	claim postgres.Claim
	item  plan.Item
	// failure ends the row's way: later phases leave it alone.
	failure failure
	// configuration is a contradiction in the snapshot; its opt-out runs all the same.
	configuration error
	// confirmed: HubSpot said that the preference is as decided.
	confirmed bool
	// resubscribes: the consent read showed an opt-out that the subscribe may lift.
	resubscribes bool
	unknown      bool
	shown        string
	stamp        outbox.Stamp
	optedOutAt   *time.Time
	receipts     []postgres.Receipt
}

func rowsOf(claims []postgres.Claim) []*row {
	rows := make([]*row, len(claims))
	for i, c := range claims {
		rows[i] = &row{claim: c}
	}
	return rows
}

// consent is what the request said about the person's consent.
type consent struct {
	LegalBasis  string `json:"legalBasis"`
	Explanation string `json:"explanation"`
}

// prepare fills the row's item from its claim.
func (r *row) prepare() {
	var snapshot routing.Snapshot
	if err := json.Unmarshal(r.claim.Payload, &snapshot); err != nil {
		r.fail(failure{outcome: postgres.OutcomeDead, code: "snapshot_unreadable", summary: "the event's mapping snapshot is not readable", counts: true})
		return
	}
	var c consent
	if err := json.Unmarshal(r.claim.Consent, &c); err != nil {
		r.fail(failure{outcome: postgres.OutcomeDead, code: "consent_unreadable", summary: "the request's consent is not readable", counts: true})
		return
	}
	r.item = plan.Item{
		EventID: r.claim.EventID, Fence: r.claim.Fence, Desired: r.claim.DesiredState, Snapshot: snapshot,
		ContactKey: r.claim.ContactKey, Email: r.claim.EmailKey, ConsentAt: r.claim.ConsentAt,
		LegalBasis: c.LegalBasis, Explanation: c.Explanation, OwnOptOut: r.claim.OwnOptOut, OwnWide: r.claim.OwnWide,
	}
	r.configuration = plan.CheckSnapshot(snapshot)
}

func (r *row) open() bool {
	return r.claim.Verdict == postgres.VerdictClaimed && r.failure.outcome == ""
}

func (r *row) isWide() bool { return r.item.Snapshot.Wide != "" }

func (r *row) optsOut() bool { return r.claim.DesiredState == outbox.Unsubscribed }

// fail ends the row's way; the first failure stays.
func (r *row) fail(f failure) {
	if r.failure.outcome == "" {
		r.failure = f
	}
}

// giveWay ends a subscribe for an opt-out that HubSpot shows.
func (r *row) giveWay(at time.Time) {
	r.optedOutAt = &at
	r.fail(failure{outcome: postgres.OutcomeOptOut, code: "opted_out_in_hubspot",
		summary: "HubSpot shows an opt-out that is not older than the consent"})
}

// receipt notes a confirmed operation in the ledger.
func (r *row) receipt(newID func() uuid.UUID, operation, desired, result, correlation string, at time.Time) {
	sum := sha256.Sum256([]byte(desired))
	receipt := postgres.Receipt{
		ID: newID(), EventID: r.claim.EventID, Operation: operation,
		DesiredHash: hex.EncodeToString(sum[:16]), Result: result, CorrelationID: correlation,
	}
	if !at.IsZero() {
		receipt.HubSpotAt = &at
	}
	r.receipts = append(r.receipts, receipt)
}

// settlement is what the commit writes for this row.
func (r *row) settlement(newID func() uuid.UUID) postgres.Settlement {
	s := postgres.Settlement{
		Claim: r.claim, Outcome: postgres.OutcomeSynced, Unknown: r.unknown, Shown: r.shown, OwnOptOut: r.stamp,
	}
	if f := r.failure; f.outcome != "" {
		s.Outcome, s.Counts, s.Delay, s.Code, s.Summary = f.outcome, f.counts, f.delay, f.code, f.summary
	} else if r.configuration != nil {
		s.Outcome, s.Counts, s.Code, s.Summary = postgres.OutcomeDead, true, "mapping_contradiction", r.configuration.Error()
	}
	if s.Outcome == postgres.OutcomeOptOut {
		s.OptedOutAt, s.InboundRequest, s.InboundEvent = r.optedOutAt, newID(), newID()
	}
	if s.Summary != "" && r.failure.correlationID != "" {
		s.Summary = fmt.Sprintf("%s (correlation %s)", s.Summary, r.failure.correlationID)
	}
	return s
}
