package hubspot

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// State is what HubSpot shows for a subscription of an address.
type State string

// The states.
const (
	Subscribed   State = "SUBSCRIBED"
	Unsubscribed State = "UNSUBSCRIBED"
	NotSpecified State = "NOT_SPECIFIED"
)

func (s State) known() bool { return s == Subscribed || s == Unsubscribed || s == NotSpecified }

// Reason says what a confirmed write did.
type Reason string

// The reasons.
const (
	ReasonNoChange    Reason = "NO_STATUS_CHANGE"
	ReasonChanged     Reason = "REQUESTED_CHANGE_OCCURRED"
	ReasonResubscribe Reason = "RESUBSCRIBE_OCCURRED" // the person had opted out
	ReasonOptedOutAll Reason = "UNSUBSCRIBE_FROM_ALL_OCCURRED"
)

const channelEmail = "EMAIL"

// StatusWrite is one write of a preference. Its brand is implied by the subscription.
type StatusWrite struct {
	Email          string
	SubscriptionID int64
	State          State
	LegalBasis     string // of a subscribe
	Explanation    string
}

// Status is what HubSpot shows for one subscription of one address.
type Status struct {
	Email          string // lower-cased
	SubscriptionID int64
	State          State
	Source         string
	At             time.Time // by HubSpot's clock; zero: not stated
	BusinessUnitID int64
	Reason         Reason // of a write
	Explanation    string // where the account returns it
}

// StatusResult is the answer to one write. Err is nil exactly if it is confirmed.
// Status is what HubSpot shows, where the answer says so.
type StatusResult struct {
	Confirmed     bool
	Status        Status
	Err           *Error
	CorrelationID string
}

// publicStatus is a status on the wire.
type publicStatus struct {
	Subscriber     string   `json:"subscriberIdString"`
	SubscriptionID flexInt  `json:"subscriptionId"`
	Status         State    `json:"status"`
	Source         flexText `json:"source"`
	Timestamp      flexTime `json:"timestamp"`
	BusinessUnitID flexInt  `json:"businessUnitId"`
	Reason         Reason   `json:"setStatusSuccessReason"`
	Explanation    flexText `json:"legalBasisExplanation"`
}

func (p publicStatus) status() Status {
	return Status{
		Email: foldEmail(p.Subscriber), SubscriptionID: int64(p.SubscriptionID), State: p.Status, Source: string(p.Source),
		At: p.Timestamp.Time, BusinessUnitID: int64(p.BusinessUnitID), Reason: p.Reason, Explanation: string(p.Explanation),
	}
}

// statusInput is a write on the wire.
type statusInput struct {
	Subscriber     string `json:"subscriberIdString,omitempty"`
	Channel        string `json:"channel"`
	State          State  `json:"statusState"`
	SubscriptionID int64  `json:"subscriptionId"`
	LegalBasis     string `json:"legalBasis,omitempty"`
	Explanation    string `json:"legalBasisExplanation,omitempty"`
}

// cell is what a status belongs to.
type cell struct {
	email        string
	subscription int64
}

func cellOf(w StatusWrite) cell { return cell{foldEmail(w.Email), w.SubscriptionID} }

// checkBatch refuses what HubSpot would refuse as a whole, or what names nobody.
func checkBatch[K comparable](keys []K, what string) *Error {
	if len(keys) == 0 || len(keys) > MaxInputs {
		return refuse("size", "a batch has "+strconv.Itoa(len(keys))+" inputs, not 1 to "+strconv.Itoa(MaxInputs))
	}
	var empty K
	seen := make(map[K]bool, len(keys))
	for _, key := range keys {
		if key == empty {
			return refuse("empty", "an input without "+what)
		}
		if seen[key] {
			return refuse("duplicate", "one "+what+" stands twice in a batch")
		}
		seen[key] = true
	}
	return nil
}

func checkWrites(writes []StatusWrite) *Error {
	keys := make([]cell, len(writes))
	for i, w := range writes {
		if w.Email == "" || w.SubscriptionID <= 0 || !w.State.known() {
			return refuse("empty", "a write lacks its address, subscription or state")
		}
		keys[i] = cellOf(w)
	}
	return checkBatch(keys, "subscription of an address")
}

