package postgres

// The statements whose plans are tested.
const (
	ClaimPublishableSQL = claimPublishable
	SelectRoutesSQL     = selectRoutes
	SweepStuckSQL       = sweepStuck
	OldestWaitingSQL    = oldestWaiting
	SelectOldestSQL     = selectOldest
)

// ForOperators are the tables that no function's role may touch.
func ForOperators() []string { return forOperators }
