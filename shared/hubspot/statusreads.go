package hubspot

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
)

// ReadResult is what is shown for one address, all subscriptions of it. A subscription
// that was never set may be missing.
type ReadResult struct {
	Statuses []Status
	Err      *Error
}

// statusesOf is one result of a batch read: a status, or an address with its list.
type statusesOf struct {
	publicStatus
	Statuses *[]publicStatus `json:"statuses"`
}

// all returns the result's statuses; false: it says nothing.
func (s statusesOf) all() ([]publicStatus, bool) {
	if s.Statuses != nil {
		return *s.Statuses, true
	}
	return []publicStatus{s.publicStatus}, s.SubscriptionID != 0
}

// ReadStatuses reads what is shown for up to 100 addresses, by lower-cased address. An
// address that the answer does not name has an error: a read that says nothing about a
// person is no permission. Needs an Enterprise plan.
func (c *Client) ReadStatuses(ctx context.Context, emails []string) (map[string]ReadResult, error) {
	keys, he := addressKeys(emails)
	if he != nil {
		return nil, he
	}
	a, err := c.do(ctx, call{"read statuses", http.MethodPost, c.preferences + "/statuses/batch/read", emailChannel(), inputsOf(emails)})
	if err != nil {
		return nil, err
	}
	e, err := decode[envelope[statusesOf]](c, a)
	if err != nil {
		return nil, err
	}
	results := map[string]ReadResult{}
	if !e.complete() {
		e.Results = nil // an unfinished list may lack the opt-out
	}
	for _, r := range e.Results {
		list, says := r.all()
		for _, p := range list {
			if says {
				key := foldEmail(cmp.Or(p.Subscriber, r.Subscriber))
				results[key] = c.withStatus(a, results[key], key, p)
			}
		}
		if key := foldEmail(r.Subscriber); says && key != "" {
			mention(results, key) // named, with nothing shown
		}
	}
	return completeReads(c, a, results, keys, e.Errors, func(he *Error) ReadResult { return ReadResult{Err: he} }), nil
}

// withStatus adds a status to an address's result. A state that we do not know could
// be an opt-out.
func (c *Client) withStatus(a answer, r ReadResult, email string, p publicStatus) ReadResult {
	s := p.status()
	s.Email = cmp.Or(s.Email, email)
	if !s.State.known() || s.Email != email {
		return ReadResult{Err: c.unconfirmed(a, "status_unreadable", "the answer shows a status that cannot be understood")}
	}
	if r.Err == nil {
		r.Statuses = append(r.Statuses, s)
	}
	return r
}

// ReadStatus reads what is shown for one address.
func (c *Client) ReadStatus(ctx context.Context, email string) (ReadResult, error) {
	keys, he := addressKeys([]string{email})
	if he != nil {
		return ReadResult{}, he
	}
	a, err := c.do(ctx, call{"read status", http.MethodGet, c.statusPath(email), emailChannel(), nil})
	if err != nil {
		return ReadResult{}, err
	}
	e, err := decode[envelope[publicStatus]](c, a)
	if err != nil {
		return ReadResult{}, err
	}
	if len(e.Errors) > 0 {
		return ReadResult{Err: c.inputError(a, e.Errors[0])}, nil
	}
	if !e.lossless() {
		return ReadResult{Err: c.unnamed(a)}, nil
	}
	var result ReadResult
	for _, p := range e.Results {
		result = c.withStatus(a, result, keys[0], p)
	}
	return result, nil
}

func emailChannel() url.Values { return url.Values{"channel": {channelEmail}} }

// addressKeys lower-cases addresses and refuses twins.
func addressKeys(emails []string) ([]string, *Error) {
	keys := make([]string, len(emails))
	for i, email := range emails {
		keys[i] = foldEmail(email)
	}
	return keys, checkBatch(keys, "address")
}

// completeReads gives every address that was asked for an entry, and none to others.
// An address that is named as failed is, whatever else is said of it.
func completeReads[R any](c *Client, a answer, results map[string]R, keys []string, errors []errorBody, failed func(*Error) R) map[string]R {
	complete := make(map[string]R, len(keys))
	for _, key := range keys {
		at := slices.IndexFunc(errors, func(b errorBody) bool { return len(keys) == 1 || b.namesAddress(key) })
		result, named := results[key]
		switch {
		case at >= 0:
			result = failed(c.inputError(a, errors[at]))
		case !named:
			result = failed(c.unnamed(a))
		}
		complete[key] = result
	}
	return complete
}

// mention gives a key an entry, if it has none.
func mention[R any](results map[string]R, key string) {
	if _, named := results[key]; !named {
		var nothing R
		results[key] = nothing
	}
}
