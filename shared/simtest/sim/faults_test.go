package sim

import (
	"net/http"
	"strings"

	"hubsync/shared/qstash/qstashtest"
)

// atPoint says what happens to an actor where it is: the first armed fault that fits.
func (w *world) atPoint(a *actor) action {
	for _, f := range w.faults {
		if f.fired || f.stage != a.stage || w.calm {
			continue
		}
		switch f.kind {
		case "crash":
			if f.counts() {
				w.strike(f)
				return die
			}
		}
	}
	return goOn
}

// counts counts a fitting point; true: it is the one.
func (f *fault) counts() bool {
	f.skip--
	return f.skip < 0
}

func (w *world) strike(f *fault) {
	f.fired = true
	w.fired[f.kind]++
}

// strikes reports whether an armed fault of a kind takes this occasion.
func (w *world) strikes(kind string) bool { return w.take(kind, "") != nil }

// take returns the armed fault of a kind that takes this occasion, or nil.
func (w *world) take(kind, portal string) *fault {
	for _, f := range w.faults {
		if f.fired || w.calm || f.kind != kind || (f.portal != "" && f.portal != portal) {
			continue
		}
		if f.counts() {
			w.strike(f)
			w.trace("%s", kind)
			return f
		}
	}
	return nil
}

// qstashFaults are those of one publish.
func qstashFaults(w *world) qstashtest.Faults {
	var f qstashtest.Faults
	if w.strikes("duplicate") {
		f.Duplicate = 1
	}
	if r := w.take("reorder", ""); r != nil {
		f.ShuffleMs = 60_000
	}
	return f
}

// callHubSpot makes a call, or what a fault makes of it.
func (w *world) callHubSpot(c *sent, call request) (*http.Response, error) {
	response := w.carryOutHubSpot(c, call)
	c.heard = true
	return response, nil
}

// arm makes a fault wait for its occasion.
func (w *world) arm(f *fault) { w.faults = append(w.faults, f) }

// mend repairs whatever is broken.
func (w *world) mend() {}

// isDatabasePoint: a transaction is about to begin.
func isDatabasePoint(at string) bool {
	return strings.HasPrefix(at, "before ") && !strings.Contains(at, "HubSpot") && at != "before publish" && at != "before reply" && at != "before budget"
}
