// Package importer stores the decisions of a file, CSV or NDJSON, as if each had come
// through intake: by the same rules, in file order, in the bulk lane. The file is read
// twice: once whole, to refuse what is not of the stated dialect before any row is stored
// and to know it by its digest, and once in chunks of bounded size, each stored in one
// short transaction together with how far the import is. So a run that was interrupted
// anywhere goes on behind its last chunk, and the same file again has no second effect.
package importer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/postgres"
)

const (
	defaultChunk = 500 // rows; about a tenth of a second, so that nobody waits long for a row's lock
	chunkTimeout = 2 * time.Minute
	keyDigest    = 32 // characters of the file's digest in a row's key
)

// Options say what to import. Path, DB, Clock and NewID are required.
type Options struct {
	Path   string
	Format string // csv or ndjson; "": by the file's name
	// BrandID and ProductID are those of every row, where the file does not say.
	BrandID, ProductID string
	// ConsentDate is the occurredAt of subscribed rows without one of their own: an RFC 3339
	// time, or a day.
	ConsentDate string
	Results     string // the results file; "": Path + ".results.csv"
	ChunkRows   int    // default 500

	DB       *postgres.DB
	Clock    func() time.Time
	NewID    func() uuid.UUID // UUIDv7
	Progress func(Progress)   // called after every chunk; may be nil
}

// Progress is how far an import is.
type Progress struct {
	Done, Total int64
	Rate        float64 // rows a second, of this run
	Left        time.Duration
}

// Report is how an import ended. Accepted, superseded, replayed and refused add up to Done.
type Report struct {
	ImportID string `json:"importId"`
	Digest   string `json:"fileSha256"`
	Rows     int64  `json:"rows"`
	Done     int64  `json:"done"`
	postgres.ImportCounts
	ResumedAt int64   `json:"resumedAtRow,omitempty"` // the rows before it were done by an earlier run
	Complete  bool    `json:"complete"`               // false: stopped; the same command goes on
	Seconds   float64 `json:"seconds"`
	Results   string  `json:"results"`
}

// UsageError is a mistake in the options, or a file that is not of the dialect.
type UsageError struct{ Reason string }

func (e *UsageError) Error() string { return e.Reason }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Run imports the file, or goes on with its import. When ctx ends, it stops behind the
// chunk that is being stored and reports an import that is not complete.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.ChunkRows == 0 {
		o.ChunkRows = defaultChunk
	}
	if o.Results == "" {
		o.Results = o.Path + ".results.csv"
	}
	if err := o.check(ctx); err != nil {
		return Report{}, err
	}
	file, err := openSource(o)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = file.close() }()
	results, err := openResults(o.Results)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = results.close() }()
	at, err := o.DB.BeginImport(ctx, o.NewID(), file.digest, o.settings(), file.rows)
	if err != nil {
		return Report{}, err
	}
	if at.RowsDone > 0 && !results.holds(at.ResultsBytes) {
		// The results of the rows that are done are gone: tell them all again.
		if at, err = o.DB.RestartImport(ctx, at); err != nil {
			return Report{}, err
		}
	}
	r := run{Options: o, file: file, results: results, at: at, started: o.Clock(), from: at.RowsDone}
	err = r.all(ctx)
	return r.report(), err
}

// check refuses what cannot be imported whatever the file holds.
func (o Options) check(ctx context.Context) error {
	if o.ConsentDate != "" {
		if _, ok := claimedTime(o.ConsentDate, false); !ok {
			return usage("--consent-date takes a day like 2026-01-31 or an RFC 3339 time like 2026-01-31T09:30:00Z")
		}
	}
	if o.BrandID == "" {
		return nil
	}
	brand, product, err := o.DB.RouteExists(ctx, o.BrandID, o.ProductID)
	switch {
	case err != nil:
		return err
	case !brand:
		return usage("there is no brand %q", o.BrandID)
	case o.ProductID != "" && !product:
		return usage("brand %q has no product %q with an active mapping", o.BrandID, o.ProductID)
	}
	return nil
}

// settings identify what the options add to the rows: with others it is another import.
func (o Options) settings() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", o.BrandID, o.ProductID, o.ConsentDate))
	return fmt.Sprintf("%x", sum[:16])
}

// run is one import under way.
type run struct {
	Options
	file    *source
	results *results
	at      postgres.Import
	started time.Time
	from    int64
}

// all stores chunk after chunk. The next one is read while one is being stored.
func (r *run) all(ctx context.Context) error {
	if r.file.rows == 0 {
		return r.store(ctx, chunk{end: r.file.start})
	}
	if err := r.file.seek(r.at); err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	chunks := r.read(stop)
	for r.at.RowsDone < r.file.rows && ctx.Err() == nil {
		c, ok := <-chunks
		if !ok {
			return errors.New("the file ended before the rows that were counted: it changed while it was read; do not write to it, and run the command again")
		}
		if c.err != nil {
			return c.err
		}
		if err := r.store(ctx, c); err != nil {
			return err
		}
		if r.Progress != nil {
			r.Progress(r.progress())
		}
	}
	if r.at.RowsDone == r.file.rows && !r.file.unchanged() {
		return errors.New("the file changed while it was read: what was stored stands in the results; do not write to it, and import the new file")
	}
	return nil
}

// store stores one chunk; it is not interrupted by the end of ctx.
func (r *run) store(ctx context.Context, c chunk) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chunkTimeout)
	defer cancel()
	at, err := r.DB.ImportChunk(ctx, r.at, c.rows, func(outcomes []postgres.ImportOutcome) (postgres.Import, error) {
		to := r.at
		to.Counts = r.at.Counts.Clone()
		to.RowsDone += int64(len(c.lines))
		to.ByteOffset, to.Line = c.end.offset, c.end.line
		text := c.judge(outcomes, &to.Counts)
		var err error
		if to.ResultsBytes, err = r.results.write(r.at.ResultsBytes, text); err != nil {
			return to, &postgres.SettleError{Err: err}
		}
		return to, nil
	})
	if err != nil {
		return err
	}
	r.at = at
	return nil
}

func (r *run) progress() Progress {
	p := Progress{Done: r.at.RowsDone, Total: r.file.rows}
	if took := r.Clock().Sub(r.started).Seconds(); took > 0 {
		p.Rate = float64(r.at.RowsDone-r.from) / took
	}
	if p.Rate > 0 {
		p.Left = time.Duration(float64(p.Total-p.Done) / p.Rate * float64(time.Second))
	}
	return p
}

func (r *run) report() Report {
	counts := r.at.Counts
	counts.ByCode = maps.Clone(counts.ByCode)
	return Report{
		ImportID: r.at.ID.String(), Digest: r.file.digest, Rows: r.file.rows, Done: r.at.RowsDone, ImportCounts: counts,
		ResumedAt: r.from, Complete: r.at.RowsDone == r.file.rows,
		Seconds: r.Clock().Sub(r.started).Seconds(), Results: r.Results,
	}
}
