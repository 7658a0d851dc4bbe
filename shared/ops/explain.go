package ops

import (
	"fmt"
	"strings"
	"time"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// Explanation says in words what became of an event, why, and what comes next.
type Explanation struct {
	State string `json:"state"`
	Cause string `json:"cause,omitzero"`
	Next  string `json:"next"`              // what happens without anybody's doing
	Do    string `json:"do,omitzero"`       // what a person should do
	Run   string `json:"run,omitzero"`      // with which command
	Ahead string `json:"overtook,omitzero"` // the event that took its place
}

// explain reads an event and its subscription; holds says what keeps it from going on.
func explain(e postgres.EventRow, s *postgres.SubscriptionRow, holds string, now time.Time) Explanation {
	x := Explanation{State: e.Status, Cause: causeOf(e.Code, e.Problem)}
	switch outbox.Status(e.Status) {
	case outbox.Synced:
		x.State, x.Cause = "HubSpot confirmed it", ""
		x.Next = nextLook(s, now)
	case outbox.Superseded:
		x.State, x.Ahead = "something newer took its place", e.SupersededBy
		x.Cause, x.Next = reasonOf(e.Reason), "nothing: it will never be sent"
	case outbox.Cancelled:
		x.State, x.Cause, x.Next = "the contact was erased", "", "nothing"
	case outbox.Dead:
		x.State = "dead: waiting does not mend it"
		x.Next = "nothing: it waits for a replay"
		x.Do, x.Run = mend(e)
		if s != nil && s.LatestEvent != e.ID {
			x.Next, x.Do, x.Run, x.Ahead = "nothing: a newer decision has taken its place", "", "", s.LatestEvent
		}
	case outbox.Pending, outbox.PublishRetry, outbox.ProcessRetry:
		x.State = "it waits in PostgreSQL"
		x.Next = "the relay takes it " + at(e.NextAttemptAt, now)
		if x.Cause == "" {
			x.Cause = "its turn has not come: opt-outs go first, and only as much is published as the budget serves"
		}
	case outbox.Publishing:
		x.State, x.Next = "a relay is publishing it", "published, or due again "+at(e.NextAttemptAt, now)
	case outbox.Queued:
		x.State, x.Next = "QStash has it", "delivered; without a word it counts as lost "+at(e.NextAttemptAt, now)
	case outbox.Processing:
		x.State, x.Next = "a worker has it", "settled, or due again "+at(e.NextAttemptAt, now)
	}
	if holds != "" && e.CompletedAt == nil {
		x.Cause, x.Next = holds, "it goes on when the pause ends; nothing is lost by waiting"
	}
	return x
}

func at(t, now time.Time) string {
	if wait := t.Sub(now).Round(time.Second); wait > 0 {
		return "in " + wait.String() + " (" + t.UTC().Format(time.RFC3339) + ")"
	}
	return "now (due since " + t.UTC().Format(time.RFC3339) + ")"
}

func nextLook(s *postgres.SubscriptionRow, now time.Time) string {
	switch {
	case s == nil || s.CheckAt == nil:
		return "nothing"
	case s.UncertainUntil != nil:
		return "a call of ours may still land until " + s.UncertainUntil.UTC().Format(time.RFC3339) + "; HubSpot is looked at " + at(*s.CheckAt, now)
	default:
		return "HubSpot is compared with it " + at(*s.CheckAt, now)
	}
}

// reasonOf says why a request was superseded.
func reasonOf(reason string) string {
	switch reason {
	case "consent_older_than_opt_out":
		return "its consent is not newer than an opt-out that was known when it came"
	case "newer_decision":
		return "a newer decision of the same subscription came before it was sent"
	case "opted_out_in_hubspot":
		return "the person opted out inside HubSpot, not before this consent"
	case "":
		return "a newer decision of the same subscription"
	default:
		return reason
	}
}

// causeOf adds to a code what it means.
func causeOf(code, problem string) string {
	if code == "" {
		return ""
	}
	text := code
	if problem != "" {
		text += ": " + problem
	}
	for _, known := range []struct{ prefix, meaning string }{
		{"budget_", "the call budget is used up; waiting for it does not count as a failure"},
		{"delivery_lost", "QStash or the worker was silent for the delivery window; it is sent again"},
		{"lease_expired", "the worker ended without a word; HubSpot is looked at before anything is believed"},
		{"hubspot_401", "HubSpot refuses the portal's token; the portal is paused and asks again by itself"},
		{"hubspot_403", "the app lacks a scope, or the account a plan"},
		{"hubspot_404", "what the mapping names does not exist in HubSpot"},
		{"hubspot_429", "HubSpot's own limit; waiting for it does not count as a failure"},
		{"hubspot_5", "HubSpot has trouble; waiting for it does not count as a failure"},
		{"hubspot_400", "HubSpot refuses this input, and will every time"},
	} {
		if strings.HasPrefix(code, known.prefix) {
			return text + " (" + known.meaning + ")"
		}
	}
	return text
}

// mend says how a dead event comes to life again.
func mend(e postgres.EventRow) (do, run string) {
	run = fmt.Sprintf("hubsync replay --code %s --brand %s --dry-run", e.Code, e.Brand)
	switch {
	case strings.HasPrefix(e.Code, "hubspot_400_invalid_email"):
		return "the address is none for HubSpot: let the caller send the right one; a replay alone will not help", ""
	case strings.HasPrefix(e.Code, "hubspot_400_property"), strings.HasPrefix(e.Code, "hubspot_400_invalid"),
		strings.HasPrefix(e.Code, "hubspot_404"), e.Code == "mapping_contradiction", e.Code == "snapshot_unreadable":
		return "mend the mapping ('hubsync routes validate FILE' names what does not fit), apply it, then replay", run
	case strings.HasPrefix(e.Code, "hubspot_403"):
		return "give the app the scope, or the account the plan ('hubsync portal check " + e.Portal + "'), then replay", run
	default:
		return "see 'hubsync portal check " + e.Portal + "' and 'hubsync routes validate FILE', mend what they name, then replay", run
	}
}
