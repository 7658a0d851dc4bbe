package lambdatest

import (
	"context"
	"sync"
	"time"
)

// ScheduleEvent is what Scheduler sends to a target without an input of its own.
var ScheduleEvent = []byte("{}")

// Schedule invokes the function at every tick until the context ends, at once first.
// As Scheduler does, it does not wait for a run that takes longer than the period. done
// is told of every run; it may be nil.
func Schedule(ctx context.Context, f *Function, period time.Duration, done func(Result, error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for ctx.Err() == nil {
		wg.Go(func() {
			r, err := f.Invoke(ctx, ScheduleEvent)
			if done != nil && ctx.Err() == nil {
				done(r, err)
			}
		})
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
