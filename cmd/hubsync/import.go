package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"hubsync/shared/importer"
	"hubsync/shared/postgres"
)

func newImport(getenv func(string) string) *cobra.Command {
	var o importer.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE.csv|FILE.ndjson",
		Short: "Store the decisions of a file, as if each had come through the API",
		Long: `import reads a file of decisions and stores them in the database of DATABASE_URL by the
rules of the API, in file order, behind all live traffic. The file is checked whole before
the first row is stored: UTF-8, commas, LF or CRLF, quoted newlines, a header with exact
names; anything else is refused with its line. A subscribed row needs the date of its
consent, in the column occurredAt or by --consent-date.

Every row's end stands in the results file. The same file again has no second effect, and
after Ctrl-C or a crash the same command goes on where it stopped. docs/import.md says more.

The exit code is 0 if every row was stored, 3 if some were refused, 1 if it stopped.`,
		Args: exactly(1, "the file to import"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Path = args[0]
			return runImport(cmd, getenv("DATABASE_URL"), o, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.BrandID, "brand", "", "the brand of every row, where the file has no column brandId")
	flags.StringVar(&o.ProductID, "product", "", "the product of every row, where the file has no column productId")
	flags.StringVar(&o.ConsentDate, "consent-date", "", "the consent's date of subscribed rows without occurredAt: a day, or an RFC 3339 time")
	flags.StringVar(&o.Format, "format", "", "csv or ndjson, where the file's name does not say it")
	flags.StringVar(&o.Results, "results", "", "where to write every row's end (default FILE.results.csv)")
	flags.BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

func runImport(cmd *cobra.Command, dsn string, o importer.Options, asJSON bool) error {
	ctx := cmd.Context()
	if dsn == "" {
		return errors.New("DATABASE_URL is not set: give the database to import into, such as postgres://user@host:5432/name")
	}
	pool, err := postgres.Open(ctx, postgres.Config{URL: dsn})
	if err != nil {
		return err
	}
	defer pool.Close()
	o.DB, o.Clock = postgres.New(pool), time.Now
	o.NewID = func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	if isTerminal(os.Stderr) {
		o.Progress = func(p importer.Progress) { fmt.Fprint(os.Stderr, "\r"+progressBar(p)+"\033[K") }
	}
	report, err := importer.Run(ctx, o)
	if o.Progress != nil {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
	var usage *importer.UsageError
	if errors.As(err, &usage) {
		return &usageError{err}
	}
	if report.ImportID != "" {
		if err := errors.Join(err, printImport(cmd.OutOrStdout(), report, asJSON)); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case !report.Complete:
		return errSilent
	case report.Refused > 0:
		return errAttention
	}
	return nil
}

// progressBar is one line: a bar, the share, the rate and the time left.
func progressBar(p importer.Progress) string {
	const width = 30
	share := 1.0
	if p.Total > 0 {
		share = float64(p.Done) / float64(p.Total)
	}
	full := int(share * width)
	return fmt.Sprintf("[%s%s] %3.0f %%  %s of %s rows  %s/s  %s left", strings.Repeat("█", full), strings.Repeat("·", width-full),
		share*100, grouped(p.Done), grouped(p.Total), grouped(int64(p.Rate)), p.Left.Round(time.Second))
}

// grouped writes a number with commas between the thousands.
func grouped(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func printImport(w io.Writer, r importer.Report, asJSON bool) error {
	if asJSON {
		if err := json.MarshalWrite(w, r, jsontext.WithIndent("  ")); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		_, err := fmt.Fprintln(w)
		return err
	}
	p := &page{}
	if r.ResumedAt > 0 {
		p.line("went on behind row %s of an import that had stopped", grouped(r.ResumedAt))
	}
	p.line("%s of %s rows in %.1f s: %s accepted, %s superseded by an opt-out, %s stored already, %s refused",
		grouped(r.Done), grouped(r.Rows), r.Seconds, grouped(r.Accepted), grouped(r.Superseded), grouped(r.Replayed), grouped(r.Refused))
	for _, code := range slices.Sorted(maps.Keys(r.ByCode)) {
		p.line("  refused, %s: %s", code, grouped(r.ByCode[code]))
	}
	p.line("every row's end: %s", r.Results)
	if !r.Complete {
		p.line("stopped: the same command goes on behind row %s", grouped(r.Done))
	}
	_, err := io.WriteString(w, p.String())
	return err
}
