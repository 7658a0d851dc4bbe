package hubspot

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The types of a wide status.
const (
	PortalWide       = "PORTAL_WIDE"
	BusinessUnitWide = "BUSINESS_UNIT_WIDE"
)

// WideStatus is an opt-out of everything: of the portal (BusinessUnitID 0) or of one
// brand.
type WideStatus struct {
	Type           string
	BusinessUnitID int64
	State          State
	At             time.Time // by HubSpot's clock; zero: not stated
}

// WideResult is what is known of one address. No status: it never opted out of all.
type WideResult struct {
	Statuses []WideStatus
	Err      *Error
}

type publicWide struct {
	Subscriber     string   `json:"subscriberIdString"`
	Type           flexText `json:"wideStatusType"`
	Status         State    `json:"status"`
	BusinessUnitID flexInt  `json:"businessUnitId"`
	Timestamp      flexTime `json:"timestamp"`
}

// wide keeps a brand only where the type says that it is about one: what we do not
// know counts for the whole portal.
func (p publicWide) wide() WideStatus {
	w := WideStatus{Type: string(p.Type), State: p.Status, At: p.Timestamp.Time}
	if p.Type == BusinessUnitWide {
		w.BusinessUnitID = int64(p.BusinessUnitID)
	}
	return w
}

// withWide adds a status to an address's result. A state that we do not know could be
// an opt-out.
func (c *Client) withWide(a answer, r WideResult, p publicWide) WideResult {
	if !p.Status.known() {
		return WideResult{Err: c.unconfirmed(a, "status_unreadable", "the answer shows a status that cannot be understood")}
	}
	if r.Err == nil {
		r.Statuses = append(r.Statuses, p.wide())
	}
	return r
}

// wideOf is one result of a batch read: a wide status, or an address with its list.
type wideOf struct {
	publicWide
	WideStatuses *[]publicWide `json:"wideStatuses"`
}

// ReadUnsubscribedAll reads, for up to 100 addresses, whether they opted out of all, by
// lower-cased address. An address that the answer does not name never did: the
// documented answer for such is an empty result. So an answer that is not COMPLETE, or
// counts errors that it does not show, fails for all that it does not name; and so does
// one that names others who never opted out: it names everyone, and has lost some.
func (c *Client) ReadUnsubscribedAll(ctx context.Context, emails []string) (map[string]WideResult, error) {
	keys, he := addressKeys(emails)
	if he != nil {
		return nil, he
	}
	a, err := c.do(ctx, call{"read unsubscribed from all", http.MethodPost, c.preferences + "/statuses/batch/unsubscribe-all/read",
		emailChannel(), inputsOf(emails)})
	if err != nil {
		return nil, err
	}
	e, err := decode[envelope[wideOf]](c, a)
	if err != nil {
		return nil, err
	}
	results := map[string]WideResult{}
	namesEveryone := false
	for _, r := range e.Results {
		key := foldEmail(r.Subscriber)
		list := []publicWide{r.publicWide}
		if r.WideStatuses != nil {
			list = *r.WideStatuses
			namesEveryone = namesEveryone || len(list) == 0
			mention(results, key)
		}
		for _, p := range list {
			results[key] = c.withWide(a, results[key], p)
		}
	}
	if _, nameless := results[""]; e.lossless() && !namesEveryone && !nameless {
		for _, key := range keys {
			mention(results, key)
		}
	}
	return completeReads(c, a, results, keys, e.Errors, func(he *Error) WideResult { return WideResult{Err: he} }), nil
}

// ReadUnsubscribedAllOne reads whether one address opted out of all.
func (c *Client) ReadUnsubscribedAllOne(ctx context.Context, email string) (WideResult, error) {
	if _, he := addressKeys([]string{email}); he != nil {
		return WideResult{}, he
	}
	a, err := c.do(ctx, call{"read unsubscribed from all", http.MethodGet, c.statusPath(email) + "/unsubscribe-all", emailChannel(), nil})
	if err != nil {
		return WideResult{}, err
	}
	e, err := decode[envelope[publicWide]](c, a)
	if err != nil {
		return WideResult{}, err
	}
	if len(e.Errors) > 0 {
		return WideResult{Err: c.inputError(a, e.Errors[0])}, nil
	}
	if !e.lossless() {
		return WideResult{Err: c.unnamed(a)}, nil
	}
	var result WideResult
	for _, p := range e.Results {
		result = c.withWide(a, result, p)
	}
	return result, nil
}

