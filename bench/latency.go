package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
)

// betweenProbes is not a multiple of the relay's poll, so that probes come at every
// moment of it.
const betweenProbes = 170 * time.Millisecond

// settleTime is how long the last probe may take.
const settleTime = 10 * time.Second

// latencies sends opt-outs one after the other into an idle portal.
func (p *plant) latencies(ctx context.Context, portal string, n int) ([]time.Duration, error) {
	return p.probe(ctx, portal, func(i int) bool { return i < n })
}

// optOuts sends them for a time.
func (p *plant) optOuts(ctx context.Context, portal string, d time.Duration) ([]time.Duration, error) {
	end := time.Now().Add(d)
	return p.probe(ctx, portal, func(int) bool { return time.Now().Before(end) })
}

// probe sends opt-outs of newcomers over HTTP and reads from the database how long each
// took from accepted to confirmed. One that did not end counts with what it took so far.
func (p *plant) probe(ctx context.Context, brand string, more func(int) bool) ([]time.Duration, error) {
	run := time.Now().UnixNano()
	for i := 0; more(i); i++ {
		key := fmt.Sprintf("probe-%d-%d", run, i)
		body := fmt.Sprintf(`{"contactKey":%q,"email":"%s@example.com","productId":"newsletter","desiredState":"unsubscribed"}`, key, key)
		if err := p.post(ctx, brand, key, body); err != nil {
			return nil, err
		}
		if err := sleep(ctx, betweenProbes); err != nil {
			return nil, err
		}
	}
	var took []time.Duration
	for deadline := time.Now().Add(settleTime); ; {
		rows, err := p.pool.Query(ctx, `
			SELECT coalesce(e.completed_at, hubsync.now()) - e.created_at, e.completed_at IS NULL
			FROM subscription_requests r JOIN hubspot_outbox_events e ON e.request_id = r.id
			WHERE r.brand_id = $1 AND r.product_id = 'newsletter' AND r.idempotency_key LIKE $2`, brand, fmt.Sprintf("probe-%d-%%", run))
		if err != nil {
			return nil, fmt.Errorf("read latencies: %w", err)
		}
		var d time.Duration
		var open bool
		left := 0
		took = took[:0]
		if _, err = pgx.ForEachRow(rows, []any{&d, &open}, func() error {
			took = append(took, d)
			if open {
				left++
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("read latencies: %w", err)
		}
		if left == 0 || time.Now().After(deadline) {
			return took, nil
		}
		if err := sleep(ctx, betweenProbes); err != nil {
			return nil, err
		}
	}
}

func (p *plant) post(ctx context.Context, brand, key, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.world.APIURL+"/v1/brands/"+brand+"/subscriptions", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("send a decision: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // drained below
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("send a decision: %w", err)
	}
	if response.StatusCode != http.StatusAccepted {
		return fmt.Errorf("a decision was answered %d", response.StatusCode)
	}
	return nil
}

// latencyRows compares p50 and p99 with milliseconds; 0: no target.
func latencyRows(what string, took []time.Duration, p50, p99 float64, name string) []row {
	note := fmt.Sprintf("%d probes, the worst %.0f ms", len(took), percentile(took, 1))
	var rows []row
	for _, q := range []struct {
		p, most float64
	}{{0.5, p50}, {0.99, p99}} {
		if q.most == 0 {
			continue
		}
		measured := series{percentile(took, q.p)}
		r := row{what: fmt.Sprintf("%s, p%.0f", what, 100*q.p), target: fmt.Sprintf("≤ %.1f s", q.most/1000), unit: "ms", measured: measured,
			ratio: measured.per(q.most), want: 1, atMost: true, note: note}
		if q.p > 0.9 {
			r.short = name
		}
		rows = append(rows, r)
	}
	return rows
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
