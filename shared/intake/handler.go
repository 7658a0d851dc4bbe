// Package intake takes subscription decisions over HTTP: it checks a request
// strictly, names everything that is wrong with it, and stores what is right in
// one transaction, after which a decision cannot be lost any more. The same key
// with the same request gets the same receipt, however often it comes.
package intake

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/telemetry"
)

// Limits of one request.
const (
	maxBody       = 64 << 10         // bytes
	acceptTimeout = 10 * time.Second // below the 30 s that a gateway waits
	healthTimeout = time.Second
	busyWait      = time.Second     // Retry-After when a lock was not granted
	outageWait    = 2 * time.Second // Retry-After when the database is away
)

// Config is what intake needs. Only DB is required.
type Config struct {
	DB     *postgres.DB
	Clock  func() time.Time // durations in the log; decisions are dated by the database
	NewID  func() uuid.UUID // UUIDv7
	Logger *slog.Logger
	// Metrics counts and times the requests; nil: nothing is measured.
	Metrics *telemetry.Meter
	// BaseURL stands before the paths in Location and statusUrl, without a slash at
	// its end; empty: they begin with the path.
	BaseURL string
	// UndatedWindow is how much older than its arrival a subscribe counts that claims no
	// date: it may be a delayed one, and must not overtake an opt-out that came just
	// before it. Default outbox.UndatedWindow; below 0: none.
	UndatedWindow time.Duration
	// Brands returns the brands for which a request's caller may speak, as the claim of a
	// verified token names them (see mayActFor). nil: whoever stands before this handler
	// decided already, by the path.
	Brands func(*http.Request) string
}

type handler struct {
	db      *postgres.DB
	clock   func() time.Time
	newID   func() uuid.UUID
	log     *slog.Logger
	metrics *telemetry.Meter
	baseURL string
	window  time.Duration
	brands  func(*http.Request) string
}

// New returns the handler of intake's API. It never redirects, and leaves panics
// to the middleware around it.
func New(cfg Config) http.Handler {
	h := &handler{
		db: cfg.DB, clock: cfg.Clock, newID: cfg.NewID, log: cfg.Logger, metrics: cfg.Metrics,
		baseURL: strings.TrimRight(cfg.BaseURL, "/"), window: cfg.UndatedWindow, brands: cfg.Brands,
	}
	if h.window == 0 {
		h.window = outbox.UndatedWindow
	}
	h.window = max(h.window, 0)
	if h.clock == nil {
		h.clock = time.Now
	}
	if h.newID == nil {
		h.newID = func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	return h
}

// ServeHTTP answers one request and writes its one log line.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := h.clock()
	template, a := h.answer(w, r)
	if err := a.write(w); err != nil {
		a.status, a.err = http.StatusInternalServerError, err
	}
	h.record(r, template, a, h.clock().Sub(started))
}

// answer finds the route and runs it: path, then method, then the route's own checks.
func (h *handler) answer(w http.ResponseWriter, r *http.Request) (template string, a answer) {
	segments, valid := pathSegments(r.URL.EscapedPath())
	if !valid {
		return unmatched, refusal(http.StatusBadRequest, "invalid-path", "The path is not valid",
			"A path is percent-encoded UTF-8 without control characters.")
	}
	route, params := match(segments)
	if route == nil {
		return unmatched, notFound("unknown-path", "There is nothing under this path.")
	}
	if !route.allows(r.Method) {
		return route.template, methodNotAllowed(route.methods)
	}
	if h.brands != nil && !mayActFor(h.brands(r), route.template, params) {
		return route.template, refusal(http.StatusForbidden, "brand-not-allowed", "This token does not speak for the brand",
			"Its brand claim names other brands, or none.")
	}
	ctx, cancel := context.WithTimeout(r.Context(), acceptTimeout)
	defer cancel()
	return route.template, route.serve(h, w, r.WithContext(ctx), params)
}

// readRequest: media type → size → key → decode. Whatever is wrong with key and body is
// told in one answer, by the caller; refused says that there is no more to find.
func readRequest(w http.ResponseWriter, r *http.Request, known func(*body) members) (b body, key string, problems []fieldError, refused *answer) {
	if refused = checkMediaType(r.Header); refused != nil {
		return b, "", nil, refused
	}
	raw, refused := readBody(w, r)
	if refused != nil {
		return b, "", nil, refused
	}
	key, problem := idempotencyKey(r.Header.Values(keyHeader))
	if problem != nil {
		problems = append(problems, *problem)
	}
	b, bodyProblems := decodeBody(raw, known)
	problems = append(problems, bodyProblems...)
	if unreadable(bodyProblems) {
		a := invalid(problems)
		return b, "", nil, &a
	}
	return b, key, problems, nil
}

