// Package hubspot is a thin client of one HubSpot account: one method is one HTTP
// call, so that a caller can reserve budget for exactly what it sends. Answers are
// judged by their body: an input counts as done only if the answer says so, and one
// that is named nowhere has an unknown outcome. No retries, no redirects; the version
// of the API is the portal's configuration, because each is supported for a time only.
package hubspot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DefaultBaseURL is HubSpot's.
const DefaultBaseURL = "https://api.hubapi.com"

// maxBody is more than any answer to 100 inputs needs.
const maxBody = 8 << 20

// Versions that a portal can speak. VersionV4 means contacts and lists v3 with
// communication preferences v4.
const (
	Version202603 = "2026-03"
	Version202609 = "2026-09"
	VersionV4     = "v4"
)

// Config says how to reach one account.
type Config struct {
	Portal  string
	BaseURL string // default DefaultBaseURL
	Version string // default Version202603
	Token   func(context.Context) (string, error)
	// HTTPClient is used as it is, but follows no redirect.
	HTTPClient *http.Client
	// OnResponse is told the limits that every answer states.
	OnResponse func(RateInfo)
	Clock      func() time.Time
}

// RateInfo is what an answer says about the account's limits.
type RateInfo struct {
	Status         int
	Known          bool // Max and Remaining were stated
	Max, Remaining int
	Interval       time.Duration
	DailyKnown     bool
	DailyMax       int
	DailyRemaining int
	Policy         string        // of a 429
	RetryAfter     time.Duration // of a 429
	At             time.Time
}

// Client makes calls to one account. It is safe for concurrent use.
type Client struct {
	cfg         Config
	http        http.Client
	contacts    string // path prefixes
	preferences string
	lists       string
	properties  string
}

// lenient: members that HubSpot adds are no error, and neither are twins of them.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// New returns the client of an account.
func New(cfg Config) (*Client, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.Version == "" {
		cfg.Version = Version202603
	}
	if cfg.Token == nil || cfg.Clock == nil {
		return nil, errors.New("hubspot: Token and Clock are required")
	}
	if u, err := url.Parse(cfg.BaseURL); err != nil || u.Host == "" {
		return nil, errors.New("hubspot: BaseURL is not an absolute URL")
	}
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	c := &Client{cfg: cfg}
	if cfg.HTTPClient != nil {
		c.http = *cfg.HTTPClient
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	switch cfg.Version {
	case Version202603, Version202609:
		c.contacts = "/crm/objects/" + cfg.Version + "/contacts"
		c.preferences = "/communication-preferences/" + cfg.Version
		c.lists = "/crm/lists/" + cfg.Version
	case VersionV4:
		c.contacts, c.preferences, c.lists = "/crm/v3/objects/contacts", "/communication-preferences/v4", "/crm/v3/lists"
	default:
		return nil, fmt.Errorf("hubspot: version %q is not one of 2026-03, 2026-09, v4", cfg.Version)
	}
	c.properties = "/crm/v3/properties/contacts"
	return c, nil
}

// answer is a response that was read whole.
type answer struct {
	status      int
	body        []byte
	correlation string
}

// do makes one call. Its error is an *Error, and nil only for a 2xx that was read
// whole; what the 2xx says is for the caller to judge.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body any) (answer, error) {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return answer{}, &Error{Kind: KindInvalid, Code: "hubspot_request_unencodable", Summary: "the request cannot be written as JSON"}
		}
	}
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return answer{}, &Error{Kind: KindNotSent, Code: "hubspot_token_unavailable", Summary: "the portal's token could not be fetched"}
	}
	target := c.cfg.BaseURL + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) { sent.Store(true) },
	})
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(payload))
	if err != nil {
		return answer{}, &Error{Kind: KindInvalid, Code: "hubspot_request_malformed", Summary: "the request could not be made"}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return c.send(request, &sent)
}

func (c *Client) send(request *http.Request, sent *atomic.Bool) (answer, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, transportError(err, sent.Load())
	}
	defer func() { _ = response.Body.Close() }() // read below; a failed close changes nothing
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	a := answer{response.StatusCode, body, plainID(response.Header.Get("X-HubSpot-Correlation-Id"))}
	success := a.status >= 200 && a.status < 300
	if success && (err != nil || len(body) > maxBody) {
		return a, &Error{Kind: KindUnknown, Code: "hubspot_answer_truncated", CorrelationID: a.correlation,
			Summary: "HubSpot's answer ended early or is too large"}
	}
	if success {
		c.report(response, nil)
		return a, nil
	}
	he := errorOfResponse(a.status, response.Header, body, c.cfg.Clock())
	c.report(response, he)
	return a, he
}

// transportError keeps nothing of the error's text: it prints the whole URL, and
// preference paths carry the address.
func transportError(err error, sent bool) *Error {
	e := &Error{Kind: KindUnknown, Code: "hubspot_no_answer", Summary: "no answer from HubSpot: the connection broke"}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Code, e.Summary = "hubspot_timeout", "no answer from HubSpot in time"
	}
	if !sent {
		e.Kind = KindNotSent
		e.Summary += "; nothing was sent"
	}
	return e
}

func (c *Client) report(response *http.Response, he *Error) {
	if c.cfg.OnResponse == nil {
		return
	}
	info := RateInfo{Status: response.StatusCode, Interval: intervalOf(response.Header), At: c.cfg.Clock()}
	number := func(name string) (int, bool) {
		n, err := strconv.Atoi(response.Header.Get("X-HubSpot-RateLimit-" + name))
		return n, err == nil && n >= 0
	}
	var okMax, okRemaining bool
	info.Max, okMax = number("Max")
	info.Remaining, okRemaining = number("Remaining")
	info.Known = okMax && okRemaining
	info.DailyMax, okMax = number("Daily")
	info.DailyRemaining, okRemaining = number("Daily-Remaining")
	info.DailyKnown = okMax && okRemaining
	if he != nil && (he.Kind == KindRateLimited || he.Kind == KindDailyLimited) {
		info.Policy, info.RetryAfter = he.Policy, he.RetryAfter
		if info.Policy == "" {
			info.Policy = "UNNAMED"
		}
	}
	c.cfg.OnResponse(info)
}

// decode reads a 2xx body. One that is not the JSON that was expected says nothing
// about what took effect.
func decode[T any](a answer) (T, error) {
	var value T
	if err := json.Unmarshal(a.body, &value, lenient); err != nil {
		return value, &Error{Kind: KindUnknown, Status: a.status, Code: "hubspot_answer_unreadable", CorrelationID: a.correlation,
			Summary: "HubSpot's answer is not the JSON that was expected"}
	}
	return value, nil
}

// pathSegment percent-encodes everything but unreserved characters: addresses stand in
// paths, and + or % in them must arrive as they are.
func pathSegment(text string) string {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	var b strings.Builder
	for i := range len(text) {
		if strings.IndexByte(unreserved, text[i]) >= 0 {
			b.WriteByte(text[i])
			continue
		}
		fmt.Fprintf(&b, "%%%02X", text[i])
	}
	return b.String()
}

// flexInt reads an id that some answers write as a string.
type flexInt int64

// UnmarshalJSON accepts 7 and "7".
func (f *flexInt) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	if err != nil {
		return fmt.Errorf("id is not a whole number: %w", err)
	}
	*f = flexInt(n)
	return nil
}
