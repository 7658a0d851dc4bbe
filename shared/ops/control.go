package ops

import (
	"context"
	"fmt"
	"strings"
	"time"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// PauseArgs says what to stop: a portal, or (also within it) a brand or a lane.
type PauseArgs struct {
	Portal  string `json:"portal,omitzero"`
	Brand   string `json:"brand,omitzero"`
	Lane    string `json:"lane,omitzero"`    // optout, live or bulk
	Seconds int    `json:"seconds,omitzero"` // 0: until it is resumed
	OptOuts bool   `json:"optOuts,omitzero"` // opt-outs wait too
	Reason  string `json:"reason"`
}

// forever is longer than anybody waits; a portal's reader takes infinity for as long.
const forever = 10 * 365 * 24 * time.Hour

// Paused is the answer of Pause.
type Paused struct {
	What  string    `json:"what"`
	Until time.Time `json:"until"`
}

// Pause stops a portal, or what of it belongs to a brand or a lane. Nothing is lost, and
// nothing dies of waiting. Opt-outs go on unless OptOuts is set. A pause that HubSpot
// caused and that lasts longer is not shortened.
func (o *Ops) Pause(ctx context.Context, in PauseArgs) (Paused, error) {
	db, err := o.db()
	if err != nil {
		return Paused{}, err
	}
	lane, err := laneOf(in.Lane)
	if err != nil {
		return Paused{}, err
	}
	if in.Reason == "" || in.Seconds < 0 {
		return Paused{}, usage("a pause needs a reason, and a time that is not negative")
	}
	if in.Lane == outbox.LaneOptOut.String() && !in.OptOuts {
		return Paused{}, usage("pausing the lane optout does nothing unless opt-outs wait too (--opt-outs)")
	}
	if err := o.scopeExists(ctx, db, in.Portal, in.Brand); err != nil {
		return Paused{}, err
	}
	last := forever
	if in.Seconds > 0 {
		last = time.Duration(in.Seconds) * time.Second
	}
	until := o.cfg.Clock().Add(last).UTC()
	paused := Paused{scopeText(in.Portal, in.Brand, in.Lane), until}
	if in.Portal != "" && in.Brand == "" && in.Lane == "" {
		return paused, db.PausePortal(ctx, in.Portal, until, "operator: "+in.Reason, in.OptOuts)
	}
	return paused, db.SetPause(ctx, postgres.Pause{
		PortalID: in.Portal, BrandID: in.Brand, Lane: lane, OptOuts: in.OptOuts, Until: until, Reason: in.Reason,
	})
}

// ResumeArgs says what to let go on.
type ResumeArgs struct {
	Portal string `json:"portal,omitzero"`
	Brand  string `json:"brand,omitzero"`
	Lane   string `json:"lane,omitzero"`
}

// Resumed is the answer of Resume. Was: it was paused.
type Resumed struct {
	What string `json:"what"`
	Was  bool   `json:"was"`
}

// Resume ends the pause of exactly this scope, whoever made it.
func (o *Ops) Resume(ctx context.Context, in ResumeArgs) (Resumed, error) {
	db, err := o.db()
	if err != nil {
		return Resumed{}, err
	}
	lane, err := laneOf(in.Lane)
	if err != nil {
		return Resumed{}, err
	}
	if err := o.scopeExists(ctx, db, in.Portal, in.Brand); err != nil {
		return Resumed{}, err
	}
	resumed := Resumed{What: scopeText(in.Portal, in.Brand, in.Lane)}
	if resumed.Was, err = db.ClearPause(ctx, in.Portal, in.Brand, lane); err != nil {
		return Resumed{}, err
	}
	if in.Portal == "" || in.Brand != "" || in.Lane != "" {
		return resumed, nil
	}
	portal, err := o.portal(ctx, db, in.Portal)
	if err != nil {
		return Resumed{}, err
	}
	resumed.Was = resumed.Was || portal.PausedUntil != nil
	return resumed, db.ResumePortal(ctx, in.Portal)
}

// laneOf reads a lane's name; empty: every lane.
func laneOf(name string) (outbox.Lane, error) {
	if name == "" {
		return postgres.EveryLane, nil
	}
	for _, l := range outbox.Lanes {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, usage("lane %q is not one of optout, live, bulk", name)
}

// portal returns a portal by its id.
func (o *Ops) portal(ctx context.Context, db *postgres.DB, id string) (postgres.Portal, error) {
	portals, err := db.Portals(ctx)
	if err != nil {
		return postgres.Portal{}, err
	}
	var known []string
	for _, p := range portals {
		if p.ID == id {
			return p, nil
		}
		known = append(known, p.ID)
	}
	return postgres.Portal{}, usage("portal %q does not exist; there are: %s", id, strings.Join(known, ", "))
}

// scopeExists refuses a scope that names nothing, or what does not exist: a pause that
// was mistyped would be taken for one that works.
func (o *Ops) scopeExists(ctx context.Context, db *postgres.DB, portal, brand string) error {
	if portal == "" && brand == "" {
		return usage("name a portal or a brand")
	}
	if portal != "" {
		if _, err := o.portal(ctx, db, portal); err != nil {
			return err
		}
	}
	if brand == "" {
		return nil
	}
	versions, err := db.MappingVersions(ctx, brand, 1)
	if err != nil {
		return err
	}
	if len(versions) == 0 {
		return usage("brand %q does not exist: 'hubsync routes history' lists those that do", brand)
	}
	return nil
}

func scopeText(portal, brand, lane string) string {
	var parts []string
	for _, p := range [][2]string{{"portal", portal}, {"brand", brand}, {"lane", lane}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	return strings.Join(parts, ", ")
}

// BudgetArgs sets call limits; 0 leaves one as it is.
type BudgetArgs struct {
	Portal string `json:"portal"`
	Burst  int    `json:"burst,omitzero"` // calls in a burst window
	Daily  int    `json:"daily,omitzero"`
}

// BudgetSet is the answer of SetBudget.
type BudgetSet struct {
	Portal      string `json:"portal"`
	BurstBefore int    `json:"burstBefore"`
	BurstAfter  int    `json:"burstAfter"`
	DailyBefore int    `json:"dailyBefore"`
	DailyAfter  int    `json:"dailyAfter"`
}

// leastBurst is what a message alone can need in a window; a routes file has it too.
const leastBurst = 10

// SetBudget changes a portal's call limits; every worker has them within 5 seconds. The
// next routes file that is applied brings its own.
func (o *Ops) SetBudget(ctx context.Context, in BudgetArgs) (BudgetSet, error) {
	db, err := o.db()
	if err != nil {
		return BudgetSet{}, err
	}
	if in.Burst == 0 && in.Daily == 0 {
		return BudgetSet{}, usage("say what to set: --burst, --daily or both")
	}
	if in.Burst < 0 || in.Daily < 0 || (in.Burst > 0 && in.Burst < leastBurst) {
		return BudgetSet{}, usage("burst takes at least %d calls a window (to stop a portal, pause it), daily at least as many as burst", leastBurst)
	}
	before, err := o.portal(ctx, db, in.Portal)
	if err != nil {
		return BudgetSet{}, err
	}
	c, ok, err := db.SetLimits(ctx, in.Portal, in.Burst, in.Daily)
	if err != nil {
		return BudgetSet{}, err
	}
	if !ok {
		return BudgetSet{}, usage("daily must not be below burst; portal %s has burst %d and daily %d", before.ID, before.BurstLimit, before.DailyLimit)
	}
	return BudgetSet{in.Portal, c.BurstBefore, c.BurstAfter, c.DailyBefore, c.DailyAfter}, nil
}

func (b BudgetSet) String() string {
	return fmt.Sprintf("portal %s: burst %d → %d, daily %d → %d", b.Portal, b.BurstBefore, b.BurstAfter, b.DailyBefore, b.DailyAfter)
}