// postDecision reads, validates and accepts one decision.
func (h *handler) postDecision(w http.ResponseWriter, r *http.Request, params []string) answer {
	b, key, problems, refused := readRequest(w, r, decisionMembers)
	if refused != nil {
		return *refused
	}
	d, problems := judge(params[0], b, problems)
	if len(problems) > 0 {
		return invalid(problems)
	}
	return h.accept(r, d, key)
}

func (h *handler) accept(r *http.Request, d decision, key string) answer {
	row, err := h.newDecision(d, key)
	if err != nil {
		return failed(err)
	}
	row.Traceparent = traceparent(r.Header.Values("Traceparent"))
	stored, err := h.db.Accept(r.Context(), row)
	if err != nil {
		return failed(err)
	}
	return h.receipt(d, row, stored)
}

// receipt answers with what became of a decision.
func (h *handler) receipt(d decision, row postgres.Decision, stored postgres.DecisionReceipt) answer {
	switch stored.Outcome {
	case postgres.DecisionUnknownBrand:
		return notFound("unknown-brand", "This brand does not exist.")
	case postgres.DecisionUnknownProduct:
		return notFound("unknown-product", "This brand has no such product.").about(d.brandID, "")
	case postgres.DecisionGone:
		return gone().about(d.brandID, d.productID)
	case postgres.DecisionExpired:
		return refusal(http.StatusGone, "key-expired", "The key was used long ago",
			"This Idempotency-Key belongs to a request whose receipt is not kept any more; nothing was stored. A new decision needs a new key.").
			about(d.brandID, d.productID)
	case postgres.DecisionReplayed:
		if stored.RequestHash != row.RequestHash {
			return refusal(http.StatusUnprocessableEntity, "key-reused", "The key was used for another request",
				"This Idempotency-Key belongs to an earlier, different request; nothing was stored.").
				about(d.brandID, d.productID)
		}
	case postgres.DecisionAccepted, postgres.DecisionSuperseded:
	}
	return h.accepted(d, stored)
}

func (h *handler) getRequest(_ http.ResponseWriter, r *http.Request, params []string) answer {
	unknown := notFound("unknown-request", "This brand has no such request.")
	id, err := uuid.Parse(params[1])
	if err != nil || !strings.EqualFold(params[1], id.String()) {
		return unknown
	}
	state, found, err := h.db.RequestState(r.Context(), params[0], id)
	if err != nil {
		return failed(err)
	}
	if !found {
		return unknown
	}
	a := answer{status: http.StatusOK, outcome: "told", requestID: id, body: newRequestAnswer(state)}
	return a.about(state.BrandID, state.ProductID)
}

func (h *handler) getSubscriptions(_ http.ResponseWriter, r *http.Request, params []string) answer {
	found, err := h.db.ContactSubscriptions(r.Context(), params[0], params[1])
	switch {
	case err != nil:
		return failed(err)
	case !found.BrandKnown:
		return notFound("unknown-brand", "This brand does not exist.")
	case !found.KeyKnown:
		return notFound("unknown-contact", "No contact is known under this key.").about(params[0], "")
	case found.Gone:
		return gone().about(params[0], "")
	}
	a := answer{status: http.StatusOK, outcome: "told", body: newSubscriptionAnswers(found.Subscriptions)}
	return a.about(params[0], "")
}

func (h *handler) getHealth(_ http.ResponseWriter, r *http.Request, _ []string) answer {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if err := h.db.Ping(ctx); err != nil {
		return retryLater(http.StatusServiceUnavailable, "database-unavailable", "The database does not answer", outageWait).because(err)
	}
	return answer{status: http.StatusOK, outcome: "healthy", body: struct {
		Status string `json:"status"`
	}{"ok"}}
}

// failed maps an error of the database to an answer; nothing else does.
func failed(err error) answer {
	switch {
	case errors.Is(err, postgres.ErrBusy):
		return retryLater(http.StatusConflict, "busy", "Another request is in the way", busyWait).because(err)
	case errors.Is(err, postgres.ErrUnavailable):
		return retryLater(http.StatusServiceUnavailable, "database-unavailable", "The database is unavailable", outageWait).because(err)
	}
	return refusal(http.StatusInternalServerError, "internal", "Something is wrong on our side", "").because(err)
}

// readBody reads a body of up to maxBody bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *answer) {
	if r.ContentLength > maxBody {
		refused := tooLarge()
		return nil, &refused
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		refused := tooLarge()
		return nil, &refused
	case err != nil:
		refused := refusal(http.StatusBadRequest, "unreadable-body", "The body broke off", "It could not be read to its end.")
		return nil, &refused
	}
	return raw, nil
}

// unreadable reports whether the body could not be decoded at all: then nothing
// can be said about its members.
func unreadable(problems []fieldError) bool {
	for _, p := range problems {
		if p.Field == "body" && p.Pointer == "" {
			return true
		}
	}
	return false
}