// WideWriteResult is the answer to an opt-out of everything. Err is nil exactly if it
// is confirmed. At is the newest time that it shows, by HubSpot's clock.
type WideWriteResult struct {
	Confirmed     bool
	At            time.Time
	Err           *Error
	CorrelationID string
}

// UnsubscribeAll opts one address out of everything in the portal, or in one brand
// (businessUnitID above 0). An answer that shows no opt-out has an error of
// KindUnknown: read it back.
func (c *Client) UnsubscribeAll(ctx context.Context, email string, businessUnitID int64) (WideWriteResult, error) {
	keys, he := addressKeys([]string{email})
	if he != nil {
		return WideWriteResult{}, he
	}
	a, err := c.do(ctx, call{"unsubscribe from all", http.MethodPost, c.statusPath(email) + "/unsubscribe-all", wideQuery(businessUnitID), nil})
	if err != nil {
		return WideWriteResult{}, err
	}
	results, err := c.judgeWideWrites(a, keys)
	if err != nil {
		return WideWriteResult{}, err
	}
	return results[keys[0]], nil
}

// UnsubscribeAllMany opts up to 100 addresses out of everything in one call, and
// answers by lower-cased address. Needs an Enterprise plan.
func (c *Client) UnsubscribeAllMany(ctx context.Context, emails []string, businessUnitID int64) (map[string]WideWriteResult, error) {
	keys, he := addressKeys(emails)
	if he != nil {
		return nil, he
	}
	a, err := c.do(ctx, call{"unsubscribe many from all", http.MethodPost, c.preferences + "/statuses/batch/unsubscribe-all",
		wideQuery(businessUnitID), inputsOf(emails)})
	if err != nil {
		return nil, err
	}
	return c.judgeWideWrites(a, keys)
}

// wideQuery asks for the statuses, without which the answer would name nobody.
func wideQuery(businessUnitID int64) url.Values {
	query := emailChannel()
	query.Set("verbose", "true")
	if businessUnitID > 0 {
		query.Set("businessUnitId", strconv.FormatInt(businessUnitID, 10))
	}
	return query
}

// wideWritten is one result: a status of any kind, or an address with its list.
type wideWritten struct {
	publicWide
	Statuses     []publicWide `json:"statuses"`
	WideStatuses []publicWide `json:"wideStatuses"`
}

// judgeWideWrites counts an address as opted out if the answer shows it opted out of
// something, and subscribed to nothing.
func (c *Client) judgeWideWrites(a answer, keys []string) (map[string]WideWriteResult, error) {
	e, err := decode[envelope[wideWritten]](c, a)
	if err != nil {
		return nil, err
	}
	results, contradicted := map[string]WideWriteResult{}, map[string]bool{}
	for _, r := range e.Results {
		key := foldEmail(r.Subscriber)
		if key == "" && len(keys) == 1 {
			key = keys[0] // a single call names it in its path
		}
		for _, p := range append(append(r.Statuses, r.WideStatuses...), r.publicWide) {
			held := results[key]
			held.Confirmed = held.Confirmed || p.Status == Unsubscribed
			contradicted[key] = contradicted[key] || p.Status == Subscribed
			if p.Timestamp.After(held.At) {
				held.At = p.Timestamp.Time
			}
			results[key] = held
		}
	}
	for key, r := range results {
		if !r.Confirmed || contradicted[key] {
			delete(results, key)
		}
	}
	complete := completeReads(c, a, results, keys, e.Errors, func(he *Error) WideWriteResult { return WideWriteResult{Err: he} })
	for key, r := range complete {
		r.CorrelationID = a.correlation
		complete[key] = r
	}
	return complete, nil
}
