package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"hubsync/shared/postgres"
)

// portalsFor is how long a portal's row is kept: a lowered budget takes effect
// within this time.
const portalsFor = 5 * time.Second

// portalCache keeps the portals' rows for a few seconds.
type portalCache struct {
	mu     sync.Mutex
	readAt time.Time
	byID   map[string]postgres.Portal
}

func (c *portalCache) get(ctx context.Context, w *Worker, id string) (postgres.Portal, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := w.Clock()
	if c.byID == nil || now.Sub(c.readAt) > portalsFor || now.Before(c.readAt) {
		portals, err := w.DB.Portals(ctx)
		if err != nil {
			return postgres.Portal{}, fmt.Errorf("read portals: %w", err)
		}
		c.byID = make(map[string]postgres.Portal, len(portals))
		for _, p := range portals {
			c.byID[p.ID] = p
		}
		c.readAt = now
	}
	p, ok := c.byID[id]
	if !ok {
		return postgres.Portal{}, fmt.Errorf("portal %s is not in hubspot_portals", id)
	}
	return p, nil
}
