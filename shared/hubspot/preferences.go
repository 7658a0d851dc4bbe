package hubspot

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	LegalBasis     string
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
type StatusResult struct {
	Confirmed     bool
	Status        Status
	Err           *Error
	CorrelationID string
}

// ReadResult is what is shown for one address, all subscriptions of it.
type ReadResult struct {
	Statuses []Status
	Err      *Error
}

// publicStatus is a status on the wire.
type publicStatus struct {
	Subscriber     string  `json:"subscriberIdString"`
	SubscriptionID flexInt `json:"subscriptionId"`
	Status         State   `json:"status"`
	Source         string  `json:"source"`
	Timestamp      string  `json:"timestamp"`
	BusinessUnitID flexInt `json:"businessUnitId"`
	Reason         Reason  `json:"setStatusSuccessReason"`
	Explanation    string  `json:"legalBasisExplanation"`
}

// envelope is the answer of batches, and of single preference calls too.
type envelope[T any] struct {
	Status    string      `json:"status"`
	Results   []T         `json:"results"`
	NumErrors int         `json:"numErrors"`
	Errors    []errorBody `json:"errors"`
}

type statusInput struct {
	Subscriber     string `json:"subscriberIdString,omitempty"`
	Channel        string `json:"channel"`
	State          State  `json:"statusState"`
	SubscriptionID int64  `json:"subscriptionId"`
	LegalBasis     string `json:"legalBasis,omitempty"`
	Explanation    string `json:"legalBasisExplanation,omitempty"`
}

func (p publicStatus) status() Status {
	at, err := time.Parse(time.RFC3339Nano, p.Timestamp)
	if err != nil {
		at = time.Time{}
	}
	return Status{
		Email: strings.ToLower(p.Subscriber), SubscriptionID: int64(p.SubscriptionID), State: p.Status, Source: p.Source,
		At: at, BusinessUnitID: int64(p.BusinessUnitID), Reason: p.Reason, Explanation: p.Explanation,
	}
}

// cell is what a status belongs to.
type cell struct {
	email        string
	subscription int64
}

// errDuplicate refuses what HubSpot would refuse as a whole.
func errDuplicate(what string) *Error {
	return &Error{Kind: KindInvalid, Code: "hubspot_duplicate_input", Summary: "one " + what + " stands twice in a batch; nothing was sent"}
}

// WriteStatuses writes up to 100 preferences in one call. Results are in the order of
// writes. Needs an Enterprise plan: elsewhere KindForbidden, and WriteStatus works.
func (c *Client) WriteStatuses(ctx context.Context, writes []StatusWrite) ([]StatusResult, error) {
	inputs := make([]statusInput, len(writes))
	seen := map[cell]bool{}
	for i, w := range writes {
		key := cell{strings.ToLower(w.Email), w.SubscriptionID}
		if seen[key] {
			return nil, errDuplicate("subscription of an address")
		}
		seen[key] = true
		inputs[i] = statusInput{w.Email, channelEmail, w.State, w.SubscriptionID, w.LegalBasis, w.Explanation}
	}
	a, err := c.do(ctx, http.MethodPost, c.preferences+"/statuses/batch/write", nil, inputsOf(inputs))
	if err != nil {
		return nil, err
	}
	return judgeWrites(a, writes)
}

// WriteStatus writes one preference.
func (c *Client) WriteStatus(ctx context.Context, w StatusWrite) (StatusResult, error) {
	a, err := c.do(ctx, http.MethodPost, c.preferences+"/statuses/"+pathSegment(w.Email), nil,
		statusInput{"", channelEmail, w.State, w.SubscriptionID, w.LegalBasis, w.Explanation})
	if err != nil {
		return StatusResult{}, err
	}
	results, err := judgeWrites(a, []StatusWrite{w})
	if err != nil {
		return StatusResult{}, err
	}
	return results[0], nil
}

// inputsOf wraps a batch's inputs.
func inputsOf[T any](inputs []T) any {
	return struct {
		Inputs []T `json:"inputs"`
	}{inputs}
}

// judgeWrites finds each write's own answer: results are not in the order of inputs,
// addresses come back lower-cased, and a 200 may name nothing at all.
func judgeWrites(a answer, writes []StatusWrite) ([]StatusResult, error) {
	e, err := decode[envelope[publicStatus]](a)
	if err != nil {
		return nil, err
	}
	done := map[cell]Status{}
	for _, r := range e.Results {
		s := r.status()
		done[cell{s.Email, s.SubscriptionID}] = s
	}
	results := make([]StatusResult, len(writes))
	for i, w := range writes {
		email := strings.ToLower(w.Email)
		status, ok := done[cell{email, w.SubscriptionID}]
		switch refused := findError(e.Errors, email, w.SubscriptionID, len(writes)); {
		case ok && status.State == w.State:
			results[i] = StatusResult{Confirmed: true, Status: status, CorrelationID: a.correlation}
		case refused != nil:
			results[i] = StatusResult{Err: errorOfInput(a.status, a.correlation, *refused), CorrelationID: a.correlation}
		default:
			results[i] = StatusResult{Err: unnamed(a.status, a.correlation), CorrelationID: a.correlation}
		}
	}
	return results, nil
}

