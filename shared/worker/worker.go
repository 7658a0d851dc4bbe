// Package worker applies events to HubSpot: verify the message's signature → claim
// its events under a fence → plan → phases of HubSpot calls inside the shared budget
// (opt-outs, consent reads, subscribes, contacts) → commit row by row → reply to
// QStash. The rows are the retry schedule; the reply only says whether QStash should
// come back by itself.
package worker

import (
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/telemetry"
)

// Config says what a worker works with. DB, Verifier, Subject or Region, Budget, Client
// and Env are required; every other field has a default.
type Config struct {
	DB       *postgres.DB
	Verifier *qstash.Verifier
	// Subject is the URL that the relay publishes to, exactly; the failure callback
	// is at Subject + "/failed".
	Subject string
	// Region is for a worker behind its own function URL, where Subject is empty: the
	// template could name that URL only by a circular reference. Each request's host must
	// then be a function URL of this AWS region, and the request be one that package
	// lambdahttp made: there the host is what Lambda says, not what a header says.
	Region string
	Budget *budget.Limiter
	// Client returns the client of a portal; the caller keeps it between calls.
	Client func(portalID string) (*hubspot.Client, error)
	// Env is part of the marker by which our own opt-outs are known again.
	Env string
	// RateScale multiplies the burst and daily limits of the portals' rows, for a
	// local world whose simulator is scaled alike. Default 1.
	RateScale float64

	Clock  func() time.Time
	Random func() float64
	NewID  func() uuid.UUID
	Logger *slog.Logger
	// Metrics counts what became of the events; nil: nothing is measured.
	Metrics *telemetry.Meter

	Lease       time.Duration // of subscription and event
	Limit       time.Duration // of one message's work
	CallTimeout time.Duration // of one HubSpot call
	BudgetWait  time.Duration // in-place wait for budget
	Late        time.Duration // L
	CheckMargin time.Duration // from an uncertainty to its first check, beyond a call's timeout
	Audit       time.Duration
	MaxAttempts int
	Singles     int // calls in flight where a portal takes single writes only
	Retries     int // QStash's, after which a 503 would only fill its dead-letter queue
}

// Defaults of this package; the protocol's own stand in package outbox.
const (
	defaultBudgetWait  = 5 * time.Second
	defaultCheckMargin = 20 * time.Second
	defaultRetries     = 5
	defaultSingles     = 10
	maxBody            = 64 << 10
	commitTimeout      = 10 * time.Second // a commit may begin when the message's time is up
)

func (c Config) withDefaults() Config {
	setDefault(&c.Lease, outbox.WorkerLease)
	setDefault(&c.Limit, outbox.WorkerLimit)
	setDefault(&c.CallTimeout, outbox.CallTimeout)
	setDefault(&c.BudgetWait, defaultBudgetWait)
	setDefault(&c.Late, outbox.LateWindow)
	setDefault(&c.CheckMargin, defaultCheckMargin)
	setDefault(&c.Audit, outbox.AuditPeriod)
	setDefault(&c.MaxAttempts, outbox.MaxAttempts)
	setDefault(&c.Retries, defaultRetries)
	setDefault(&c.Singles, defaultSingles)
	setDefault(&c.RateScale, 1)
	if c.NewID == nil {
		c.NewID = func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	}
	return c
}

func setDefault[T int | float64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (c Config) validate() error {
	if c.DB == nil || c.Verifier == nil || c.Budget == nil || c.Client == nil {
		return errors.New("worker: DB, Verifier, Budget and Client are required")
	}
	if (c.Subject == "" && c.Region == "") || c.Env == "" {
		return errors.New("worker: Subject (or Region, behind the worker's own function URL) and Env are required")
	}
	if c.Clock == nil || c.Random == nil || c.Logger == nil {
		return errors.New("worker: Clock, Random and Logger are required")
	}
	if c.Limit+commitTimeout > c.Lease {
		return errors.New("worker: Lease must be longer than Limit plus the commit's time, or a claim ends under its own worker")
	}
	return nil
}

// Worker is the HTTP stage behind the function URL.
type Worker struct {
	Config
	portals portalCache
	singles singleMode
	outages outages

	base    string         // the path of the worker's URL
	ownHost *regexp.Regexp // the form of its function URL's host, where there is no Subject
}

// New returns the handler of POST / (messages) and POST /failed (failure callbacks), each
// also below the path of the worker's URL.
func New(cfg Config) (http.Handler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Worker{Config: cfg, base: basePath(cfg.Subject), ownHost: ownHostForm(cfg.Region)}, nil
}

// ServeHTTP serves messages and failure callbacks.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch e := w.endpointOf(r.URL.Path); {
	case e == noEndpoint:
		http.Error(rw, "no such path", http.StatusNotFound)
	case r.Method != http.MethodPost:
		rw.Header().Set("Allow", http.MethodPost)
		http.Error(rw, "use POST", http.StatusMethodNotAllowed)
	case e == failureEndpoint:
		w.serveFailed(rw, r)
	default:
		w.serveMessage(rw, r)
	}
}
