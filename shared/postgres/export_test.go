package postgres

// The statements whose plans are tested.
const (
	ClaimPublishableSQL = claimPublishable
	SelectRoutesSQL     = selectRoutes
	SweepStuckSQL       = sweepStuck
	OldestWaitingSQL    = oldestWaiting
)
