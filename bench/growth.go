package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/intake"
	"hubsync/shared/postgres"
)

// axis is one thing that grows in production, and what a step costs at each size.
type axis struct {
	name, file string
	sizes      []int
	measure    func(ctx context.Context, b *bench, size int) (map[string]float64, error)
}

// The lines of the plots, in milliseconds.
const (
	lineClaim    = "claim of 100"
	lineRoutes   = "routes"
	lineDecision = "decision"
)

// benchGrowth measures the same steps at growing sizes. Flat is the target: what a step
// costs may grow with the depth of an index, not with the size of a table.
func benchGrowth(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, a := range []axis{
		{"pending events", "pending", b.form.growth, growPending},
		{"brands", "brands", b.form.brands, growBrands},
		{"settled events for each pending one", "age", b.form.ages, growAge},
		{"people", "people", b.form.people, growPeople},
	} {
		if len(a.sizes) == 0 {
			continue
		}
		lines := map[string]series{}
		for _, size := range a.sizes {
			began := time.Now()
			costs, err := a.measure(ctx, b, size)
			if err != nil {
				return nil, fmt.Errorf("%d %s: %w", size, a.name, err)
			}
			fmt.Fprintf(os.Stderr, "growth: %s %s, %.1f s\n", short(size), a.name, time.Since(began).Seconds())
			for name, ms := range costs {
				lines[name] = append(lines[name], ms)
			}
		}
		if b.plots != "" {
			svg := plot("Cost of a step, by "+a.name, a.name, "ms", a.sizes, lines)
			if err := os.WriteFile(filepath.Join(b.plots, "growth-"+a.file+".svg"), []byte(svg), 0o644); err != nil {
				return nil, fmt.Errorf("write plot: %w", err)
			}
		}
		rows = append(rows, growthRows(a, lines)...)
	}
	return rows, nil
}

// growthRows compares the largest size with the smallest.
func growthRows(a axis, lines map[string]series) []row {
	var rows []row
	first, last := a.sizes[0], a.sizes[len(a.sizes)-1]
	for _, name := range sortedKeys(lines) {
		s := lines[name]
		var all []string
		for i, ms := range s {
			all = append(all, short(a.sizes[i])+": "+figure(ms))
		}
		r := row{
			what: fmt.Sprintf("%s by %s", name, a.name), target: fmt.Sprintf("≤ 2 × from %s to %s", short(first), short(last)), unit: "ms",
			measured: s[len(s)-1:], ratio: series{s[len(s)-1] / math.Max(s[0], 0.01)}, want: 2, atMost: true, note: strings.Join(all, ", ") + " ms",
		}
		// The routes query looks at each brand, so it may grow with their number.
		if name == lineRoutes && a.file == "brands" {
			r.target, r.want = "", 0
		}
		if name != lineRoutes {
			r.gate = 8
		}
		if a.file == "pending" && name == lineDecision {
			r.short = "decision growth"
		}
		rows = append(rows, r)
	}
	return rows
}

// growthWorld is a database whose intake already has its plans, made while the tables
// were empty: the plans that a long-lived session keeps.
type growthWorld struct {
	db     *database
	pool   *pgxpool.Pool
	q      *postgres.DB
	people int64
}

