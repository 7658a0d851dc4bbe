package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"hubsync/shared/postgres"
)

// Check looks at one dependency. Run returns what it saw, in a few words; where it fails,
// Fix says what to do.
type Check struct {
	Name, Fix string
	Run       func(context.Context) (string, error)
}

// Health is what Doctor found of one dependency.
type Health struct {
	Name      string  `json:"name"`
	OK        bool    `json:"ok"`
	LatencyMs float64 `json:"latencyMs"`
	Detail    string  `json:"detail,omitzero"`
	Fix       string  `json:"fix,omitzero"`
}

// Diagnosis is the answer of Doctor.
type Diagnosis struct {
	OK     bool     `json:"ok"`
	Checks []Health `json:"checks"`
}

// checkTimeout is what one check may take.
const checkTimeout = 5 * time.Second

// Doctor looks at every dependency, one after the other, whatever state the configuration
// is in. What fails has its fix beside it.
func (o *Ops) Doctor(ctx context.Context, _ None) (Diagnosis, error) {
	d := Diagnosis{OK: true}
	for _, c := range append(o.cfg.Checks, o.portalChecks(ctx)...) {
		h := o.examine(ctx, c)
		d.OK = d.OK && h.OK
		d.Checks = append(d.Checks, h)
	}
	return d, nil
}

func (o *Ops) examine(ctx context.Context, c Check) Health {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	began := time.Now() // a duration on this machine: no business of the injected clock
	detail, err := c.Run(ctx)
	h := Health{Name: c.Name, OK: err == nil, LatencyMs: float64(time.Since(began).Microseconds()) / 1000, Detail: detail}
	if err != nil {
		h.Detail, h.Fix = err.Error(), c.Fix
	}
	return h
}

// checks are those of what could be opened.
func (o *Ops) checks(client *redis.Client) []Check {
	var list []Check
	if o.cfg.DB != nil {
		list = append(list,
			Check{"database", "check the address, the password and the network; 'hubsync migrate' brings the schema up to date", o.checkDatabase},
			Check{"relay", "see the relay function's log: is its schedule enabled, and its token good?", o.checkRelay},
			Check{"reconcile", "see the reconcile function's log: is its schedule enabled?", o.checkReconcile})
	}
	if client != nil {
		list = append(list, Check{"redis", "check REDIS_URL and the network; until then a low local rate is used", func(ctx context.Context) (string, error) {
			if err := client.Ping(ctx).Err(); err != nil {
				return "", fmt.Errorf("no answer to PING: %w", err)
			}
			return "answers", nil
		}})
	}
	if o.cfg.QStash != nil && o.cfg.Keys != nil {
		list = append(list, Check{"qstash", "check QSTASH_URL and QSTASH_TOKEN; 'hubsync keys check' says more", func(ctx context.Context) (string, error) {
			keys, err := o.KeysCheck(ctx, None{})
			if err != nil {
				return "", err
			}
			if keys.State != KeysEqual {
				return "", fmt.Errorf("signing keys: %s", keys.Detail)
			}
			return keys.Detail, nil
		}})
	}
	return list
}

func (o *Ops) checkDatabase(ctx context.Context) (string, error) {
	facts, err := o.cfg.DB.Facts(ctx)
	if err != nil {
		return "", err
	}
	if facts.Schema != facts.Newest {
		return "", fmt.Errorf("the schema is at version %d, this program knows %d: run 'hubsync migrate'", facts.Schema, facts.Newest)
	}
	if skew := o.cfg.Clock().Sub(facts.Clock).Abs(); skew > time.Minute {
		return "", fmt.Errorf("its clock and this machine's differ by %s: set the machine's", skew.Round(time.Second))
	}
	return fmt.Sprintf("PostgreSQL %s, schema %d", facts.Server, facts.Schema), nil
}

// Silences after which a timer is taken for dead: three periods, and a relay's 55 s.
const (
	relaySilence     = 3 * time.Minute
	reconcileSilence = 3 * time.Minute
)

func (o *Ops) checkReconcile(ctx context.Context) (string, error) {
	last, err := o.cfg.DB.LastRun(ctx, "sweep")
	if err != nil {
		return "", err
	}
	if last == nil {
		return "", fmt.Errorf("it has never run")
	}
	if age := o.cfg.Clock().Sub(*last); age > reconcileSilence {
		return "", fmt.Errorf("its last run was %s ago", age.Round(time.Second))
	}
	return "ran " + o.cfg.Clock().Sub(*last).Round(time.Second).String() + " ago", nil
}

// checkRelay looks at what the relay should have taken by now.
func (o *Ops) checkRelay(ctx context.Context) (string, error) {
	overdue, err := o.cfg.DB.OldestPublishable(ctx)
	if err != nil {
		return "", err
	}
	if overdue == nil {
		return "nothing waits to be published", nil
	}
	if age := o.cfg.Clock().Sub(*overdue); age > relaySilence {
		return "", fmt.Errorf("an opt-out has waited %s to be published", age.Round(time.Second))
	}
	return "publishing", nil
}

// portalChecks are one per account; they need the database to know which there are.
func (o *Ops) portalChecks(ctx context.Context) []Check {
	if o.cfg.DB == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	portals, err := o.cfg.DB.Portals(ctx)
	if err != nil {
		return nil // the database's own check says so
	}
	var list []Check
	for _, p := range portals {
		list = append(list, Check{"hubspot " + p.ID, "run 'hubsync portal check " + p.ID + "'", func(ctx context.Context) (string, error) {
			return o.checkAccount(ctx, p)
		}})
	}
	return list
}

func (o *Ops) checkAccount(ctx context.Context, p postgres.Portal) (string, error) {
	if p.PausedUntil != nil {
		return "", fmt.Errorf("it is paused until %s: %s", p.PausedUntil.UTC().Format(time.RFC3339), p.PauseReason)
	}
	client, err := o.cfg.Client(p.ID, p.APIVersion)
	if err != nil {
		return "", err
	}
	if err := o.spend(ctx, p); err != nil {
		return "", err
	}
	info, err := client.AccountInfo(ctx)
	if err != nil {
		return "", fmt.Errorf("%w; %s", err, fixOf(err, p.ID))
	}
	if info.PortalID != p.HubID {
		return "", fmt.Errorf("the token belongs to account %d, the routes say %d", info.PortalID, p.HubID)
	}
	if p.Recovering {
		return "account " + fmt.Sprint(info.PortalID) + ", recovering from an outage", nil
	}
	return "account " + fmt.Sprint(info.PortalID), nil
}
