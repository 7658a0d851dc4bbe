package worker

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// This file is the one place that says what a failure leads to (judge) and what
// QStash is told (decideReply). Nothing else knows status codes.

// failure is the end of a row that did not get through.
type failure struct {
	outcome       postgres.Outcome
	counts        bool // towards dead: the event itself is to blame
	waits         bool // for something short-lived that is not the event's fault
	delay         time.Duration
	code          string
	summary       string
	correlationID string
	pause         *pause
}

// pause stops a whole portal, opt-outs included: no call can succeed.
type pause struct {
	until  time.Time
	reason string
}

// How long things wait that are not the event's fault.
const (
	waitFloor         = 2 * time.Second
	waitCap           = 60 * time.Second // HubSpot back + 60 s
	maxRetryAfter     = 60 * time.Second // longest wait that QStash is asked to keep
	redeliverGrace    = 30 * time.Second // from QStash's return to the row's own
	lockedFloor       = 2 * time.Second  // 423
	migrationCap      = 24 * time.Hour   // 477
	unauthorizedPause = 60 * time.Second // then one message probes the token again
	dailyPauseMax     = 25 * time.Hour   // a daily limit ends at the account's next midnight
	databaseAway      = 10 * time.Second // Retry-After while the database is away
	rateLimitDefault  = 10 * time.Second // a 429 that names no time
)

// errUnnamed says that HubSpot's answer named an input nowhere: not confirmed, not
// refused. For a consent read it means that the subscribe must not be sent.
var errUnnamed = errors.New("HubSpot's answer does not name this input")

// judge maps an error of a call, or of one input of it, to the end of a row.
// attempts are the row's failed settles so far, waits those that were not its fault.
func (j *job) judge(err error, attempts, waits int) failure {
	var exhausted *budgetExhausted
	if errors.As(err, &exhausted) {
		return j.waiting(budgetCode+exhausted.reason, "the portal's call budget is used up", exhausted.retryAfter)
	}
	if errors.Is(err, errLeaseTooShort) {
		return j.waiting("lease_too_short", errLeaseTooShort.Error(), 0)
	}
	var he *hubspot.Error
	if !errors.As(err, &he) {
		return j.guilty(attempts, "unconfirmed", err.Error(), "")
	}
	f := j.judgeHubSpot(he, attempts, waits)
	f.correlationID = he.CorrelationID
	return f
}

func (j *job) judgeHubSpot(he *hubspot.Error, attempts, waits int) failure {
	w := j.worker
	backoff := outbox.Backoff(waits, waitFloor, waitCap, w.Random)
	switch he.Kind {
	case hubspot.KindUnauthorized:
		f := j.waiting(he.Code, he.Summary, unauthorizedPause)
		f.pause = &pause{until: w.Clock().Add(unauthorizedPause), reason: "unauthorized: HubSpot refuses this portal's token"}
		return f
	case hubspot.KindDailyLimited:
		until := nextMidnight(w.Clock(), j.portal.Location())
		f := j.waiting(he.Code, he.Summary, until.Sub(w.Clock()))
		f.pause = &pause{until: until, reason: "daily_limit: HubSpot's daily limit is reached"}
		return f
	case hubspot.KindRateLimited:
		return j.waiting(he.Code, he.Summary, orDefault(he.RetryAfter, rateLimitDefault))
	case hubspot.KindLocked:
		return j.waiting(he.Code, he.Summary, max(he.RetryAfter, lockedFloor+backoff))
	case hubspot.KindMigrating:
		return j.waiting(he.Code, he.Summary, min(orDefault(he.RetryAfter, backoff), migrationCap))
	case hubspot.KindUnavailable, hubspot.KindNotSent:
		return j.waiting(he.Code, he.Summary, max(he.RetryAfter, backoff))
	case hubspot.KindUnknown:
		if he.Status == 0 { // no answer at all: the network's fault, not the event's
			return j.waiting(he.Code, he.Summary, backoff)
		}
		return j.guilty(attempts, he.Code, he.Summary, he.CorrelationID)
	default: // 400, 403, 404, 409 and what we have never seen: waiting does not mend it
		return failure{outcome: postgres.OutcomeDead, counts: true, code: he.Code, summary: he.Summary}
	}
}

