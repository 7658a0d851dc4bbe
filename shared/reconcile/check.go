package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
	"hubsync/shared/plan"
	"hubsync/shared/postgres"
	"hubsync/shared/routing"
	"hubsync/shared/telemetry"
)

// Checker compares what HubSpot shows with what was decided: soon after a call of ours
// may have landed unseen (verify), and everything else in turn on spare budget (audit).
// One comparison serves both.
type Checker struct {
	Config
	CheckConfig
}

// CheckConfig is what a Checker needs beyond Config.
type CheckConfig struct {
	Budget *budget.Limiter
	Client func(portalID string) (*hubspot.Client, error)
	Env    string
	// RateScale multiplies the portals' limits, as in the worker.
	RateScale float64
	Audit     time.Duration // default outbox.AuditPeriod
	Late      time.Duration // L; default outbox.LateWindow
	// MaxRepairs is how many differences a run repairs before it stops and asks.
	MaxRepairs int
	BudgetWait time.Duration // for one call; default 2 s
}

const (
	checkBatch        = 100
	checkAgain        = 2 * time.Minute // a look that was lost is taken again after this
	defaultMaxRepairs = 50
	defaultBudgetWait = 2 * time.Second
)

// NewChecker returns a checker.
func NewChecker(cfg Config, check CheckConfig) (*Checker, error) {
	r, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if check.Budget == nil || check.Client == nil || check.Env == "" {
		return nil, errors.New("reconcile: Budget, Client and Env are required for a check")
	}
	setDefault(&check.RateScale, 1)
	setDefault(&check.Audit, outbox.AuditPeriod)
	setDefault(&check.Late, outbox.LateWindow)
	setDefault(&check.MaxRepairs, defaultMaxRepairs)
	setDefault(&check.BudgetWait, defaultBudgetWait)
	return &Checker{r.Config, check}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// CheckResult counts a run.
type CheckResult struct {
	Checked  int `json:"checked"`
	Equal    int `json:"equal"`
	Repaired int `json:"repaired"`
	Inbound  int `json:"inbound"` // opt-outs that people made inside HubSpot
	Listed   int `json:"listed"`  // differences that a repair did not mend
	Stale    int `json:"stale"`   // something happened since the look
	Failed   int `json:"failed"`  // not read
	// Held: too much was different. Nothing more is repaired until the run is approved.
	Held bool `json:"held"`
}

// Run looks at what is due, uncertain subscriptions first, until nothing is left, no
// time is left, or budget is short. A portal that cannot be read delays no other one.
func (c *Checker) Run(ctx context.Context) (CheckResult, error) {
	run := &checkRun{Checker: c, id: c.NewID()}
	if err := c.DB.BeginRun(ctx, run.id, "check"); err != nil {
		return CheckResult{}, err
	}
	held, err := c.DB.HeldRun(ctx)
	run.result.Held = held != uuid.Nil
	if err == nil {
		err = run.portals(ctx)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if endErr := c.DB.EndRun(endCtx, run.id, run.result.Checked, run.result.Repaired+run.result.Inbound, problem); endErr != nil {
		err = errors.Join(err, endErr)
	}
	if err == nil {
		c.Metrics.Emit(telemetry.Of(telemetry.CheckRuns, 1), telemetry.Of(telemetry.DriftCorrected, run.result.Repaired),
			telemetry.Of(telemetry.OptOutsTakenIn, run.result.Inbound))
	}
	if run.result.Checked > 0 || err != nil {
		c.Logger.Info("check", "run", run.id.String(), "result", run.result, "problem", problem)
	}
	return run.result, err
}

// checkRun is one run of a check.
type checkRun struct {
	*Checker
	id     uuid.UUID
	result CheckResult
}

func (r *checkRun) portals(ctx context.Context) error {
	portals, err := r.DB.Portals(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, uncertain := range []bool{true, false} {
		for _, p := range portals {
			if p.PausedUntil != nil {
				continue
			}
			if err := r.portal(ctx, p, uncertain); err != nil {
				problems = append(problems, fmt.Errorf("portal %s: %w", p.ID, err))
			}
		}
	}
	return errors.Join(problems...)
}

// errNoBudget ends a portal's turn: nothing is wrong, the rest waits for the next run.
var errNoBudget = errors.New("no spare budget")

func (r *checkRun) portal(ctx context.Context, p postgres.Portal, uncertain bool) error {
	client, err := r.Client(p.ID)
	if err != nil {
		return err
	}
	look := &look{run: r, portal: p, client: client, lane: budget.LaneSpare}
	if uncertain {
		look.lane = budget.LaneLive
	}
	for ctx.Err() == nil {
		due, err := r.DB.ClaimChecks(ctx, p.ID, uncertain, checkBatch, checkAgain)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := look.at(ctx, due); err != nil {
			if errors.Is(err, errNoBudget) {
				return nil
			}
			return err
		}
	}
	return nil
}

// item is the plan's view of a subscription, from its newest event and the request that
// decided.
func itemOf(c postgres.Checkable) (plan.Item, error) {
	var snapshot routing.Snapshot
	if err := json.Unmarshal(c.Payload, &snapshot); err != nil {
		return plan.Item{}, fmt.Errorf("event %s: its mapping snapshot is not readable: %w", c.LatestEvent, err)
	}
	item := plan.Item{
		EventID: c.LatestEvent, Desired: c.DesiredState, Snapshot: snapshot, ContactKey: c.ContactKey, Email: c.EmailKey, ConsentAt: c.ConsentAt,
		OwnOptOut: c.OwnOptOut, OwnWide: c.OwnWide,
	}
	return item, nil
}

// repair decides what a look leads to, and counts it.
func (r *checkRun) repair(ctx context.Context, c postgres.Checkable, item plan.Item, seen seen) (equal bool, err error) {
	if at, blocked := item.BlockingOptOut(r.Env, seen.observed); blocked && item.Desired == outbox.Subscribed {
		return false, r.inbound(ctx, c, at)
	}
	difference := item.Difference(seen.state, seen.record, seen.others)
	if difference == "" {
		r.result.Equal++
		return true, nil
	}
	if r.result.Held || r.overThreshold() {
		return false, r.hold(ctx)
	}
	outcome, err := r.DB.Correct(ctx, c, difference, r.NewID())
	if err != nil {
		return false, err
	}
	switch outcome {
	case postgres.RepairScheduled:
		r.result.Repaired++
	case postgres.RepairListed:
		r.result.Listed++
	case postgres.RepairStale:
		r.result.Stale++
	}
	r.Logger.Warn("HubSpot differs", "brand", c.BrandID, "product", c.ProductID, "event", c.LatestEvent.String(), "difference", difference, "outcome", string(outcome))
	return false, nil
}

// inbound is never held back: an opt-out must not wait for an approval.
func (r *checkRun) inbound(ctx context.Context, c postgres.Checkable, at time.Time) error {
	done, err := r.DB.AcceptInbound(ctx, c, at, r.NewID(), r.NewID())
	if err != nil {
		return err
	}
	if !done {
		r.result.Stale++
		return nil
	}
	r.result.Inbound++
	r.Logger.Info("an opt-out made inside HubSpot is the newest decision", "brand", c.BrandID, "product", c.ProductID, "event", c.LatestEvent.String())
	return nil
}

// overThreshold: a run that has to repair more than this looks at something that went
// wrong in the large: a mapping, or HubSpot itself.
func (r *checkRun) overThreshold() bool { return r.result.Repaired >= r.MaxRepairs }

func (r *checkRun) hold(ctx context.Context) error {
	if r.result.Held {
		return nil
	}
	r.result.Held = true
	r.Logger.Error("too many differences: repairs wait for an approval", "run", r.id.String(), "repaired", r.result.Repaired)
	return r.DB.HoldRun(ctx, r.id)
}

// names lists the properties to read for some items, once each.
func names(items []plan.Item) []string {
	var all []string
	for _, i := range items {
		all = append(all, i.Properties()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func lower(text string) string { return strings.ToLower(text) }
