package postgres

import (
	"context"
	"fmt"
)

const unsubscribeAllQuery = `
SELECT outcome, request_id::text, request_hash, sync_status, sequence, accepted_at
FROM hubsync.unsubscribe_all_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`

// UnsubscribeAll stores an opt-out of everything: of d.BrandID, or of all brands where it
// is "*". ProductID, DesiredState and Lane are not read. It locks the contact for itself,
// so that no subscription is made beside it; a lost race is run once more, as in Accept.
func (db *DB) UnsubscribeAll(ctx context.Context, d Decision) (DecisionReceipt, error) {
	receipt, err := db.unsubscribeAll(ctx, d)
	if lostRace(err) {
		receipt, err = db.unsubscribeAll(ctx, d)
	}
	if err != nil {
		return DecisionReceipt{}, fmt.Errorf("opt out of all, request %s: %w", d.RequestID, intakeError(err))
	}
	return receipt, nil
}

func (db *DB) unsubscribeAll(ctx context.Context, d Decision) (DecisionReceipt, error) {
	return scanReceipt(db.pool.QueryRow(ctx, unsubscribeAllQuery,
		d.RequestID.String(), d.EventID.String(), d.BrandID, d.ContactKey, d.Email, d.EmailKey, d.IdempotencyKey, d.RequestHash,
		d.Source, d.OccurredAt, consentOrNone(d.Consent), textOrNull(d.Traceparent)))
}

// EmailOutcome is what became of an address change.
type EmailOutcome string

// The outcomes of change_email_v1.
const (
	EmailChanged        EmailOutcome = "changed"
	EmailUnchanged      EmailOutcome = "unchanged"
	EmailUnknownBrand   EmailOutcome = "unknown_brand"
	EmailUnknownContact EmailOutcome = "unknown_contact"
	EmailGone           EmailOutcome = "gone"
	EmailTaken          EmailOutcome = "address_taken" // by another contact; listed for a person
)

// EmailChange is the answer to an address change.
type EmailChange struct {
	Outcome       EmailOutcome
	Subscriptions int // that are written anew, under the new address
}

const changeEmailQuery = `SELECT outcome, subscriptions FROM hubsync.change_email_v1($1, $2, $3, $4)`

// ChangeEmail gives the contact that a brand's caller knows under a key another address.
// Every subscription gets a new event with the consent that it had, and the old address's
// opt-outs are read in HubSpot before any subscribe.
func (db *DB) ChangeEmail(ctx context.Context, brandID, callerKey, email, emailKey string) (EmailChange, error) {
	change, err := db.changeEmail(ctx, brandID, callerKey, email, emailKey)
	if lostRace(err) {
		change, err = db.changeEmail(ctx, brandID, callerKey, email, emailKey)
	}
	if err != nil {
		return EmailChange{}, fmt.Errorf("change an address of brand %s: %w", brandID, intakeError(err))
	}
	return change, nil
}

func (db *DB) changeEmail(ctx context.Context, brandID, callerKey, email, emailKey string) (c EmailChange, err error) {
	err = db.pool.QueryRow(ctx, changeEmailQuery, brandID, callerKey, email, emailKey).Scan(&c.Outcome, &c.Subscriptions)
	return c, err
}
