package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// batchSize is HubSpot's: contacts take at most 100 inputs; the size of preference
// batches is undocumented and public code uses the same.
const batchSize = 100

// startedPatience is how many times the first wait for budget a later one may last.
const startedPatience = 4

// job is the part of a message that belongs to one portal.
type job struct {
	worker   *Worker
	portal   postgres.Portal
	client   *hubspot.Client
	rows     []*row
	lane     outbox.Lane
	leaseEnd time.Time
	records  map[string]string // contact key → record that a call confirmed
	unnamed  []*row            // written, and the answer does not name them
	answered bool              // a call got an answer
	away     bool              // a call got none
	mu       sync.Mutex        // rows, while calls of one phase run side by side
}

// jobs groups the claimed rows by portal; a message of ours has one. A portal that
// cannot be reached (unknown, or without a token) leaves its rows to wait.
func (w *Worker) jobs(rows []*row, leaseEnd time.Time) []*job {
	byPortal := map[string]*job{}
	for _, r := range rows {
		if r.claim.Verdict != postgres.VerdictClaimed {
			continue
		}
		j := byPortal[r.claim.PortalID]
		if j == nil {
			j = &job{worker: w, leaseEnd: leaseEnd, lane: r.claim.Lane, portal: postgres.Portal{ID: r.claim.PortalID}, records: map[string]string{}}
			byPortal[r.claim.PortalID] = j
		}
		j.rows = append(j.rows, r)
		j.lane = min(j.lane, r.claim.Lane)
	}
	jobs := make([]*job, 0, len(byPortal))
	for _, j := range byPortal {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.portal.ID, b.portal.ID) })
	return jobs
}

// run takes the rows through the phases. What a phase could not do is written in
// its rows; run itself never fails.
func (j *job) run(ctx context.Context) {
	portal, err := j.worker.portals.get(ctx, j.worker, j.portal.ID)
	if err == nil {
		j.portal = portal
		j.client, err = j.worker.Client(portal.ID)
	}
	if err != nil {
		for _, r := range j.rows {
			r.fail(j.waiting("portal_unavailable", err.Error(), waitCap))
		}
		return
	}
	for _, r := range j.rows {
		r.prepare()
	}
	j.writeWide(ctx)
	j.writePreferences(ctx, func(r *row) bool { return r.optsOut() && !r.isWide() })
	j.readConsents(ctx)
	j.writePreferences(ctx, func(r *row) bool { return !r.optsOut() })
	j.writeContacts(ctx)
	j.writeSegments(ctx)
	j.pauseIfAsked(ctx)
	j.noteOutage(ctx)
}

// call reserves budget for one HubSpot call and makes it. The call starts only if
// its timeout fits into the lease and into the message's time: a call that outlives
// its claim could land after a newer one. Nothing but the call itself is counted
// into its timeout.
func (j *job) call(ctx context.Context, do func(context.Context) error) error {
	w := j.worker
	wait := w.BudgetWait
	if j.started() {
		// What is done already would be done again: with little budget left, giving up
		// half-way costs the most.
		wait *= startedPatience
	}
	grant, err := w.Budget.Wait(ctx, budget.Request{
		Portal: j.portal.ID, Lane: budget.Lane(j.lane), N: 1, ID: w.NewID().String(), Limits: j.limits(),
	}, wait)
	if err != nil && ctx.Err() == nil {
		return err
	}
	if ctx.Err() != nil || (grant.Granted && !j.fits(ctx)) {
		j.refund(ctx, grant)
		return errLeaseTooShort
	}
	if !grant.Granted {
		return exhaustedBy(grant)
	}
	ctx, cancel := context.WithTimeout(ctx, w.CallTimeout)
	defer cancel()
	err = do(ctx)
	j.heard(err)
	return err
}

func (j *job) refund(ctx context.Context, grant budget.Grant) {
	if !grant.Granted {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := j.worker.Budget.Refund(ctx, grant, grant.N); err != nil {
		j.worker.Logger.Warn("budget refund failed: the tokens leave with their window", "portal", j.portal.ID, "error", err.Error())
	}
}

func (j *job) fits(ctx context.Context) bool {
	end := j.worker.Clock().Add(j.worker.CallTimeout)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < j.worker.CallTimeout {
		return false
	}
	return end.Before(j.leaseEnd)
}

func (j *job) limits() budget.Limits {
	scale := j.worker.RateScale
	return budget.Limits{
		Burst:    int(float64(j.portal.BurstLimit) * scale),
		Window:   j.portal.BurstWindow,
		Daily:    int(float64(j.portal.DailyLimit) * scale),
		Location: j.portal.Location(),
	}
}

// inBatches runs do over chunks of items, one call each, and isolates what a whole
// batch was refused for: a 400 that names no input is halved until it does.
func inBatches[T any](ctx context.Context, j *job, items []T, do func(context.Context, []T) error, failed func([]T, error)) {
	for chunk := range slices.Chunk(items, batchSize) {
		runBatch(ctx, j, chunk, do, failed)
	}
}

func runBatch[T any](ctx context.Context, j *job, items []T, do func(context.Context, []T) error, failed func([]T, error)) {
	err := j.call(ctx, func(ctx context.Context) error { return do(ctx, items) })
	if err == nil {
		return
	}
	if len(items) > 1 && refusedWhole(err) {
		half := len(items) / 2
		runBatch(ctx, j, items[:half], do, failed)
		runBatch(ctx, j, items[half:], do, failed)
		return
	}
	failed(items, err)
}

// refusedWhole: HubSpot refused the batch for one of its inputs without saying which.
func refusedWhole(err error) bool {
	var he *hubspot.Error
	return errors.As(err, &he) &&
		(he.Kind == hubspot.KindInvalid || he.Kind == hubspot.KindConflict || he.Kind == hubspot.KindNotFound)
}

// one by one, side by side: for portals whose plan has no batch endpoints.
func inSingles[T any](ctx context.Context, j *job, items []T, do func(context.Context, T) error, failed func([]T, error)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, j.worker.Singles)
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := j.call(ctx, func(ctx context.Context) error { return do(ctx, item) }); err != nil {
				j.mu.Lock()
				defer j.mu.Unlock()
				failed([]T{item}, err)
			}
		})
	}
	wg.Wait()
}

// failRows judges an error for each of the rows. A write whose outcome is unknown
// may land late.
func (j *job) failRows(rows []*row, err error, write bool) {
	var he *hubspot.Error
	unknown := write && errors.As(err, &he) && he.OutcomeUnknown()
	for _, r := range rows {
		r.unknown = r.unknown || unknown
		r.fail(j.judge(err, r.claim.Attempts, r.claim.Waits))
	}
}

// failOptional judges an error of an optional target. One that HubSpot refuses does not
// keep an event from being synced; one that only has to wait does, or a busy hour would
// leave it undone for good.
func (j *job) failOptional(r *row, err error) (failure, bool) {
	f := j.judge(err, r.claim.Attempts, r.claim.Waits)
	if f.waits {
		j.failRows([]*row{r}, err, true)
	}
	return f, f.waits
}

// pauseIfAsked stops the portal when a row's failure says that no call can succeed.
func (j *job) pauseIfAsked(ctx context.Context) {
	for _, r := range j.rows {
		p := r.failure.pause
		if p == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		if err := j.worker.DB.PausePortal(ctx, j.portal.ID, p.until, p.reason, true); err != nil {
			j.worker.Logger.Error("portal could not be paused", "portal", j.portal.ID, "error", err.Error())
		}
		j.worker.Logger.Error("portal paused", "portal", j.portal.ID, "until", p.until, "reason", p.reason)
		return
	}
}
