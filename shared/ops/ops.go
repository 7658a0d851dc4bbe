// Package ops is what an operator can ask and do: the verbs behind cmd/hubsync, the
// admin function and the console. Every verb takes typed arguments and gives a typed
// answer, both JSON, so that the same call runs here or inside the VPC. It changes events
// by the same guarded transitions as the stages, and writes down who did what.
//
// No answer, and no error, shows an e-mail address, a token or a consent text.
package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
)

// Config says what an operator's verbs work with. What could not be opened is nil, and
// the verbs that need it say so; Doctor says why.
type Config struct {
	DB *postgres.DB
	// Client makes the client of a portal that speaks a version of HubSpot's API.
	Client func(portalID, version string) (*hubspot.Client, error)
	Budget *budget.Limiter // nil: calls of this package are not counted
	QStash *qstash.Client
	Keys   func(context.Context) (qstash.Keys, error) // QStash's, as configured here
	Env    string                                     // stands in our own opt-outs' marker
	Checks []Check                                    // of the dependencies, for Doctor
	Clock  func() time.Time
}

// Ops serves the verbs. It is safe for concurrent use.
type Ops struct{ cfg Config }

// New returns the verbs over a configuration.
func New(cfg Config) *Ops {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	return &Ops{cfg}
}

// UsageError is a mistake in the arguments of a verb.
type UsageError struct{ Problem string }

func (e *UsageError) Error() string { return e.Problem }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// errNoDatabase is the answer of a verb that needs the database where there is none.
var errNoDatabase = errors.New("no database is configured: set DATABASE_URL, or use --stack NAME; 'hubsync doctor' says what is missing")

func (o *Ops) db() (*postgres.DB, error) {
	if o.cfg.DB == nil {
		return nil, errNoDatabase
	}
	return o.cfg.DB, nil
}

// Thaw drops database connections that a frozen function may hold dead.
func (o *Ops) Thaw(now time.Time) {
	if o.cfg.DB != nil {
		o.cfg.DB.Thaw(now)
	}
}

// None is the arguments of a verb that takes none.
type None struct{}

// Severity tells a finding that must be mended from one to know about.
type Severity string

// The severities.
const (
	Wrong   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing that is not as it should be, and what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	Where    string   `json:"where"` // portal main, acme/newsletter
	Problem  string   `json:"problem"`
	Fix      string   `json:"fix"`
}

// findings collects what a check finds.
type findings struct{ list []Finding }

func (f *findings) wrong(where, fix, format string, args ...any) {
	f.list = append(f.list, Finding{Wrong, where, fmt.Sprintf(format, args...), fix})
}

func (f *findings) warn(where, fix, format string, args ...any) {
	f.list = append(f.list, Finding{Warning, where, fmt.Sprintf(format, args...), fix})
}

// hasErrors reports whether anything must be mended.
func hasErrors(list []Finding) bool {
	return slices.ContainsFunc(list, func(f Finding) bool { return f.Severity == Wrong })
}

// callWait is how long an operator's call waits for the shared budget.
const callWait = 15 * time.Second

// spend reserves one HubSpot call in the budget that the workers share: an operator's
// calls count like any other.
func (o *Ops) spend(ctx context.Context, p postgres.Portal) error {
	if o.cfg.Budget == nil {
		return nil
	}
	grant, err := o.cfg.Budget.Wait(ctx, budget.Request{
		Portal: p.ID, Lane: budget.LaneLive, N: 1, ID: uuid.NewString(),
		Limits: budget.Limits{Burst: p.BurstLimit, Window: p.BurstWindow, Daily: p.DailyLimit, Location: p.Location()},
	}, callWait)
	if err != nil {
		return fmt.Errorf("reserve a call to portal %s: %w", p.ID, err)
	}
	if !grant.Granted {
		return fmt.Errorf("reserve a call to portal %s: the budget is used up (%s); try again in %s", p.ID, grant.Reason, grant.RetryAfter.Round(time.Second))
	}
	return nil
}
