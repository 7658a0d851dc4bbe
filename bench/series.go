package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// series is what one contender showed, a figure a round.
type series []float64

func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// spread is the distance from the smallest to the largest, as a share of the median.
func (s series) spread() float64 {
	if m := s.median(); m > 0 {
		return (slices.Max(s) - slices.Min(s)) / m
	}
	return 0
}

// over divides round by round: what slowed a whole round down slowed both.
func (s series) over(other series) series {
	ratios := make(series, 0, len(s))
	for i := range min(len(s), len(other)) {
		if other[i] > 0 {
			ratios = append(ratios, s[i]/other[i])
		}
	}
	return ratios
}

// percentile of durations, in milliseconds.
func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return float64(sorted[min(int(p*float64(len(sorted))), len(sorted)-1)].Microseconds()) / 1000
}

// contender is one of several things that are measured beside each other.
type contender struct {
	name  string
	round func(context.Context) (float64, error)
}

// interleave runs one round of each contender after the other, as often as asked. The
// first contender of a round is another one each time, so that none is always first.
func interleave(ctx context.Context, rounds int, contenders []contender) (map[string]series, error) {
	result := map[string]series{}
	for i := range rounds {
		for j := range contenders {
			c := contenders[(i+j)%len(contenders)]
			figure, err := c.round(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", c.name, i+1, err)
			}
			result[c.name] = append(result[c.name], figure)
		}
	}
	return result, nil
}

// rate lets clients do op over and over, and returns how many a second they did. op
// returns how many it did; the first error ends all.
func rate(ctx context.Context, clients int, d time.Duration, op func(ctx context.Context, client int) (int, error)) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var wg sync.WaitGroup
	started := time.Now()
	for client := range clients {
		wg.Go(func() {
			for time.Since(started) < d && ctx.Err() == nil {
				n, err := op(ctx, client)
				if err != nil {
					cancel(err)
					return
				}
				done.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	return float64(done.Load()) / time.Since(started).Seconds(), nil
}

// per divides by a constant.
func (s series) per(v float64) series {
	r := make(series, len(s))
	for i := range s {
		r[i] = s[i] / v
	}
	return r
}
