package ops

import (
	"context"
	"time"

	"hubsync/shared/postgres"
)

// LaneStatus is what of one lane of a portal is not settled.
type LaneStatus struct {
	Lane     string `json:"lane"`
	Waiting  int    `json:"waiting"`  // in PostgreSQL
	InFlight int    `json:"inFlight"` // with the relay, QStash or a worker
	// OldestSeconds is the age of the oldest decision that is not settled.
	OldestSeconds int `json:"oldestSeconds"`
}

// PortalStatus is the state of one account.
type PortalStatus struct {
	ID          string     `json:"id"`
	PausedUntil *time.Time `json:"pausedUntil"`
	PauseReason string     `json:"pauseReason,omitzero"`
	OptOutsToo  bool       `json:"optOutsToo,omitzero"` // the pause holds them as well
	Recovering  bool       `json:"recovering,omitzero"` // from an outage
	Burst       int        `json:"burstLimit"`
	WindowMs    int64      `json:"burstWindowMs"`
	Daily       int        `json:"dailyLimit"`
	// WindowUsed and DayUsed are calls that count now; -1: it is not known.
	WindowUsed int          `json:"windowUsed"`
	DayUsed    int          `json:"dayUsed"`
	Lanes      []LaneStatus `json:"lanes"`
	// PerMinute is how many subscriptions HubSpot confirmed a minute, lately.
	PerMinute float64 `json:"confirmedPerMinute"`
	// DrainSeconds is how long what waits takes at that rate; -1: nothing moves.
	DrainSeconds int `json:"drainSeconds"`
}

// PauseStatus is what an operator paused.
type PauseStatus struct {
	Portal     string    `json:"portal,omitzero"` // empty, as the others: every one
	Brand      string    `json:"brand,omitzero"`
	Lane       string    `json:"lane,omitzero"`
	OptOutsToo bool      `json:"optOutsToo,omitzero"`
	Until      time.Time `json:"until"`
	Reason     string    `json:"reason"`
}

// Status is how everything stands. OK: nothing waits for a person.
type Status struct {
	OK        bool                   `json:"ok"`
	At        time.Time              `json:"at"`
	Portals   []PortalStatus         `json:"portals"`
	Pauses    []PauseStatus          `json:"pauses"`
	Dead      []postgres.DeadCount   `json:"dead"`
	Attention postgres.Attention     `json:"attention"`
	HeldRuns  []postgres.RunRow      `json:"heldRuns"`
	Breakers  []postgres.OpenBreaker `json:"breakers"`
	LastSweep *time.Time             `json:"lastSweep"`
	LastCheck *time.Time             `json:"lastCheck"`
}

// ratePeriod is what a rate is counted over.
const ratePeriod = 5 * time.Minute

// Status tells how everything stands, from the database, and the budget from Redis.
func (o *Ops) Status(ctx context.Context, _ None) (Status, error) {
	db, err := o.db()
	if err != nil {
		return Status{}, err
	}
	s := Status{At: o.cfg.Clock().UTC()}
	if err := s.readPortals(ctx, db); err != nil {
		return Status{}, err
	}
	o.readBudgets(ctx, s.Portals)
	pauses, err := db.Pauses(ctx)
	if err != nil {
		return Status{}, err
	}
	for _, p := range pauses {
		s.Pauses = append(s.Pauses, pauseStatus(p))
	}
	if s.Dead, err = db.Dead(ctx); err != nil {
		return Status{}, err
	}
	if s.Attention, err = db.Attention(ctx); err != nil {
		return Status{}, err
	}
	if s.HeldRuns, err = db.HeldRuns(ctx); err != nil {
		return Status{}, err
	}
	if s.Breakers, err = db.Breakers(ctx); err != nil {
		return Status{}, err
	}
	if s.LastSweep, err = db.LastRun(ctx, "sweep"); err != nil {
		return Status{}, err
	}
	if s.LastCheck, err = db.LastRun(ctx, "check"); err != nil {
		return Status{}, err
	}
	s.OK = len(s.Dead)+len(s.HeldRuns)+s.Attention.Drift+s.Attention.Conflicts == 0 && !s.stopped()
	return s, nil
}

// stopped reports whether a portal is kept from working by something else than an
// operator's own pause.
func (s Status) stopped() bool {
	for _, p := range s.Portals {
		if p.PausedUntil != nil || p.Recovering {
			return true
		}
	}
	return len(s.Breakers) > 0
}

func (s *Status) readPortals(ctx context.Context, db *postgres.DB) error {
	portals, err := db.Portals(ctx)
	if err != nil {
		return err
	}
	backlog, err := db.Backlog(ctx)
	if err != nil {
		return err
	}
	rates, err := db.Rates(ctx, s.At.Add(-ratePeriod))
	if err != nil {
		return err
	}
	for _, p := range portals {
		ps := PortalStatus{
			ID: p.ID, PausedUntil: p.PausedUntil, PauseReason: p.PauseReason, OptOutsToo: p.PauseOptOuts, Recovering: p.Recovering,
			Burst: p.BurstLimit, WindowMs: p.BurstWindow.Milliseconds(), Daily: p.DailyLimit,
		}
		for _, r := range rates {
			if r.PortalID == p.ID {
				ps.PerMinute = float64(r.Confirmed) / ratePeriod.Minutes()
			}
		}
		left := 0
		for _, b := range backlog {
			if b.PortalID == p.ID {
				left += b.Waiting + b.InFlight
				ps.Lanes = append(ps.Lanes, LaneStatus{b.Lane.String(), b.Waiting, b.InFlight, max(int(s.At.Sub(b.Oldest).Seconds()), 0)})
			}
		}
		ps.DrainSeconds = drain(left, ps.PerMinute)
		s.Portals = append(s.Portals, ps)
	}
	return nil
}

// readBudgets adds what of the budgets is spent. Redis away is no reason to show nothing.
func (o *Ops) readBudgets(ctx context.Context, portals []PortalStatus) {
	for i := range portals {
		p := &portals[i]
		p.WindowUsed, p.DayUsed = -1, -1
		if o.cfg.Budget == nil {
			continue
		}
		usage, err := o.cfg.Budget.Usage(ctx, p.ID, time.Duration(p.WindowMs)*time.Millisecond)
		if err == nil && usage.Known {
			p.WindowUsed, p.DayUsed = usage.Window, usage.Day
		}
	}
}

// drain predicts, in seconds, how long what is left takes; -1: nothing moves.
func drain(left int, perMinute float64) int {
	switch {
	case left == 0:
		return 0
	case perMinute == 0:
		return -1
	default:
		return int(float64(left) / perMinute * 60)
	}
}

func pauseStatus(p postgres.Pause) PauseStatus {
	s := PauseStatus{Portal: p.PortalID, Brand: p.BrandID, OptOutsToo: p.OptOuts, Until: p.Until, Reason: p.Reason}
	if p.Lane != postgres.EveryLane {
		s.Lane = p.Lane.String()
	}
	return s
}
