package sim

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"hubsync/shared/outbox"
	"hubsync/shared/qstash/qstashtest"
)

// fault is something that goes wrong at the skip-th fitting occasion after its time.
type fault struct {
	kind   string
	stage  string // crash, freeze, cut, lost commit: whose
	portal string // token revoked, pause
	skip   int
	status int
	lasts  time.Duration
	fired  bool
	email  string // poison: whose
}

// kinds lists what can go wrong; what stands more than once is drawn more often.
var kinds = []string{
	"crash", "crash", "crash", "freeze", "freeze", "cut", "lost commit", "restart", // processes and the database
	"duplicate", "reorder", "drop", "lost delivery reply", "publish refused", "publish reply lost", "publish late", "keys rotated", // QStash
	"hubspot refuses", "hubspot refuses", "hubspot reply lost", "hubspot reply lost", "hubspot late", "hubspot late", "hubspot truncated", "hubspot unconfirmed",
	"token revoked", "pause", "mapping change", "redis away", "redis flushed",
}

// stages says whose processes die and freeze: mostly the worker's.
var stages = []string{"worker", "worker", "worker", "worker", "relay", "check", "sweep", "intake"}

var hubspotStatuses = []int{400, 401, 403, 404, 409, 423, 429, 429, 477, 500, 502, 503, 504, 521, 524}

var qstashStatuses = []int{400, 401, 412, 429, 500, 503}

func (w *writer) fault() {
	f := &fault{kind: kinds[w.r.IntN(len(kinds))], stage: stages[w.r.IntN(len(stages))], skip: w.r.IntN(14), lasts: w.between(5*time.Second, 20*time.Minute)}
	f.portal = []string{"main", "main", "other"}[w.r.IntN(3)]
	switch {
	case strings.HasPrefix(f.kind, "hubspot"):
		f.status, f.portal = hubspotStatuses[w.r.IntN(len(hubspotStatuses))], ""
	case f.kind == "publish refused":
		f.status = qstashStatuses[w.r.IntN(len(qstashStatuses))]
	}
	if f.kind != "crash" && f.kind != "freeze" {
		f.skip /= 3
	}
	w.add(w.moment(), f)
}

// arm makes a fault wait for its occasion; some need none.
func (w *world) arm(f *fault) {
	occasion := func(broken string) {
		w.trace("%s: %s for %s", f.kind, broken, f.lasts)
		w.strike(f)
	}
	end := w.now.Add(f.lasts)
	switch f.kind {
	case "restart":
		occasion("every session ends")
		w.d.restart()
	case "keys rotated":
		occasion("the worker learns of it later")
		w.rotateKeys()
		w.at(end, w.learnKeys)
	case "token revoked":
		occasion(f.portal)
		w.hubspot.SetToken(f.portal, "another token")
		w.at(end, func() { w.hubspot.SetToken(f.portal, tokens[f.portal]) })
	case "pause":
		occasion(f.portal)
		w.operate(func() error { return w.db.PausePortal(w.d.t.Context(), f.portal, end, "simulated", f.skip%2 == 0) })
	case "mapping change":
		occasion("a property has another value")
		w.applyRoutes("yes")
	case "redis away":
		occasion("no answer")
		w.redisAway = end
	case "redis flushed":
		occasion("all keys are gone")
		w.redis.server.FlushAll()
	case "poison":
		occasion("HubSpot refuses every write with one address in it")
		w.poisoned = f
	case "portal away":
		occasion(f.portal)
		w.away = f
	default:
		w.faults = append(w.faults, f)
	}
}

// operate lets an operator do something, who tries again where the first connection that
// was at hand had died in a restart.
func (w *world) operate(act func() error) {
	err := act()
	for range 5 {
		if err == nil {
			return
		}
		err = act()
	}
	w.must(err)
}

// mend repairs whatever is broken.
func (w *world) mend() {
	w.redisAway, w.poisoned, w.away = time.Time{}, nil, nil
	w.learnKeys()
	for portal, token := range tokens {
		w.hubspot.SetToken(portal, token)
		if w.redis.s == w.scheduler {
			w.operate(func() error { return w.db.ResumePortal(w.d.t.Context(), portal) })
		}
	}
}

func (w *world) rotateKeys() { _ = w.keysAPI(http.MethodPost, "/v2/keys/rotate") }

func (w *world) learnKeys() { w.keys = w.keysAPI(http.MethodGet, "/v2/keys") }

// atPoint says what happens to an actor where it is: the first armed fault that fits.
func (w *world) atPoint(a *actor) action {
	if w.calm {
		return goOn
	}
	for _, f := range w.faults {
		if f.fired || f.stage != a.stage {
			continue
		}
		switch f.kind {
		case "crash":
			if f.counts() {
				w.strike(f)
				return die
			}
		case "freeze":
			if !a.frozen && a.at != "sleep" && f.counts() {
				w.strike(f)
				a.wake = w.now.Add(freezeFor(f, a.at))
				return freeze
			}
		case "cut", "lost commit":
			if isDatabasePoint(a.at) && f.counts() {
				w.strike(f)
				w.trace("%s %s %s", a.name, f.kind, a.at)
				a.cutConn, a.loseCommit = f.kind == "cut", f.kind != "cut"
				return goOn
			}
		}
	}
	return goOn
}

