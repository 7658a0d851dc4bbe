package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"hubsync/shared/hubspot/hubspottest"
)

// DemoInput is what a demo runs on.
type DemoInput struct {
	World    Options
	Changes  []byte
	Expected []byte // what must come out, beside what the oracle says; or nil
}

// quietFor is how long nothing may be left before the demo looks.
const (
	quietFor     = 300 * time.Millisecond
	pollQuiet    = 100 * time.Millisecond
	progressRate = 250 * time.Millisecond
)

// Demo feeds the changes through a world, waits until nothing is left, and compares
// HubSpot with what must be. The world is the caller's to stop, also after an error,
// unless it is nil.
func Demo(ctx context.Context, in DemoInput, progress io.Writer) (*Report, *World, error) {
	changes, err := ReadChanges(in.Changes)
	if err != nil {
		return nil, nil, err
	}
	expected, err := ReadExpected(in.Expected)
	if err != nil {
		return nil, nil, err
	}
	var state hubspottest.State
	if in.World.HubSpotState != nil {
		if err := json.Unmarshal(in.World.HubSpotState, &state); err != nil {
			return nil, nil, fmt.Errorf("HubSpot state: %w", err)
		}
	}
	say(progress, "starting PostgreSQL, Redis, QStash, HubSpot and hubsync on this machine …\n")
	w, err := Start(ctx, in.World)
	if err != nil {
		return nil, nil, err
	}
	started := time.Now()
	var sent atomic.Int64
	stop := show(ctx, w, &sent, len(changes), progress)
	statuses, err := feed(ctx, w.APIURL, changes, &sent)
	if err == nil {
		err = w.Quiet(ctx)
	}
	stop()
	if err != nil {
		return nil, w, err
	}
	r := &Report{Requests: len(changes), ElapsedSeconds: time.Since(started).Seconds()}
	r.answers(changes, statuses)
	if err := r.count(ctx, w); err != nil {
		return nil, w, err
	}
	r.budget(w)
	if err := r.compare(w, changes, statuses, state, expected); err != nil {
		return nil, w, err
	}
	r.OK = r.UnexpectedAnswers == 0 && r.Mismatches == 0 && r.Events["dead"] == 0 && len(r.problems) == 0
	return r, w, nil
}

func say(progress io.Writer, format string, args ...any) {
	if progress != nil {
		_, _ = fmt.Fprintf(progress, format, args...) // a terminal that is gone needs no progress
	}
}

// show writes a line of progress until stop is called.
func show(ctx context.Context, w *World, sent *atomic.Int64, total int, progress io.Writer) (stop func()) {
	if progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		every(ctx, progressRate, func() {
			if left, err := w.OpenEvents(ctx); err == nil {
				say(progress, "\r%d of %d requests sent, %d events on their way to HubSpot   ", sent.Load(), total, left)
			}
		})
	}()
	return func() { cancel(); <-done; say(progress, "\r%s\r", strings.Repeat(" ", 79)) }
}

// Quiet waits until nothing is left: no open event, no message on its way.
func (w *World) Quiet(ctx context.Context) error {
	var since time.Time
	for {
		open, err := w.OpenEvents(ctx)
		if err != nil {
			return err
		}
		switch {
		case open > 0 || !w.QStash.Idle():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > quietFor:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollQuiet):
		}
	}
}

func (r *Report) answers(changes []Change, statuses []int) {
	r.Answers = map[string]int{}
	for i, c := range changes {
		r.Answers[strconv.Itoa(statuses[i])]++
		if statuses[i] == http.StatusAccepted {
			r.Accepted++
		}
		if c.Expect != 0 && statuses[i] != c.Expect {
			r.UnexpectedAnswers++
			r.problems = append(r.problems, fmt.Sprintf("request %d was answered %d, must be %d", i+1, statuses[i], c.Expect))
		}
	}
}

// compare looks at HubSpot from every side.
func (r *Report) compare(w *World, changes []Change, statuses []int, state hubspottest.State, expected []Expected) error {
	must, err := oracle(w.opts.Routes, changes, statuses, state, time.Now())
	if err != nil {
		return err
	}
	c := newComparison(w, state)
	c.statuses("oracle", must)
	c.statuses("expected file", expected)
	c.targets(must, subscribers(w, changes, statuses))
	c.lists(must)
	c.records(state)
	r.Mismatches = len(c.problems)
	r.problems = append(r.problems, c.problems...)
	return nil
}

// subscribers lists, by portal, the addresses that an accepted request ever subscribed.
func subscribers(w *World, changes []Change, statuses []int) map[string]bool {
	portals := map[string]string{}
	for _, b := range w.opts.Routes.Brands {
		portals[b.ID] = b.Portal
	}
	ever := map[string]bool{}
	for i, c := range changes {
		if d := c.decision(); statuses[i] == http.StatusAccepted && d.DesiredState == "subscribed" {
			ever[portals[c.brand()]+" "+strings.ToLower(strings.TrimSpace(d.Email))] = true
		}
	}
	return ever
}
