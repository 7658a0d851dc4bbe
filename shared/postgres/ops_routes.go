package postgres

import (
	"context"
	"fmt"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"hubsync/shared/routing"
)

// ActiveRoutes is what is active now, in the form of a routes file.
type ActiveRoutes struct {
	File     *routing.File
	Versions map[string]int // of each brand
}

const selectActivePortals = `
SELECT id, hub_id, api_version, burst_limit, burst_window_ms, daily_limit, time_zone, coalesce(capabilities ->> 'plan', '')
FROM hubspot_portals ORDER BY id`

// One row per route and target, in the order of the file that they came from.
const selectActiveRoutes = `
SELECT b.id, b.name, m.portal_id, coalesce(m.business_unit_id, 0), m.version,
       r.product_id, r.channel, r.subscription_type_id, r.legal_basis, coalesce(t.settings::text, '')
FROM brand_target_mappings m
JOIN brands b ON b.id = m.brand_id
JOIN brand_subscription_routes r ON r.brand_id = m.brand_id AND r.version = m.version
LEFT JOIN hubspot_targets t ON t.brand_id = r.brand_id AND t.version = r.version AND t.product_id = r.product_id
WHERE m.status = 'active'
ORDER BY b.id, r.product_id, t.ordinal`

// ActiveRoutes reads the active mapping of every brand.
func (db *DB) ActiveRoutes(ctx context.Context) (ActiveRoutes, error) {
	active := ActiveRoutes{File: &routing.File{}, Versions: map[string]int{}}
	rows, err := db.pool.Query(ctx, selectActivePortals)
	if err != nil {
		return active, fmt.Errorf("read active portals: %w", err)
	}
	active.File.Portals, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p routing.Portal, err error) {
		var windowMs int64
		err = row.Scan(&p.ID, &p.HubID, &p.APIVersion, &p.Burst.Limit, &windowMs, &p.Daily, &p.TimeZone, &p.Plan)
		p.Burst.Window = (time.Duration(windowMs) * time.Millisecond).String()
		return p, err
	})
	if err != nil {
		return active, fmt.Errorf("read active portals: %w", err)
	}
	if rows, err = db.pool.Query(ctx, selectActiveRoutes); err != nil {
		return active, fmt.Errorf("read active routes: %w", err)
	}
	var b routing.Brand
	var p routing.Product
	var version int
	var settings string
	_, err = pgx.ForEachRow(rows, []any{&b.ID, &b.Name, &b.Portal, &b.BusinessUnitID, &version, &p.ID, &p.Channel, &p.SubscriptionTypeID,
		&p.LegalBasis, &settings}, func() error {
		active.Versions[b.ID] = version
		return active.add(b, p, settings)
	})
	if err != nil {
		return active, fmt.Errorf("read active routes: %w", err)
	}
	return active, nil
}

// add takes one row: a brand and product come again for each further target.
func (a *ActiveRoutes) add(b routing.Brand, p routing.Product, settings string) error {
	brands := &a.File.Brands
	if n := len(*brands); n == 0 || (*brands)[n-1].ID != b.ID {
		*brands = append(*brands, b)
	}
	products := &(*brands)[len(*brands)-1].Products
	if n := len(*products); n == 0 || (*products)[n-1].ID != p.ID {
		*products = append(*products, p)
	}
	if settings == "" {
		return nil
	}
	var t routing.Target
	if err := json.Unmarshal([]byte(settings), &t); err != nil {
		return fmt.Errorf("target of %s/%s: %w", b.ID, p.ID, err)
	}
	targets := &(*products)[len(*products)-1].Targets
	*targets = append(*targets, t)
	return nil
}

// MappingVersion is one version of a brand's mapping.
type MappingVersion struct {
	BrandID     string     `json:"brandId"`
	Version     int        `json:"version"`
	Status      string     `json:"status"` // active or retired
	PortalID    string     `json:"portalId"`
	Products    int        `json:"products"`
	InFlight    int        `json:"inFlight"` // events under it that are not settled
	ContentHash string     `json:"contentHash"`
	ActivatedAt *time.Time `json:"activatedAt"`
}

const selectMappingVersions = `
SELECT m.brand_id, m.version, m.status, m.portal_id,
       (SELECT count(*) FROM brand_subscription_routes r WHERE r.brand_id = m.brand_id AND r.version = m.version),
       (SELECT count(*) FROM hubspot_outbox_events e
        WHERE e.brand_id = m.brand_id AND e.mapping_version = m.version AND e.portal_id = m.portal_id
          AND e.status IN ('pending', 'publishing', 'publish_retry', 'process_retry', 'queued', 'processing')),
       m.content_hash, m.activated_at
FROM brand_target_mappings m
WHERE $1 = '' OR m.brand_id = $1
ORDER BY m.brand_id, m.version DESC
LIMIT $2`

// MappingVersions lists the versions of one brand (empty: of all), the newest first.
func (db *DB) MappingVersions(ctx context.Context, brandID string, limit int) ([]MappingVersion, error) {
	return list(ctx, db, "read mapping versions", pgx.RowToStructByPos[MappingVersion], selectMappingVersions, brandID, limit)
}

const countSubscriptions = `SELECT count(*) FROM contact_subscription_state WHERE brand_id = $1 AND product_id = $2`

// CountSubscriptions says how many people have, or had, a subscription.
func (db *DB) CountSubscriptions(ctx context.Context, brandID, productID string) (n int, err error) {
	if err = db.pool.QueryRow(ctx, countSubscriptions, brandID, productID).Scan(&n); err != nil {
		err = fmt.Errorf("count subscriptions of %s/%s: %w", brandID, productID, err)
	}
	return n, err
}
