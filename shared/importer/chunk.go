package importer

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"hubsync/shared/intake"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// place is a position in the file, between two records.
type place struct {
	offset int64 // bytes
	line   int64 // lines that end before it
}

// line is one row of a chunk, for the results.
type line struct {
	number   int64 // of the row, from 1 on
	line     int64 // where it begins in the file
	hash     string
	problems []intake.RowProblem
	stored   int // its index in the chunk's rows, where it has no problems
}

// chunk is some rows that are stored together: those that are right in rows, all in lines.
type chunk struct {
	rows  []postgres.Decision
	lines []line
	end   place
	err   error
}

// read makes chunks of what follows in the file, until its end or until stop is closed.
func (r *run) read(stop <-chan struct{}) <-chan chunk {
	chunks := make(chan chunk, 1)
	number := r.at.RowsDone
	go func() {
		defer close(chunks)
		for {
			c := r.readChunk(number)
			if len(c.lines) == 0 && c.err == nil {
				return
			}
			number += int64(len(c.lines))
			select {
			case chunks <- c:
			case <-stop:
				return
			}
			if c.err != nil {
				return
			}
		}
	}()
	return chunks
}

func (r *run) readChunk(number int64) chunk {
	var c chunk
	for len(c.lines) < r.ChunkRows {
		rec, more, err := r.file.next()
		if err != nil {
			c.err = err
			break
		}
		if !more {
			break
		}
		number++
		l := line{number: number, line: rec.line}
		row := r.complete(rec.row, number)
		var d postgres.Decision
		if d, l.problems = row.Decision(r.NewID); len(l.problems) == 0 {
			l.hash = d.RequestHash
			l.stored = len(c.rows)
			c.rows = append(c.rows, d)
		}
		c.lines = append(c.lines, l)
		c.end = rec.end
	}
	return c
}

// complete adds to a row what the options say, and the rules that files have beyond the
// API's: a subscribed row needs a consent date, and a day is enough of a date.
func (r *run) complete(row intake.Row, number int64) intake.Row {
	for member, value := range map[string]string{"brandId": r.BrandID, "productId": r.ProductID} {
		if own := row.Get(member); own != "" && value != "" && own != value {
			row.Refuse(member, "conflict", "differs from the command line's")
		} else if value != "" {
			row.Set(member, value)
		}
	}
	if row.Get("idempotencyKey") == "" {
		row.Set("idempotencyKey", "import:"+r.file.digest[:keyDigest]+":"+strconv.FormatInt(number, 10))
	}
	subscribed := row.Get("desiredState") == string(outbox.Subscribed)
	at := row.Get("occurredAt")
	if at == "" && subscribed {
		if at = r.ConsentDate; at == "" {
			row.Refuse("occurredAt", "required", "is missing: a subscribed row needs the date of its consent, here or by --consent-date")
		}
	}
	if full, ok := claimedTime(at, !subscribed); ok {
		row.Set("occurredAt", full)
	}
	return row
}

// claimedTime returns a day as a time, and another text unchanged. A day leaves open when
// in it: a consent counts from its beginning, an opt-out from its end, so that of two on
// one day the opt-out stands.
func claimedTime(text string, optOut bool) (full string, ok bool) {
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		_, err = time.Parse(time.RFC3339Nano, strings.ToUpper(text))
		return text, err == nil
	}
	if optOut {
		day = day.Add(24*time.Hour - time.Microsecond)
	}
	return day.Format(time.RFC3339Nano), true
}

// refusals are the outcomes of a stored row that are its refusal.
var refusals = map[postgres.DecisionOutcome]intake.RowProblem{
	postgres.DecisionUnknownBrand:   {Field: "brandId", Code: "unknown_brand", Detail: "does not exist"},
	postgres.DecisionUnknownProduct: {Field: "productId", Code: "unknown_product", Detail: "has no active mapping of this brand"},
	postgres.DecisionExpired:        {Field: "idempotencyKey", Code: "key_expired", Detail: "was used longer ago than keys are honoured"},
	postgres.DecisionGone:           {Field: "contactKey", Code: "gone", Detail: "belongs to a contact that was erased, or is being erased"},
}

var keyReused = intake.RowProblem{Field: "idempotencyKey", Code: "key_reused", Detail: "belongs to an earlier, different request"}

// judge adds the chunk's rows to the counts and returns their lines of the results file.
func (c chunk) judge(outcomes []postgres.ImportOutcome, counts *postgres.ImportCounts) []byte {
	var text bytes.Buffer
	for _, l := range c.lines {
		var o postgres.ImportOutcome
		problems := l.problems
		if len(problems) == 0 {
			o = outcomes[l.stored]
		}
		if refusal, refused := refusals[o.Outcome]; refused {
			problems = []intake.RowProblem{refusal}
		} else if o.Outcome == postgres.DecisionReplayed && o.RequestHash != l.hash {
			problems = []intake.RowProblem{keyReused}
		}
		outcome := string(o.Outcome)
		switch {
		case len(problems) > 0:
			counts.Refused++
			counts.ByCode[problems[0].Code]++
			outcome, o.RequestID = "refused", ""
		case o.Outcome == postgres.DecisionReplayed:
			counts.Replayed++
		case o.Outcome == postgres.DecisionSuperseded:
			counts.Superseded++
		default:
			counts.Accepted++
		}
		writeResult(&text, l, outcome, o.RequestID, problems)
	}
	return text.Bytes()
}
