package ops

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// EvidenceArgs names a contact by any of its keys.
type EvidenceArgs struct {
	ContactKey string `json:"contactKey"`
}

// What a line of the evidence tells of.
const (
	StepAccepted  = "accepted"  // a decision was stored
	StepScheduled = "scheduled" // it was to be written again: a correction, a replay, another address
	StepPublished = "published" // QStash took it
	StepConfirmed = "confirmed" // HubSpot confirmed one operation
	StepSettled   = "settled"   // synced, superseded, dead or cancelled
	StepSeen      = "seen"      // HubSpot was looked at
)

// steps is the order of what happened at the same moment.
var steps = []string{StepAccepted, StepScheduled, StepPublished, StepConfirmed, StepSettled, StepSeen}

// Entry is one line of the evidence.
type Entry struct {
	At      time.Time `json:"at"` // by the database's clock
	Step    string    `json:"step"`
	Brand   string    `json:"brand"`
	Product string    `json:"product"`
	// State is what was decided, confirmed or seen.
	State         string     `json:"state,omitzero"`
	Sequence      int64      `json:"sequence,omitzero"`
	Request       string     `json:"request,omitzero"`
	Event         string     `json:"event,omitzero"`
	Source        string     `json:"source,omitzero"`      // of a decision
	OccurredAt    *time.Time `json:"occurredAt,omitzero"`  // as the caller claimed
	ConsentAt     *time.Time `json:"consentAt,omitzero"`   // what counts
	LegalBasis    string     `json:"legalBasis,omitzero"`  //
	ConsentHash   string     `json:"consentHash,omitzero"` // SHA-256 of the consent as stored; its text is not shown
	RequestHash   string     `json:"requestHash,omitzero"`
	Operation     string     `json:"operation,omitzero"` // of a confirmation
	Outcome       string     `json:"outcome,omitzero"`
	CorrelationID string     `json:"correlationId,omitzero"` // HubSpot's
	HubSpotAt     *time.Time `json:"hubspotAt,omitzero"`     // by HubSpot's clock
	MessageID     string     `json:"messageId,omitzero"`     // QStash's
	Detail        string     `json:"detail,omitzero"`
}

// Ledger is the evidence of one contact, in the order in which it happened.
type Ledger struct {
	Contact postgres.ContactRow `json:"contact"`
	MadeAt  time.Time           `json:"madeAt"`
	Entries []Entry             `json:"entries"`
	// SHA256 is over the entries: the JSON of each, followed by a newline.
	SHA256 string `json:"sha256"`
}

// Evidence returns what is known of a contact: each decision, its way to HubSpot, what
// HubSpot confirmed, and when HubSpot was seen to show it.
func (o *Ops) Evidence(ctx context.Context, in EvidenceArgs) (Ledger, error) {
	db, err := o.db()
	if err != nil {
		return Ledger{}, err
	}
	contact, err := db.Contact(ctx, in.ContactKey)
	if err != nil {
		return Ledger{}, err
	}
	if contact == nil {
		// The key itself may be an address.
		return Ledger{}, errors.New("no contact has this key: give one that a caller used as contactKey")
	}
	l := Ledger{Contact: *contact, MadeAt: o.cfg.Clock().UTC()}
	requests, err := db.Requests(ctx, contact.ContactKey)
	if err != nil {
		return Ledger{}, err
	}
	for _, r := range requests {
		l.Entries = append(l.Entries, accepted(r))
	}
	if err := l.addEvents(ctx, db); err != nil {
		return Ledger{}, err
	}
	seen, err := db.Seen(ctx, contact.ContactKey)
	if err != nil {
		return Ledger{}, err
	}
	for _, s := range seen {
		l.Entries = append(l.Entries, Entry{At: s.At, Step: StepSeen, Brand: s.Brand, Product: s.Product, State: s.Status})
	}
	return l, l.seal()
}

func accepted(r postgres.RequestRow) Entry {
	consentAt := r.ConsentAt.UTC()
	e := Entry{
		At: r.CreatedAt, Step: StepAccepted, Brand: r.Brand, Product: r.Product, State: r.DesiredState, Sequence: r.Sequence,
		Request: r.ID, Source: r.Source, OccurredAt: utc(r.OccurredAt), ConsentAt: &consentAt, LegalBasis: r.LegalBasis,
		ConsentHash: r.ConsentHash, RequestHash: r.RequestHash,
	}
	if r.Sequence == 0 {
		e.Detail = "never took effect: " + reasonOf(r.Reason)
	}
	return e
}

// addEvents adds what became of each event, and what HubSpot confirmed of it.
func (l *Ledger) addEvents(ctx context.Context, db *postgres.DB) error {
	events, err := db.ContactEvents(ctx, l.Contact.ContactKey)
	if err != nil {
		return err
	}
	byID := map[string]postgres.EventRow{}
	var ids []string
	for _, e := range events {
		byID[e.ID], ids = e, append(ids, e.ID)
		l.Entries = append(l.Entries, lifeOf(e)...)
	}
	receipts, err := db.Receipts(ctx, ids)
	if err != nil {
		return err
	}
	for _, r := range receipts {
		of := byID[r.EventID]
		l.Entries = append(l.Entries, Entry{
			At: r.ConfirmedAt, Step: StepConfirmed, Brand: of.Brand, Product: of.Product, State: of.DesiredState, Sequence: of.Sequence,
			Request: of.RequestID, Event: r.EventID, Operation: r.Operation, Outcome: r.Outcome, CorrelationID: r.CorrelationID,
			HubSpotAt: utc(r.HubSpotAt),
		})
	}
	return nil
}

func lifeOf(e postgres.EventRow) []Entry {
	base := Entry{Brand: e.Brand, Product: e.Product, State: e.DesiredState, Sequence: e.Sequence, Request: e.RequestID, Event: e.ID}
	var entries []Entry
	add := func(step string, at *time.Time, change func(*Entry)) {
		if at == nil {
			return
		}
		entry := base
		entry.Step, entry.At = step, *at
		if change != nil {
			change(&entry)
		}
		entries = append(entries, entry)
	}
	if e.Revision > 1 {
		add(StepScheduled, &e.CreatedAt, func(x *Entry) {
			x.Detail = "revision " + strconv.Itoa(e.Revision) + ", mapping version " + strconv.Itoa(e.MappingVersion)
		})
	}
	add(StepPublished, e.PublishedAt, func(x *Entry) { x.MessageID = e.MessageID })
	add(StepSettled, e.CompletedAt, func(x *Entry) {
		x.Outcome = e.Status
		switch outbox.Status(e.Status) {
		case outbox.Dead:
			x.Detail = e.Code
		case outbox.Superseded:
			x.Detail = reasonOf(e.Reason)
		default:
		}
	})
	return entries
}

func utc(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	t := at.UTC()
	return &t
}

// seal puts the entries in order and hashes them.
func (l *Ledger) seal() error {
	for i := range l.Entries {
		l.Entries[i].At = l.Entries[i].At.UTC()
	}
	slices.SortStableFunc(l.Entries, func(a, b Entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(slices.Index(steps, a.Step), slices.Index(steps, b.Step)), cmp.Compare(a.Sequence, b.Sequence))
	})
	sum := sha256.New()
	for _, e := range l.Entries {
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("seal the evidence: %w", err)
		}
		sum.Write(append(text, '\n')) // a hash takes everything
	}
	l.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}