func newGrowthWorld(ctx context.Context, b *bench, routes string) (*growthWorld, error) {
	file, err := parseRoutes(routes)
	if err != nil {
		return nil, err
	}
	db, err := b.pg.hubsync(ctx, file)
	if err != nil {
		return nil, err
	}
	pool, err := db.pool(ctx, 1, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	w := &growthWorld{db: db, pool: pool, q: postgres.New(pool)}
	if _, err := pool.Exec(ctx, `ANALYZE`); err != nil {
		return nil, err
	}
	_, err = w.decisions(ctx)
	return w, err
}

func (w *growthWorld) close(ctx context.Context) {
	w.pool.Close()
	_ = w.db.drop(context.WithoutCancel(ctx)) // the server goes too
}

// decisions is the median of a known person's second decision, whose first one waits.
func (w *growthWorld) decisions(ctx context.Context) (float64, error) {
	handler := intake.New(intake.Config{DB: w.q})
	took := make([]time.Duration, claimsARound)
	for i := range took {
		w.people++
		for again := range 2 {
			started := time.Now()
			if err := decideAs(ctx, handler, 1e9+w.people, fmt.Sprintf("grow-%d-%d", w.people, again)); err != nil {
				return 0, err
			}
			took[i] = time.Since(started)
		}
	}
	return percentile(took, 0.5), nil
}

// costs measures every line.
func (w *growthWorld) costs(ctx context.Context) (map[string]float64, error) {
	decision, err := w.decisions(ctx)
	if err != nil {
		return nil, err
	}
	routes := make([]time.Duration, claimsARound)
	for i := range routes {
		started := time.Now()
		if _, err := w.q.Routes(ctx, relayRoutes); err != nil {
			return nil, err
		}
		routes[i] = time.Since(started)
	}
	claim, err := claimRound(ctx, w.q)
	return map[string]float64{lineDecision: decision, lineRoutes: percentile(routes, 0.5), lineClaim: claim}, err
}

func growPending(ctx context.Context, b *bench, size int) (map[string]float64, error) {
	return growFilled(ctx, b, oneRoute, []backlog{{portal: "main", brand: "acme", pending: size}}, nil)
}

func growAge(ctx context.Context, b *bench, size int) (map[string]float64, error) {
	return growFilled(ctx, b, oneRoute, []backlog{{portal: "main", brand: "acme", pending: agePending, settledEach: size}}, nil)
}

// agePending events wait among the settled ones.
const agePending = 20_000

// queuedAhead is what a relay lets wait in QStash, per lane, under 150 calls in 10 s.
const queuedAhead = 15_000

// growBrands spreads a backlog over brands, with as many events queued as there may be.
func growBrands(ctx context.Context, b *bench, size int) (map[string]float64, error) {
	var routes strings.Builder
	routes.WriteString("portals: [{id: main, hubId: 1, burst: {limit: 150, window: 10s}, daily: 100000000}]\nbrands:\n")
	var fills []backlog
	for i := range size {
		id := fmt.Sprintf("brand-%d", i)
		if i == 0 {
			id = "acme"
		}
		fmt.Fprintf(&routes, "  - {id: %s, portal: main, products: [{id: newsletter, subscriptionTypeId: %d, legalBasis: CONSENT_WITH_NOTICE}]}\n", id, i+1)
		fills = append(fills, backlog{portal: "main", brand: id, pending: max(brandsPending/size, 10*claimSize)})
	}
	queued := backlog{portal: "main", brand: "acme", pending: 3 * queuedAhead}
	return growFilled(ctx, b, routes.String(), fills, &queued)
}

// brandsPending events are shared by the brands.
const brandsPending = 60_000

func growPeople(ctx context.Context, b *bench, size int) (map[string]float64, error) {
	w, err := newGrowthWorld(ctx, b, oneRoute)
	if err != nil {
		return nil, err
	}
	defer w.close(ctx)
	if err := w.db.people(ctx, size); err != nil {
		return nil, err
	}
	decision, err := w.decisions(ctx)
	return map[string]float64{lineDecision: decision}, err
}

// growFilled measures over backlogs, with one of them on its way if asked.
func growFilled(ctx context.Context, b *bench, routes string, fills []backlog, queued *backlog) (map[string]float64, error) {
	w, err := newGrowthWorld(ctx, b, routes)
	if err != nil {
		return nil, err
	}
	defer w.close(ctx)
	if queued != nil {
		if err := w.db.fill(ctx, *queued); err != nil {
			return nil, err
		}
		if _, err := w.pool.Exec(ctx, `UPDATE hubspot_outbox_events SET status = 'queued' WHERE status = 'pending'`); err != nil {
			return nil, err
		}
	}
	if err := w.db.fill(ctx, fills...); err != nil {
		return nil, err
	}
	return w.costs(ctx)
}