// findError returns the error that names an input: by address, and by subscription
// where it names one. In an answer to a single input any error is its own.
func findError(errors []errorBody, email string, subscription int64, inputs int) *errorBody {
	for i, e := range errors {
		if inputs == 1 {
			return &errors[i]
		}
		addresses := contextValues(e, "subscriberIdString", "email", "emails", "ids", "id")
		if !slices.ContainsFunc(addresses, func(a string) bool { return strings.EqualFold(a, email) }) {
			continue
		}
		subscriptions := contextValues(e, "subscriptionId", "subscriptionIds")
		if len(subscriptions) > 0 && subscription != 0 && !slices.Contains(subscriptions, strconv.FormatInt(subscription, 10)) {
			continue
		}
		return &errors[i]
	}
	return nil
}

func contextValues(e errorBody, names ...string) []string {
	var values []string
	for _, name := range names {
		values = append(values, e.Context[name]...)
	}
	return values
}

// ReadStatuses reads what is shown for up to 100 addresses, by lower-cased address. An
// address that the answer does not name has an error: a read that says nothing about a
// person is no permission.
func (c *Client) ReadStatuses(ctx context.Context, emails []string) (map[string]ReadResult, error) {
	keys, err := distinct(emails)
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, http.MethodPost, c.preferences+"/statuses/batch/read", url.Values{"channel": {channelEmail}}, inputsOf(emails))
	if err != nil {
		return nil, err
	}
	e, err := decode[envelope[statusesOf]](a)
	if err != nil {
		return nil, err
	}
	results := map[string]ReadResult{}
	for _, r := range e.Results {
		for _, p := range r.all() {
			s := p.status()
			if s.Email == "" {
				s.Email = strings.ToLower(r.Subscriber)
			}
			held := results[s.Email]
			held.Statuses = append(held.Statuses, s)
			results[s.Email] = held
		}
		if key := strings.ToLower(r.Subscriber); key != "" {
			results[key] = results[key] // named, with nothing shown
		}
	}
	return completeReads(results, keys, e.Errors, a, func(err *Error) ReadResult { return ReadResult{Err: err} }), nil
}

// statusesOf is one result of a batch read: a status, or an address with its list.
type statusesOf struct {
	publicStatus
	Statuses []publicStatus `json:"statuses"`
}

func (s statusesOf) all() []publicStatus {
	if len(s.Statuses) > 0 {
		return s.Statuses
	}
	if s.SubscriptionID != 0 {
		return []publicStatus{s.publicStatus}
	}
	return nil
}

// ReadStatus reads what is shown for one address.
func (c *Client) ReadStatus(ctx context.Context, email string) (ReadResult, error) {
	a, err := c.do(ctx, http.MethodGet, c.preferences+"/statuses/"+pathSegment(email), url.Values{"channel": {channelEmail}}, nil)
	if err != nil {
		return ReadResult{}, err
	}
	e, err := decode[envelope[publicStatus]](a)
	if err != nil {
		return ReadResult{}, err
	}
	if e.Status != "COMPLETE" || len(e.Errors) > 0 {
		return ReadResult{Err: unnamed(a.status, a.correlation)}, nil
	}
	var result ReadResult
	for _, p := range e.Results {
		s := p.status()
		s.Email = cmp.Or(s.Email, strings.ToLower(email))
		result.Statuses = append(result.Statuses, s)
	}
	return result, nil
}

// distinct lower-cases addresses and refuses twins.
func distinct(emails []string) ([]string, error) {
	keys := make([]string, len(emails))
	for i, email := range emails {
		keys[i] = strings.ToLower(email)
		if slices.Contains(keys[:i], keys[i]) {
			return nil, errDuplicate("address")
		}
	}
	return keys, nil
}

// completeReads gives every address that was asked for an entry.
func completeReads[R any](results map[string]R, keys []string, errors []errorBody, a answer, failed func(*Error) R) map[string]R {
	for _, key := range keys {
		if refused := findError(errors, key, 0, len(keys)); refused != nil {
			results[key] = failed(errorOfInput(a.status, a.correlation, *refused))
			continue
		}
		if _, named := results[key]; !named {
			results[key] = failed(unnamed(a.status, a.correlation))
		}
	}
	return results
}
