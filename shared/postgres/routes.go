package postgres

import (
	"context"
	"errors"
	"fmt"

	json "github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/routing"
)

// AppliedRoutes says what a routes file changed.
type AppliedRoutes struct {
	Versions map[string]int // the brands that got a new version
}

const upsertPortal = `
INSERT INTO hubspot_portals AS p (id, hub_id, api_version, burst_limit, burst_window_ms, daily_limit, time_zone, capabilities)
VALUES ($1, $2, $3, $4, $5, $6, $7, jsonb_build_object('plan', $8::text))
ON CONFLICT (id) DO UPDATE
SET hub_id = excluded.hub_id, api_version = excluded.api_version, burst_limit = excluded.burst_limit,
    burst_window_ms = excluded.burst_window_ms, daily_limit = excluded.daily_limit, time_zone = excluded.time_zone,
    capabilities = p.capabilities || excluded.capabilities, updated_at = hubsync.now()`

const upsertBrand = `
INSERT INTO brands (id, name) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET name = excluded.name`

// The brand's row is locked by the upsert above, so two applies take turns.
const newestMapping = `
SELECT m.version, m.content_hash = $2 AND m.status = 'active'
FROM brand_target_mappings m
WHERE m.brand_id = $1
ORDER BY m.version DESC
LIMIT 1`

const retireMapping = `UPDATE brand_target_mappings SET status = 'retired' WHERE brand_id = $1 AND status = 'active'`

const retireRoutes = `UPDATE brand_subscription_routes SET active = false WHERE brand_id = $1 AND active`

const insertMapping = `
INSERT INTO brand_target_mappings (brand_id, version, status, portal_id, business_unit_id, content_hash, activated_at)
VALUES ($1, $2, 'active', $3, nullif($4::bigint, 0), $5, hubsync.now())`

const insertProduct = `INSERT INTO subscription_products (id) VALUES ($1) ON CONFLICT DO NOTHING`

const insertRoute = `
INSERT INTO brand_subscription_routes
  (brand_id, version, product_id, portal_id, channel, subscription_type_id, legal_basis, snapshot, active)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, true)`

const insertTarget = `
INSERT INTO hubspot_targets (brand_id, version, product_id, ordinal, kind, required, settings)
VALUES ($1, $2, $3, $4, $5, $6, $7)`

// ApplyRoutes makes a checked routes file the active mapping, in one transaction: a
// brand that changed gets version n + 1, the others keep theirs. Events on their way
// keep their snapshot. Brands that the file does not name keep their routes.
func (db *DB) ApplyRoutes(ctx context.Context, file *routing.File) (AppliedRoutes, error) {
	var applied AppliedRoutes
	err := InTx(ctx, db.pool, func(tx pgx.Tx) error {
		applied = AppliedRoutes{Versions: map[string]int{}}
		for _, p := range file.Portals {
			if _, err := tx.Exec(ctx, upsertPortal, p.ID, p.HubID, p.APIVersion, p.Burst.Limit,
				p.Burst.WindowDuration().Milliseconds(), p.Daily, p.TimeZone, p.Plan); err != nil {
				return fmt.Errorf("portal %s: %w", p.ID, err)
			}
		}
		changed, err := changedBrands(ctx, tx, file.Brands)
		if err != nil {
			return err
		}
		// Every changed brand's old routes go first: a subscription type may move from
		// one brand to another.
		for _, c := range changed {
			if err := execAll(ctx, tx, c.brand.ID, retireMapping, retireRoutes); err != nil {
				return fmt.Errorf("brand %s: %w", c.brand.ID, err)
			}
		}
		for _, c := range changed {
			if err := insertVersion(ctx, tx, c); err != nil {
				return fmt.Errorf("brand %s: %w", c.brand.ID, err)
			}
			applied.Versions[c.brand.ID] = c.version
		}
		return nil
	})
	if err != nil {
		return AppliedRoutes{}, fmt.Errorf("apply routes: %w", err)
	}
	if _, err := db.pool.Exec(ctx, analyzeRouting); err != nil {
		return applied, fmt.Errorf("routes are applied, but not analysed: %w", err)
	}
	return applied, nil
}

// Autovacuum never looks at tables this small, and without statistics the planner takes
// them for hundreds of rows: the relay's query would be compiled (JIT, 400 ms) at every
// pass.
const analyzeRouting = `ANALYZE hubspot_portals, brands`

func execAll(ctx context.Context, tx pgx.Tx, brandID string, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s, brandID); err != nil {
			return err
		}
	}
	return nil
}

// changedBrand is a brand whose mapping differs from its newest version.
type changedBrand struct {
	brand   routing.Brand
	version int
	hash    string
}

func changedBrands(ctx context.Context, tx pgx.Tx, brands []routing.Brand) ([]changedBrand, error) {
	var changed []changedBrand
	for _, b := range brands {
		if _, err := tx.Exec(ctx, upsertBrand, b.ID, b.Name); err != nil {
			return nil, fmt.Errorf("brand %s: %w", b.ID, err)
		}
		hash, err := b.Hash()
		if err != nil {
			return nil, err
		}
		version, same := 0, false
		err = tx.QueryRow(ctx, newestMapping, b.ID, hash).Scan(&version, &same)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("brand %s: %w", b.ID, err)
		}
		if !same {
			changed = append(changed, changedBrand{b, version + 1, hash})
		}
	}
	return changed, nil
}

func insertVersion(ctx context.Context, tx pgx.Tx, c changedBrand) error {
	b := c.brand
	if _, err := tx.Exec(ctx, insertMapping, b.ID, c.version, b.Portal, b.BusinessUnitID, c.hash); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for _, p := range b.Products {
		snapshot, err := json.Marshal(b.Snapshot(p, c.version))
		if err != nil {
			return err
		}
		batch.Queue(insertProduct, p.ID)
		batch.Queue(insertRoute, b.ID, c.version, p.ID, b.Portal, p.Channel, p.SubscriptionTypeID, p.LegalBasis, string(snapshot))
		for i, t := range p.Targets {
			settings, err := json.Marshal(t)
			if err != nil {
				return err
			}
			batch.Queue(insertTarget, b.ID, c.version, p.ID, i, t.Kind, t.Required, string(settings))
		}
	}
	return tx.SendBatch(ctx, batch).Close()
}
