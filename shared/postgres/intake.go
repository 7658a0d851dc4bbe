package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubsync/shared/outbox"
)

// What a caller of intake's queries can do something about. Every other error of
// theirs is a fault of ours.
var (
	// ErrBusy: a lock was not granted in time, or the same race was lost twice.
	// Nothing was stored; the same call again will do.
	ErrBusy = errors.New("another transaction is in the way")
	// ErrUnavailable: the database could not be reached or could not work. Whether
	// the decision was stored is unknown; the same key again will tell.
	ErrUnavailable = errors.New("the database is unavailable")
)

// DecisionOutcome is what became of a decision.
type DecisionOutcome string

// The outcomes of accept_v1.
const (
	DecisionAccepted       DecisionOutcome = "accepted"
	DecisionSuperseded     DecisionOutcome = "superseded" // stored, and superseded by a known opt-out at once
	DecisionReplayed       DecisionOutcome = "replayed"   // the key has a receipt already; RequestHash is that of the first request
	DecisionUnknownBrand   DecisionOutcome = "unknown_brand"
	DecisionUnknownProduct DecisionOutcome = "unknown_product"
	DecisionGone           DecisionOutcome = "gone"    // the contact is being erased, or was
	DecisionExpired        DecisionOutcome = "expired" // the key was used longer ago than keys are honoured
)

// Decision is a validated request, ready to be stored. The ids are UUIDv7 made by
// the caller; they are used only if the outcome is accepted or superseded.
type Decision struct {
	RequestID, EventID uuid.UUID
	BrandID, ProductID string
	ContactKey         string // the caller's key: an alias, not the identity
	Email, EmailKey    string // as given, and normalised
	DesiredState       outbox.DesiredState
	IdempotencyKey     string
	RequestHash        string
	Source             string     // api, import, hubspot, unsubscribe_all, one_click
	OccurredAt         *time.Time // as claimed; nil: not claimed
	Consent            string     // a JSON object; "" is {}
	Lane               outbox.Lane
	Traceparent        string // "": none
	// UndatedWindow is how much older than its arrival a subscribe counts that claims
	// no date.
	UndatedWindow time.Duration
}

// DecisionReceipt is the answer to a decision. With an unknown brand or product, or a
// contact that is gone, only Outcome is set.
type DecisionReceipt struct {
	Outcome     DecisionOutcome
	RequestID   uuid.UUID
	RequestHash string
	Status      string // sync_status now
	Sequence    int64  // 0: it took no place in the order
	AcceptedAt  time.Time
}

// One statement, no BEGIN: the transaction is the statement, and one round trip. It is
// bare, because `exec` mode parses and plans it at every call: the parameters' types are
// those of the function.
const acceptQuery = `
SELECT outcome, request_id::text, request_hash, sync_status, sequence, accepted_at
FROM hubsync.accept_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// Accept stores a decision with its event in one round trip. A lost race (a twin
// with the same key, a contact made at the same moment, a deadlock) is run once
// more; losing again is ErrBusy.
func (db *DB) Accept(ctx context.Context, d Decision) (DecisionReceipt, error) {
	receipt, err := db.accept(ctx, d)
	if lostRace(err) {
		receipt, err = db.accept(ctx, d)
	}
	if err != nil {
		return DecisionReceipt{}, fmt.Errorf("accept decision %s: %w", d.RequestID, intakeError(err))
	}
	return receipt, nil
}

func (db *DB) accept(ctx context.Context, d Decision) (DecisionReceipt, error) {
	return scanReceipt(db.pool.QueryRow(ctx, acceptQuery,
		d.RequestID.String(), d.EventID.String(), d.BrandID, d.ProductID, d.ContactKey,
		d.Email, d.EmailKey, string(d.DesiredState), d.IdempotencyKey, d.RequestHash,
		d.Source, d.OccurredAt, consentOrNone(d.Consent), int16(d.Lane), textOrNull(d.Traceparent), d.UndatedWindow))
}

func consentOrNone(consent string) string {
	if consent == "" {
		return "{}"
	}
	return consent
}

func scanReceipt(row pgx.Row) (DecisionReceipt, error) {
	var r DecisionReceipt
	var requestID, hash, status *string // NULL where nothing is stored under the key
	var sequence *int64
	var acceptedAt *time.Time
	err := row.Scan(&r.Outcome, &requestID, &hash, &status, &sequence, &acceptedAt)
	if err != nil || requestID == nil {
		return r, err
	}
	if sequence != nil {
		r.Sequence = *sequence
	}
	r.RequestHash, r.Status, r.AcceptedAt = *hash, *status, *acceptedAt
	r.RequestID, err = uuid.Parse(*requestID)
	return r, err
}

// Ping tells whether the database answers, with one cheap query.
func (db *DB) Ping(ctx context.Context) error {
	var one int
	if err := db.pool.QueryRow(ctx, `SELECT 1`).Scan(&one); err != nil {
		return fmt.Errorf("ping: %w", intakeError(err))
	}
	return nil
}

// lostRace reports errors that the same statement, run again at once, is expected
// not to meet: it was rolled back whole.
func lostRace(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case "23505", "40001", "40P01":
		return true
	}
	return false
}

// intakeError classifies an error and keeps only what cannot hold personal data:
// the server's messages and the driver's encoding errors may quote a parameter.
func intakeError(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return intakeServerError(pgErr)
	}
	var connectErr *pgconn.ConnectError
	var netErr net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: the caller went away", ErrUnavailable)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer in time", ErrUnavailable)
	case errors.As(err, &connectErr):
		return fmt.Errorf("%w: no connection", ErrUnavailable)
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return fmt.Errorf("%w: connection lost", ErrUnavailable)
	case pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: connection was closed", ErrUnavailable)
	}
	return fmt.Errorf("driver error (%T)", err)
}

func intakeServerError(err *pgconn.PgError) error {
	if lostRace(err) {
		return fmt.Errorf("%w: lost the race twice (SQLSTATE %s)", ErrBusy, err.Code)
	}
	switch err.Code {
	case "55P03", "57014": // lock_timeout, statement_timeout
		return fmt.Errorf("%w: SQLSTATE %s", ErrBusy, err.Code)
	}
	switch err.Code[:min(2, len(err.Code))] {
	case "22", "23", "42": // bad data, a broken constraint, a statement that does not fit the schema
		return fmt.Errorf("SQLSTATE %s, constraint %q", err.Code, err.ConstraintName)
	}
	return fmt.Errorf("%w: SQLSTATE %s", ErrUnavailable, err.Code)
}
