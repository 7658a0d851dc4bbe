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

// ImportRow is one row of a chunk that is to be stored.
type ImportRow struct {
	Number   int64 // from 1 on
	Decision Decision
	// Simple: no other row of the chunk has the address with another key, the key with
	// another address, the subscription or the idempotency key of this one, or of another
	// row of its contact.
	Simple bool
	Leads  bool // the first row of its contact in the chunk
}

// ImportOutcome is what became of a row. RequestID is that of the stored decision, or of
// the one that was replayed, whose RequestHash may be another request's.
type ImportOutcome struct {
	Number      int64
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

var stagedColumns = []string{
	"import_id", "row_number", "request_id", "event_id", "brand_id", "product_id", "caller_key", "email", "email_key",
	"desired_state", "idempotency_key", "request_hash", "occurred_at", "consent", "simple", "leads",
}

const importChunk = `
SELECT row_number, outcome, coalesce(request_id::text, ''), coalesce(request_hash, '') FROM hubsync.import_v1($1::uuid)`

// The subquery keeps the file's order: the function runs once per row, as they come.
const importLeft = `
SELECT i.row_number, d.outcome, coalesce(d.request_id::text, ''), coalesce(d.request_hash, '')
FROM (SELECT * FROM import_rows WHERE import_id = $1::uuid AND row_number = ANY($2::bigint[]) ORDER BY row_number OFFSET 0) i
CROSS JOIN LATERAL hubsync.accept_v1(
  i.request_id, i.event_id, i.brand_id, i.product_id, i.caller_key, i.email, i.email_key, i.desired_state,
  i.idempotency_key, i.request_hash, 'import', i.occurred_at, i.consent, $3::smallint, NULL, interval '0') d`

const unstage = `DELETE FROM import_rows WHERE import_id = $1::uuid`

// importTries is how often a chunk is tried that lost a race; from the third try on no
// row is taken as simple, so that accept_v1 settles what the shorter way cannot.
const (
	importTries      = 6
	importSimpleOnes = 2
	importPause      = 50 * time.Millisecond
)

// ImportChunk stores the rows of one chunk and how far the import is then, in one
// transaction. settle gets the outcomes in no particular order and says where the import
// is; it runs before the commit, and again where the transaction has to be repeated.
func (db *DB) ImportChunk(ctx context.Context, from Import, rows []ImportRow, settle func([]ImportOutcome) (Import, error)) (Import, error) {
	var to Import
	var err error
	for try := range importTries {
		err = pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
			outcomes, err := storeChunk(ctx, tx, from.ID, rows, try < importSimpleOnes)
			if err != nil {
				return err
			}
			if to, err = settle(outcomes); err != nil {
				return err
			}
			return moveImportTo(ctx, tx, from, to)
		})
		if !lostRace(err) {
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

func storeChunk(ctx context.Context, tx pgx.Tx, id uuid.UUID, rows []ImportRow, simple bool) ([]ImportOutcome, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"import_rows"}, stagedColumns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		r := &rows[i]
		d := &r.Decision
		return []any{
			[16]byte(id), r.Number, [16]byte(d.RequestID), [16]byte(d.EventID), d.BrandID, d.ProductID, d.ContactKey, d.Email, d.EmailKey,
			string(d.DesiredState), d.IdempotencyKey, d.RequestHash, d.OccurredAt, json.RawMessage(d.Consent), r.Simple && simple, r.Leads,
		}, nil
	}))
	if err != nil {
		return nil, err
	}
	outcomes, err := chunkOutcomes(ctx, tx, len(rows), importChunk, id.String())
	if err != nil {
		return nil, err
	}
	kept, left := outcomes[:0], []int64{}
	for _, o := range outcomes {
		if o.Outcome == "left" {
			left = append(left, o.Number)
		} else {
			kept = append(kept, o)
		}
	}
	if len(left) > 0 {
		more, err := chunkOutcomes(ctx, tx, len(left), importLeft, id.String(), left, int16(outbox.LaneBulk))
		if err != nil {
			return nil, err
		}
		kept = append(kept, more...)
	}
	if len(kept) != len(rows) {
		return nil, fmt.Errorf("%d rows have %d outcomes", len(rows), len(kept))
	}
	_, err = tx.Exec(ctx, unstage, id.String())
	return kept, err
}

func chunkOutcomes(ctx context.Context, tx pgx.Tx, n int, query string, args ...any) ([]ImportOutcome, error) {
	outcomes := make([]ImportOutcome, 0, n)
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var o ImportOutcome
	_, err = pgx.ForEachRow(rows, []any{&o.Number, &o.Outcome, &o.RequestID, &o.RequestHash}, func() error {
		outcomes = append(outcomes, o)
		return nil
	})
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
