package reconcile

import (
	"context"

	"hubsync/shared/telemetry"
)

// measure writes what a sweep did and the gauges that the alarms look at. A sweep that
// failed is no run: three minutes without one are an alarm.
func (r *Reconciler) measure(ctx context.Context, total Result, failure error) {
	if r.Metrics == nil {
		return
	}
	if failure == nil {
		r.Metrics.Emit(telemetry.Of(telemetry.SweepRuns, 1), telemetry.Of(telemetry.StuckRescheduled, total.Scheduled))
	}
	g, err := r.DB.Gauges(ctx)
	if err != nil {
		r.Logger.Error("the gauges cannot be read", "error", err.Error())
		return
	}
	values := []telemetry.Value{
		telemetry.Of(telemetry.DeadEvents, g.Dead), telemetry.Of(telemetry.DriftListed, g.Drift),
		telemetry.Of(telemetry.ChecksHeld, g.Held), telemetry.Of(telemetry.PortalsPaused, g.Paused),
	}
	for lane, age := range g.Oldest {
		v := telemetry.Lasted(telemetry.OldestUnconverged, age)
		v.Lane = lane.String()
		values = append(values, v)
	}
	r.Metrics.Emit(values...)
}
