package console

import (
	"context"
	"sync"
	"time"

	"hubsync/shared/ops"
)

// How often the state is looked at, and how many looks the charts show: a quarter of an
// hour.
const (
	sampleEvery = 5 * time.Second
	mostSamples = 180
)

// history keeps the last looks at the state.
type history struct {
	mu      sync.Mutex
	samples []ops.Status
	problem error // of the last look
}

// Run looks at the state every few seconds until the context ends.
func (c *Console) Run(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		c.Sample(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Sample looks at the state once.
func (c *Console) Sample(ctx context.Context) {
	s, err := ask[ops.Status](ctx, c, "status", ops.None{})
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	c.history.problem = err
	if err != nil {
		return
	}
	c.history.samples = append(c.history.samples, s)
	if n := len(c.history.samples); n > mostSamples {
		c.history.samples = c.history.samples[n-mostSamples:]
	}
}

// last returns the looks so far, oldest first, and what the newest one failed of.
func (h *history) last() ([]ops.Status, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]ops.Status(nil), h.samples...), h.problem
}