// waiting ends a row that failed through no fault of its own.
func (j *job) waiting(code, summary string, delay time.Duration) failure {
	return failure{outcome: postgres.OutcomeRetry, waits: true, delay: max(delay, time.Second), code: code, summary: summary}
}

// guilty ends a row whose own failure counts: retried with full jitter, dead in the end.
func (j *job) guilty(attempts int, code, summary, correlation string) failure {
	f := failure{outcome: postgres.OutcomeRetry, counts: true, code: code, summary: summary, correlationID: correlation,
		delay: outbox.Backoff(attempts, outbox.RetryFloor, outbox.RetryCap, j.worker.Random)}
	if attempts+1 >= j.worker.MaxAttempts {
		f.outcome = postgres.OutcomeDead
	}
	return f
}

func orDefault(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// nextMidnight is when a daily limit of an account in this zone is reset.
func nextMidnight(now time.Time, zone *time.Location) time.Time {
	local := now.In(zone)
	return time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, zone)
}

// budgetCode begins the code of every event that waited for the call budget.
const budgetCode = "budget_"

// budgetExhausted is a reservation that was not granted within the in-place wait.
type budgetExhausted struct {
	reason     string
	retryAfter time.Duration
}

func (e *budgetExhausted) Error() string { return "call budget: " + e.reason }

func exhaustedBy(g budget.Grant) error {
	return &budgetExhausted{reason: g.Reason, retryAfter: g.RetryAfter}
}

// reply is what QStash is told.
type reply struct {
	status       int
	retryAfter   time.Duration
	nonRetryable bool
	text         string
}

// decideReply chooses the answer for a whole message, and, where QStash is asked to
// come back itself, moves the rows' own return behind QStash's.
//
//	malformed body, or one event that was just committed dead → 489, not retryable
//	nothing could be done, for something short-lived          → 503 + Retry-After
//	everything else is settled or scheduled in its row        → 200
func decideReply(rows []*row, retriesLeft bool) reply {
	var longest time.Duration
	for _, r := range rows {
		if r.claim.Verdict != postgres.VerdictClaimed || !r.failure.waits || r.failure.pause != nil {
			longest = -1
			break
		}
		longest = max(longest, r.failure.delay)
	}
	if len(rows) > 0 && longest > 0 && longest <= maxRetryAfter && retriesLeft {
		for _, r := range rows {
			r.failure.delay = longest + redeliverGrace
		}
		return replyLater(longest)
	}
	if len(rows) == 1 && rows[0].claim.Verdict == postgres.VerdictClaimed && rows[0].failure.outcome == postgres.OutcomeDead {
		return replyUnprocessable("the event is dead")
	}
	return replyStatus(http.StatusOK, "ok")
}

func replyStatus(status int, text string) reply { return reply{status: status, text: text} }

func replyLater(after time.Duration) reply {
	return reply{status: http.StatusServiceUnavailable, retryAfter: after, text: "come back later"}
}

// replyUnprocessable is QStash's own status for "do not retry" (489).
func replyUnprocessable(text string) reply {
	return reply{status: 489, nonRetryable: true, text: text}
}

func (a reply) write(rw http.ResponseWriter) {
	if a.retryAfter > 0 {
		seconds := int((a.retryAfter + time.Second - 1) / time.Second)
		rw.Header().Set("Retry-After", strconv.Itoa(max(seconds, 1)))
	}
	if a.nonRetryable {
		rw.Header().Set("Upstash-NonRetryable-Error", "true")
	}
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.WriteHeader(a.status)
	_, _ = rw.Write([]byte(a.text + "\n")) // QStash keeps the status; a lost body loses nothing
}
