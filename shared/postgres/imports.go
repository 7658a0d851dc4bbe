package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hubsync/shared/outbox"
)

// Import is one run over a file, and how far it is. The counts always add up to RowsDone.
type Import struct {
	ID           uuid.UUID
	RowsTotal    int64
	RowsDone     int64
	ByteOffset   int64 // behind the last row that is done
	Line         int64
	ResultsBytes int64 // of the results file, up to the last row that is done
	Counts       ImportCounts
}

// ImportCounts says what became of the rows.
type ImportCounts struct {
	Accepted   int64            `json:"accepted"`
	Superseded int64            `json:"superseded"` // stored, and superseded by a known opt-out at once
	Replayed   int64            `json:"replayed"`   // stored by an earlier run
	Refused    int64            `json:"refused"`
	ByCode     map[string]int64 `json:"refusedByCode,omitempty"` // refused rows by their first problem
}

// ImportOutcome is what became of a row. RequestID is that of the stored decision, or of
// the one that was replayed, whose RequestHash may be another request's.
type ImportOutcome struct {
	Outcome     DecisionOutcome
	RequestID   string
	RequestHash string
}

// ErrImportTaken: another process goes on with the same import.
var ErrImportTaken = errors.New("another process is at this import")

const insertImport = `
INSERT INTO imports (id, file_digest, settings, rows_total) VALUES ($1::uuid, $2, $3, $4)
ON CONFLICT (file_digest, settings) WHERE finished_at IS NULL DO NOTHING`

const unfinishedImport = `
SELECT id::text, rows_total, rows_done, byte_offset, line, results_bytes, accepted, superseded, replayed, refused, refused_codes
FROM imports WHERE file_digest = $1 AND settings = $2 AND finished_at IS NULL`

// BeginImport returns the unfinished import of this file with these settings, or a new one
// under the given id.
func (db *DB) BeginImport(ctx context.Context, id uuid.UUID, digest, settings string, rows int64) (Import, error) {
	var found Import
	var foundID string
	var codes []byte
	_, err := db.pool.Exec(ctx, insertImport, id.String(), digest, settings, rows)
	if err == nil {
		c := &found.Counts
		err = db.pool.QueryRow(ctx, unfinishedImport, digest, settings).Scan(&foundID, &found.RowsTotal, &found.RowsDone,
			&found.ByteOffset, &found.Line, &found.ResultsBytes, &c.Accepted, &c.Superseded, &c.Replayed, &c.Refused, &codes)
	}
	if err == nil {
		err = json.Unmarshal(codes, &found.Counts.ByCode)
	}
	if err == nil {
		found.ID, err = uuid.Parse(foundID)
	}
	if err != nil {
		return Import{}, fmt.Errorf("begin import %s: %w", id, intakeError(err))
	}
	return found, nil
}

const moveImport = `
UPDATE imports
SET rows_done = $3::bigint, byte_offset = $4, line = $5, results_bytes = $6, accepted = $7, superseded = $8, replayed = $9,
    refused = $10, refused_codes = $11::jsonb, updated_at = hubsync.clock(),
    finished_at = CASE WHEN $3::bigint = rows_total THEN hubsync.clock() END
WHERE id = $1::uuid AND rows_done = $2 AND finished_at IS NULL`

func moveImportTo(ctx context.Context, tx pgx.Tx, from, to Import) error {
	codes, err := json.Marshal(to.Counts.ByCode)
	if err != nil {
		return err
	}
	if to.Counts.ByCode == nil {
		codes = []byte("{}")
	}
	c := to.Counts
	tag, err := tx.Exec(ctx, moveImport, from.ID.String(), from.RowsDone, to.RowsDone, to.ByteOffset, to.Line, to.ResultsBytes,
		c.Accepted, c.Superseded, c.Replayed, c.Refused, string(codes))
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return ErrImportTaken
	}
	return nil
}

// RestartImport sets an unfinished import back to its first row: what it stored stays, and
// its rows will be replayed.
func (db *DB) RestartImport(ctx context.Context, from Import) (Import, error) {
	to := Import{ID: from.ID, RowsTotal: from.RowsTotal}
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error { return moveImportTo(ctx, tx, from, to) })
	if err != nil {
		return Import{}, importError("restart", from, err)
	}
	return to, nil
}

const importChunk = `
SELECT ordinal, outcome, coalesce(request_id::text, ''), coalesce(request_hash, '')
FROM hubsync.import_v1($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
  $9::text[], $10::text[], $11::timestamptz[], $12::jsonb[], $13::smallint)`

