package hubspot

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WideStatus is an opt-out of everything: of the portal (BusinessUnitID 0) or of one
// brand.
type WideStatus struct {
	BusinessUnitID int64
	State          State
	At             time.Time
}

// WideResult is what is known of one address. No status: it never opted out of all.
type WideResult struct {
	Statuses []WideStatus
	Err      *Error
}

type publicWide struct {
	Subscriber     string  `json:"subscriberIdString"`
	Type           string  `json:"wideStatusType"`
	Status         State   `json:"status"`
	BusinessUnitID flexInt `json:"businessUnitId"`
	Timestamp      string  `json:"timestamp"`
}

func (p publicWide) wide() WideStatus {
	at, err := time.Parse(time.RFC3339Nano, p.Timestamp)
	if err != nil {
		at = time.Time{}
	}
	w := WideStatus{BusinessUnitID: int64(p.BusinessUnitID), State: p.Status, At: at}
	if p.Type == "PORTAL_WIDE" {
		w.BusinessUnitID = 0
	}
	return w
}

// wideOf is one result of a batch read: a wide status, or an address with its list.
type wideOf struct {
	publicWide
	WideStatuses []publicWide `json:"wideStatuses"`
}

// ReadUnsubscribedAll reads, for up to 100 addresses, whether they opted out of all.
// An address that the answer does not name never did: the documented answer for such
// is an empty result. So an answer that is not COMPLETE fails for all of them.
func (c *Client) ReadUnsubscribedAll(ctx context.Context, emails []string) (map[string]WideResult, error) {
	keys, err := distinct(emails)
	if err != nil {
		return nil, err
	}
	a, err := c.do(ctx, http.MethodPost, c.preferences+"/statuses/batch/unsubscribe-all/read", url.Values{"channel": {channelEmail}}, inputsOf(emails))
	if err != nil {
		return nil, err
	}
	e, err := decode[envelope[wideOf]](a)
	if err != nil {
		return nil, err
	}
	results := map[string]WideResult{}
	if e.Status == "COMPLETE" {
		for _, key := range keys {
			results[key] = WideResult{}
		}
	}
	for _, r := range e.Results {
		key := strings.ToLower(r.Subscriber)
		held := results[key]
		for _, p := range append(r.WideStatuses, r.publicWide) {
			if p.Status != "" {
				held.Statuses = append(held.Statuses, p.wide())
			}
		}
		results[key] = held
	}
	return completeReads(results, keys, e.Errors, a, func(err *Error) WideResult { return WideResult{Err: err} }), nil
}

// ReadUnsubscribedAllOne reads whether one address opted out of all.
func (c *Client) ReadUnsubscribedAllOne(ctx context.Context, email string) (WideResult, error) {
	a, err := c.do(ctx, http.MethodGet, c.unsubscribeAllPath(email), url.Values{"channel": {channelEmail}}, nil)
	if err != nil {
		return WideResult{}, err
	}
	e, err := decode[envelope[publicWide]](a)
	if err != nil {
		return WideResult{}, err
	}
	if e.Status != "COMPLETE" || len(e.Errors) > 0 {
		return WideResult{Err: unnamed(a.status, a.correlation)}, nil
	}
	var result WideResult
	for _, p := range e.Results {
		result.Statuses = append(result.Statuses, p.wide())
	}
	return result, nil
}

func (c *Client) unsubscribeAllPath(email string) string {
	return c.preferences + "/statuses/" + pathSegment(email) + "/unsubscribe-all"
}

// UnsubscribeAll opts one address out of everything in the portal, or in one brand
// (businessUnitID above 0).
func (c *Client) UnsubscribeAll(ctx context.Context, email string, businessUnitID int64) (WideResult, error) {
	query := url.Values{"channel": {channelEmail}, "verbose": {"true"}}
	if businessUnitID > 0 {
		query.Set("businessUnitId", strconv.FormatInt(businessUnitID, 10))
	}
	a, err := c.do(ctx, http.MethodPost, c.unsubscribeAllPath(email), query, nil)
	if err != nil {
		return WideResult{}, err
	}
	e, err := decode[envelope[publicWide]](a)
	if err != nil {
		return WideResult{}, err
	}
	if e.Status != "COMPLETE" || len(e.Errors) > 0 {
		return WideResult{Err: unnamed(a.status, a.correlation)}, nil
	}
	var result WideResult
	for _, p := range e.Results {
		if p.Status != "" {
			result.Statuses = append(result.Statuses, p.wide())
		}
	}
	return result, nil
}