// WriteStatuses writes up to 100 preferences in one call. Results are in the order of
// writes. Needs an Enterprise plan: elsewhere KindForbidden, and WriteStatus works.
func (c *Client) WriteStatuses(ctx context.Context, writes []StatusWrite) ([]StatusResult, error) {
	if he := checkWrites(writes); he != nil {
		return nil, he
	}
	inputs := make([]statusInput, len(writes))
	for i, w := range writes {
		inputs[i] = statusInput{w.Email, channelEmail, w.State, w.SubscriptionID, w.LegalBasis, w.Explanation}
	}
	a, err := c.do(ctx, call{"write statuses", http.MethodPost, c.preferences + "/statuses/batch/write", nil, inputsOf(inputs)})
	if err != nil {
		return nil, err
	}
	return c.judgeWrites(a, writes)
}

// WriteStatus writes one preference.
func (c *Client) WriteStatus(ctx context.Context, w StatusWrite) (StatusResult, error) {
	if he := checkWrites([]StatusWrite{w}); he != nil {
		return StatusResult{}, he
	}
	a, err := c.do(ctx, call{"write status", http.MethodPost, c.statusPath(w.Email), nil,
		statusInput{"", channelEmail, w.State, w.SubscriptionID, w.LegalBasis, w.Explanation}})
	if err != nil {
		return StatusResult{}, err
	}
	results, err := c.judgeWrites(a, []StatusWrite{w})
	if err != nil {
		return StatusResult{}, err
	}
	return results[0], nil
}

func (c *Client) statusPath(email string) string {
	return c.preferences + "/statuses/" + pathSegment(email)
}

// judgeWrites finds each write's own answer: results are not in the order of inputs,
// addresses come back lower-cased, and a 200 may name nothing at all.
func (c *Client) judgeWrites(a answer, writes []StatusWrite) ([]StatusResult, error) {
	e, err := decode[envelope[publicStatus]](c, a)
	if err != nil {
		return nil, err
	}
	shown := map[cell][]Status{}
	for _, r := range e.Results {
		s := r.status()
		if len(writes) == 1 {
			s.Email = cmp.Or(s.Email, foldEmail(writes[0].Email)) // a single call names it in its path
		}
		key := cell{s.Email, s.SubscriptionID}
		shown[key] = append(shown[key], s)
	}
	open := map[string]int{} // writes of an address that no result names
	for _, w := range writes {
		if len(shown[cellOf(w)]) == 0 {
			open[foldEmail(w.Email)]++
		}
	}
	results := make([]StatusResult, len(writes))
	for i, w := range writes {
		results[i] = c.judgeWrite(a, w, shown[cellOf(w)])
		if results[i].Err == nil || len(shown[cellOf(w)]) > 0 {
			continue
		}
		if refused := refusalOf(e.Errors, w, len(writes) == 1, open[foldEmail(w.Email)] == 1); refused != nil {
			results[i].Err = c.inputError(a, *refused)
		}
	}
	return results, nil
}

// judgeWrite holds what is shown for a write's cell against what was asked.
func (c *Client) judgeWrite(a answer, w StatusWrite, shown []Status) StatusResult {
	r := StatusResult{CorrelationID: a.correlation}
	if len(shown) == 0 {
		r.Err = c.unnamed(a)
		return r
	}
	r.Status = shown[len(shown)-1]
	if slices.ContainsFunc(shown, func(s Status) bool { return s.State != w.State }) {
		r.Err = c.unconfirmed(a, "status_differs", "the answer shows another status than was asked for")
		return r
	}
	r.Confirmed = true
	return r
}

// refusalOf returns the error that names a write: by address and subscription, or by
// address alone where only one write of that address can be meant. In an answer to a
// single input (only) any error is its own.
func refusalOf(errors []errorBody, w StatusWrite, only, unambiguous bool) *errorBody {
	for i, e := range errors {
		subscriptions := e.Context.values("subscriptionId", "subscriptionIds")
		switch {
		case only:
			return &errors[i]
		case !e.namesAddress(foldEmail(w.Email)):
		case slices.Contains(subscriptions, strconv.FormatInt(w.SubscriptionID, 10)), len(subscriptions) == 0 && unambiguous:
			return &errors[i]
		}
	}
	return nil
}

// namesAddress reports whether an error is about this lower-cased address.
func (b errorBody) namesAddress(email string) bool {
	addresses := b.Context.values("subscriberIdString", "subscriberIdStrings", "email", "emails", "ids", "id")
	return slices.ContainsFunc(addresses, func(a string) bool { return foldEmail(a) == email })
}
