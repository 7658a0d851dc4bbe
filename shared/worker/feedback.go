package worker

import (
	"context"
	"log/slog"
	"time"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
)

// feedbackTimeout bounds what is only advice.
const feedbackTimeout = 500 * time.Millisecond

// Feedback returns what a portal's client tells the budget after every answer: what
// other apps spend shrinks our window, and a 429 closes it for everyone.
func Feedback(limiter *budget.Limiter, portal string, logger *slog.Logger) func(hubspot.RateInfo) {
	return func(info hubspot.RateInfo) {
		ctx, cancel := context.WithTimeout(context.Background(), feedbackTimeout)
		defer cancel()
		err := limiter.Feedback(ctx, portal, budget.Feedback{
			Known: info.Known, Max: info.Max, Remaining: info.Remaining, Interval: info.Interval,
			DailyKnown: info.DailyKnown, DailyRemaining: info.DailyRemaining,
			TooMany: info.Policy != "", Policy: info.Policy, RetryAfter: info.RetryAfter,
		})
		if err != nil {
			logger.Warn("HubSpot's limits could not be noted", "portal", portal, "error", err.Error())
		}
	}
}
