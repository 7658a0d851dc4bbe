package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"hubsync/shared/hubspot"
	"hubsync/shared/postgres"
)

// A portal's HubSpot counts as away after this many messages in a row got no answer.
const (
	outageAfter = 3
	outageFirst = 5 * time.Second
	outageMost  = 60 * time.Second // HubSpot back + 60 s
)

// outages counts, per portal, the messages in a row that got no answer from HubSpot. It
// is this process's: a database write per message would cost more than it tells.
type outages struct {
	mu    sync.Mutex
	inRow map[string]int
}

func (o *outages) note(portal string, away bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inRow == nil {
		o.inRow = map[string]int{}
	}
	if !away {
		delete(o.inRow, portal)
		return 0
	}
	o.inRow[portal]++
	return o.inRow[portal]
}

// heard notes what a call says about whether HubSpot is there. Any answer but a 5xx is
// one, a refusal too.
func (j *job) heard(err error) {
	var he *hubspot.Error
	away := errors.As(err, &he) && (he.Kind == hubspot.KindUnavailable || he.Kind == hubspot.KindNotSent || (he.Kind == hubspot.KindUnknown && he.Status == 0))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answered = j.answered || !away
	j.away = j.away || away
}

// started reports whether a call of this job was made.
func (j *job) started() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.answered || j.away
}

// noteOutage opens the portal's breaker when HubSpot is away, so that hours of it cost a
// probe a minute and not every event's retries; and widens it with every message that
// gets through, so that the backlog does not arrive at once.
func (j *job) noteOutage(ctx context.Context) {
	if !j.answered && !j.away {
		return // no call was made
	}
	w := j.worker
	inRow := w.outages.note(j.portal.ID, !j.answered)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	var err error
	switch {
	case j.answered && j.portal.Recovering:
		err = w.DB.WidenBreaker(ctx, postgres.PortalBreaker(j.portal.ID))
	case inRow >= outageAfter || (!j.answered && j.portal.Recovering):
		w.Logger.Error("HubSpot is away: nothing is sent but a probe", "portal", j.portal.ID)
		err = w.DB.OpenBreaker(ctx, postgres.PortalBreaker(j.portal.ID), outageFirst, outageMost, "HubSpot does not answer")
	}
	if err != nil {
		w.Logger.Error("outage not noted", "portal", j.portal.ID, "error", err.Error())
	}
}