// freezeFor is how long an actor freezes. A call that is about to leave lands within L of
// its beginning, or nothing could be promised about it.
func freezeFor(f *fault, at string) time.Duration {
	if strings.HasPrefix(at, "before HubSpot") {
		return min(f.lasts, outbox.LateWindow-30*time.Second)
	}
	return f.lasts
}

// isDatabasePoint: a transaction is about to begin.
func isDatabasePoint(at string) bool {
	return strings.HasPrefix(at, "before ") && !strings.HasPrefix(at, "before HubSpot") &&
		!slices.Contains([]string{"before publish", "before reply", "before budget"}, at)
}

// counts counts a fitting occasion; true: it is the one.
func (f *fault) counts() bool {
	f.skip--
	return f.skip < 0
}

func (w *world) strike(f *fault) {
	f.fired = true
	w.fired[f.kind]++
}

// take returns the armed fault of one of these kinds that takes this occasion, or nil.
func (w *world) take(kinds ...string) *fault {
	if w.calm {
		return nil
	}
	for _, f := range w.faults {
		if !f.fired && slices.Contains(kinds, f.kind) && f.counts() {
			w.strike(f)
			w.trace("fault: %s %d", f.kind, f.status)
			return f
		}
	}
	return nil
}

// publish is a call to QStash, or what a fault makes of it.
func (w *world) publish(call request) (*http.Response, error) {
	var faults qstashtest.Faults
	for _, f := range []*fault{w.take("duplicate"), w.take("reorder"), w.take("drop")} {
		switch {
		case f == nil:
		case f.kind == "duplicate":
			faults.Duplicate = 1
		case f.kind == "reorder":
			faults.ShuffleMs = 60_000
		case f.kind == "drop":
			faults.Drop = 1
		}
	}
	carryOut := func() *http.Response {
		w.qstash.SetFaults(faults)
		w.ledger.published = append(w.ledger.published, string(call.content))
		return call.carryOut(w.qstash.Handler())
	}
	switch f := w.take("publish refused", "publish reply lost", "publish late"); {
	case f == nil:
		return carryOut(), nil
	case f.kind == "publish refused":
		return call.answer(f.status, `{"error":"as told"}`, "Retry-After", "2"), nil
	case f.kind == "publish reply lost":
		carryOut()
	default:
		w.at(w.now.Add(f.lasts), func() { carryOut() })
	}
	return nil, errBroken
}

// callHubSpot makes a call to HubSpot, or what a fault makes of it.
func (w *world) callHubSpot(c *sent, call request) (*http.Response, error) {
	switch {
	case w.poisoned != nil && strings.Contains(strings.ToLower(string(call.content)+call.URL.Path), w.poisoned.email) && strings.Contains(c.operation, "write"):
		w.ledger.refused[http.StatusBadRequest]++
		return call.refused(http.StatusBadRequest, 0), nil
	case w.away != nil && w.away.portal == c.portal:
		return call.refused(http.StatusServiceUnavailable, 0), nil
	}
	f := w.take("hubspot refuses", "hubspot reply lost", "hubspot late", "hubspot truncated", "hubspot unconfirmed")
	if f == nil {
		response := w.carryOutHubSpot(c, call)
		if c.heard = w.now.Sub(c.began) <= callTimeout; c.heard {
			w.noteRead(c, call)
		}
		return response, nil
	}
	switch f.kind {
	case "hubspot refuses":
		w.ledger.refused[f.status]++
		return call.refused(f.status, f.skip), nil
	case "hubspot unconfirmed": // seen in the field: 200, and nothing was done
		return call.answer(http.StatusOK, `{"status":"COMPLETE","results":[]}`), nil
	case "hubspot late":
		lands := min(f.lasts, outbox.LateWindow-30*time.Second-w.now.Sub(c.began))
		w.at(w.now.Add(lands), func() { w.carryOutHubSpot(c, call) })
		w.sleep(callTimeout)
		return nil, errLate
	case "hubspot truncated":
		response := w.carryOutHubSpot(c, call)
		response.Body = &broken{response.Body, 10}
		return response, nil
	}
	w.carryOutHubSpot(c, call)
	return nil, errBroken
}

// refused answers with a status as HubSpot does.
func (r request) refused(status, variant int) *http.Response {
	switch {
	case status == http.StatusTooManyRequests && variant%3 == 0:
		return r.answer(status, `{"status":"error","errorType":"RATE_LIMIT","policyName":"DAILY","message":"as told"}`)
	case status == http.StatusTooManyRequests:
		return r.answer(status, `{"status":"error","errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING","message":"as told"}`, "Retry-After", "3")
	case status == 477:
		return r.answer(status, `{}`, "Retry-After", "120")
	case status >= 502:
		return r.answer(status, `<html>`, "Content-Type", "text/html")
	}
	return r.answer(status, `{"status":"error","category":"VALIDATION_ERROR","message":"as told"}`)
}
