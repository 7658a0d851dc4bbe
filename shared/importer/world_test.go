package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/casetest"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/routing"
)

func TestMain(m *testing.M) { casetest.Main(m, "importer") }

const testRoutes = `
portals:
  - {id: main, hubId: 1, burst: {limit: 150, window: 10s}, daily: 500000}
brands:
  - id: acme
    portal: main
    products:
      - {id: newsletter, subscriptionTypeId: 2239644020, legalBasis: CONSENT_WITH_NOTICE}
      - {id: events, subscriptionTypeId: 2239644021, legalBasis: CONSENT_WITH_NOTICE}
  - id: other
    portal: main
    products:
      - {id: newsletter, subscriptionTypeId: 2239644022, legalBasis: CONSENT_WITH_NOTICE}
`

// world is a database with routes, and a folder for files.
type world struct {
	t      *testing.T
	dsn    string
	pool   *pgxpool.Pool
	db     *postgres.DB
	folder string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: postgrestest.DSN(t), folder: t.TempDir()}
	w.pool = postgrestest.Open(t, w.dsn)
	w.db = postgres.New(w.pool)
	file, err := routing.Parse([]byte(testRoutes))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.ApplyRoutes(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	return w
}

// file writes a file and returns its path.
func (w *world) file(name, content string) string {
	w.t.Helper()
	path := filepath.Join(w.folder, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// run imports a file and returns its report and its results, without their request ids.
func (w *world) run(o Options) (Report, []string, error) {
	w.t.Helper()
	o.DB, o.Clock, o.NewID = w.db, time.Now, newID
	report, err := Run(w.t.Context(), o)
	return report, w.results(o.Path + ".results.csv"), err
}

func (w *world) results(path string) []string {
	w.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != strings.TrimSuffix(resultsHeader, "\n") {
		w.t.Fatalf("results begin with %q", lines[0])
	}
	return lines[1:]
}

// mustAddUp checks the totals of a complete import against its results.
func (w *world) mustAddUp(r Report, results []string) {
	w.t.Helper()
	if !r.Complete || r.Done != r.Rows || int64(len(results)) != r.Rows {
		w.t.Errorf("%d of %d rows done, %d results, complete %v", r.Done, r.Rows, len(results), r.Complete)
	}
	counted := map[string]int64{}
	for _, line := range results {
		counted[strings.Split(line, ",")[2]]++
	}
	if counted["accepted"] != r.Accepted || counted["superseded"] != r.Superseded || counted["replayed"] != r.Replayed || counted["refused"] != r.Refused {
		w.t.Errorf("results say %v, the report %+v", counted, r.ImportCounts)
	}
	var byCode int64
	for _, n := range r.ByCode {
		byCode += n
	}
	if r.Accepted+r.Superseded+r.Replayed+r.Refused != r.Rows || byCode != r.Refused {
		w.t.Errorf("the totals do not add up: %+v", r)
	}
}

// texts returns the rows of a query of one text column.
func (w *world) texts(query string, args ...any) []string {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), query, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, text)
	}
	if rows.Err() != nil {
		w.t.Fatal(rows.Err())
	}
	return all
}

// mustBeEmpty checks that nothing was stored.
func (w *world) mustBeEmpty() {
	w.t.Helper()
	if n := w.texts(`SELECT concat_ws(' ', (SELECT count(*) FROM contacts), (SELECT count(*) FROM subscription_requests), (SELECT count(*) FROM imports))`)[0]; n != "0 0 0" {
		w.t.Errorf("contacts, requests, imports: %s", n)
	}
}
