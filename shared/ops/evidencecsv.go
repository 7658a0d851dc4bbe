package ops

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// ledgerColumns are the columns of an evidence file.
var ledgerColumns = []string{
	"at", "step", "brand", "product", "state", "sequence", "request", "event", "source", "occurred_at", "consent_at", "legal_basis",
	"consent_sha256", "request_sha256", "operation", "outcome", "correlation_id", "hubspot_at", "message_id", "detail",
}

// WriteCSV writes the evidence as CSV (RFC 4180, CRLF, UTF-8). No cell can be taken for a
// formula by a spreadsheet.
func (l Ledger) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	rows := [][]string{ledgerColumns}
	for _, e := range l.Entries {
		rows = append(rows, []string{
			stamp(&e.At), e.Step, e.Brand, e.Product, e.State, strconv.FormatInt(e.Sequence, 10), e.Request, e.Event, e.Source,
			stamp(e.OccurredAt), stamp(e.ConsentAt), e.LegalBasis, e.ConsentHash, e.RequestHash, e.Operation, e.Outcome, e.CorrelationID,
			stamp(e.HubSpotAt), e.MessageID, e.Detail,
		})
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = harmless(cell)
		}
		if err := out.Write(row); err != nil {
			return fmt.Errorf("write the evidence: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write the evidence: %w", err)
	}
	return nil
}

// harmless puts an apostrophe before a cell that a spreadsheet would calculate.
func harmless(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r\n|%＝＋－＠", []rune(cell)[0]) {
		return "'" + cell
	}
	return cell
}

func stamp(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}