// A chunk that lost a race, or waited too long for a row that live traffic holds, is tried
// again: intake tries twice and answers, but here nobody waits for an answer.
const (
	importTries = 6
	importPause = 50 * time.Millisecond // before the second try, doubled before each further one
)

// ImportChunk stores the decisions of one chunk, in their order, and how far the import is
// then, in one transaction. settle gets an outcome for each decision and says where the
// import is; it runs before the commit, and again where the transaction has to be repeated.
func (db *DB) ImportChunk(ctx context.Context, from Import, decisions []Decision, settle func([]ImportOutcome) (Import, error)) (Import, error) {
	var to Import
	var err error
	for try := range importTries {
		err = pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			outcomes, err := storeChunk(ctx, tx, decisions)
			if err != nil {
				return err
			}
			if to, err = settle(outcomes); err != nil {
				return err
			}
			return moveImportTo(ctx, tx, from, to)
		})
		if !lostRace(err) && !waitedTooLong(err) {
			break
		}
		select {
		case <-time.After(importPause << try):
		case <-ctx.Done():
		}
	}
	if err != nil {
		return Import{}, importError("store a chunk of", from, err)
	}
	return to, nil
}

// waitedTooLong: lock_timeout.
func waitedTooLong(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "55P03"
}

func storeChunk(ctx context.Context, tx pgx.Tx, decisions []Decision) ([]ImportOutcome, error) {
	if len(decisions) == 0 {
		return nil, nil
	}
	n := len(decisions)
	requests, events, at := make([]string, n), make([]string, n), make([]*time.Time, n)
	var texts [9][]string // brand, product, key, address as given, address, state, idempotency key, hash, consent
	for i := range texts {
		texts[i] = make([]string, n)
	}
	for i := range decisions {
		d := &decisions[i]
		requests[i], events[i], at[i] = d.RequestID.String(), d.EventID.String(), d.OccurredAt
		for j, text := range [...]string{
			d.BrandID, d.ProductID, d.ContactKey, d.Email, d.EmailKey, string(d.DesiredState), d.IdempotencyKey, d.RequestHash, d.Consent,
		} {
			texts[j][i] = text
		}
	}
	rows, err := tx.Query(ctx, importChunk, requests, events, texts[0], texts[1], texts[2], texts[3], texts[4], texts[5],
		texts[6], texts[7], at, texts[8], int16(outbox.LaneBulk))
	if err != nil {
		return nil, err
	}
	outcomes := make([]ImportOutcome, n)
	var ordinal int64
	var o ImportOutcome
	tag, err := pgx.ForEachRow(rows, []any{&ordinal, &o.Outcome, &o.RequestID, &o.RequestHash}, func() error {
		outcomes[ordinal-1] = o
		return nil
	})
	if err == nil && tag.RowsAffected() != int64(n) {
		err = fmt.Errorf("%d rows have %d outcomes", n, tag.RowsAffected())
	}
	return outcomes, err
}

// importError keeps only what cannot hold a row's content; errors of the caller's own and
// ErrImportTaken pass.
func importError(what string, i Import, err error) error {
	var settled *SettleError
	if errors.As(err, &settled) || errors.Is(err, ErrImportTaken) {
		return fmt.Errorf("%s import %s at row %d: %w", what, i.ID, i.RowsDone, err)
	}
	return fmt.Errorf("%s import %s at row %d: %w", what, i.ID, i.RowsDone, intakeError(err))
}

// SettleError is an error of what ImportChunk called to settle a chunk.
type SettleError struct{ Err error }

func (e *SettleError) Error() string { return e.Err.Error() }
func (e *SettleError) Unwrap() error { return e.Err }

// Clone returns counts that can be added to without changing these.
func (c ImportCounts) Clone() ImportCounts {
	c.ByCode = maps.Clone(c.ByCode)
	if c.ByCode == nil {
		c.ByCode = map[string]int64{}
	}
	return c
}

const routeExists = `
SELECT EXISTS (SELECT 1 FROM brands WHERE id = $1::text),
       EXISTS (SELECT 1 FROM brand_subscription_routes WHERE brand_id = $1::text AND product_id = $2::text AND active)`

// RouteExists reports whether a brand exists, and whether its product has an active route.
func (db *DB) RouteExists(ctx context.Context, brandID, productID string) (brand, product bool, err error) {
	if err := db.pool.QueryRow(ctx, routeExists, brandID, productID).Scan(&brand, &product); err != nil {
		return false, false, fmt.Errorf("look up brand and product: %w", intakeError(err))
	}
	return brand, product, nil
}
