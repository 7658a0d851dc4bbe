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
	"strings"
	"sync/atomic"
	"time"

	json "github.com/go-json-experiment/json"
)

const (
	// DefaultBaseURL is HubSpot's.
	DefaultBaseURL = "https://api.hubapi.com"
	// DefaultTimeout is how long one call may take, its answer included.
	DefaultTimeout = 10 * time.Second
	// MaxInputs is the most inputs that one batch call takes.
	MaxInputs = 100

	// maxBody is more than any answer to 100 inputs needs.
	maxBody = 8 << 20
)

// Versions that a portal can speak. VersionV4 means contacts and lists v3 with
// communication preferences v4.
const (
	Version202603 = "2026-03"
	Version202609 = "2026-09"
	VersionV4     = "v4"
)

// Config says how to reach one account.
type Config struct {
	Portal  string        // our name of it, for error texts
	BaseURL string        // default DefaultBaseURL
	Version string        // default Version202603
	Timeout time.Duration // of one call; default DefaultTimeout
	// Token is asked before every call, so that a rotated secret takes effect.
	Token func(context.Context) (string, error)
	// HTTPClient is used as it is, but follows no redirect.
	HTTPClient *http.Client
	// OnResponse is told the limits that every answer states.
	OnResponse func(RateInfo)
	Clock      func() time.Time
}

// Client makes calls to one account. It is safe for concurrent use.
type Client struct {
	cfg         Config
	http        http.Client
	contacts    string // path prefixes
	preferences string
	lists       string
}

// New returns the client of an account.
func New(cfg Config) (*Client, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.Version == "" {
		cfg.Version = Version202603
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Token == nil || cfg.Clock == nil {
		return nil, errors.New("hubspot: Token and Clock are required")
	}
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("hubspot: BaseURL is not an absolute http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("hubspot: BaseURL has a user, a query or a fragment")
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
	return c, nil
}

// call is one request on its way.
type call struct {
	operation string // for error texts: no address in it
	method    string
	path      string
	query     url.Values
	body      any // nil: none
}

// answer is a response that was read whole.
type answer struct {
	operation   string
	status      int
	body        []byte
	correlation string
}

// do makes one call. Its error is an *Error, and nil only for a 2xx that was read
// whole; what the 2xx says is for the caller to judge.
func (c *Client) do(ctx context.Context, k call) (answer, error) {
	a, he := c.attempt(ctx, k)
	if he != nil {
		he.Operation, he.Portal = k.operation, c.cfg.Portal
		return answer{}, he
	}
	a.operation = k.operation
	return a, nil
}

func (c *Client) attempt(ctx context.Context, k call) (answer, *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var payload []byte
	if k.body != nil {
		var err error
		if payload, err = json.Marshal(k.body); err != nil {
			return answer{}, refuse("unencodable", "the request cannot be written as JSON")
		}
	}
	token, err := c.cfg.Token(ctx)
	if token = strings.TrimSpace(token); err != nil || token == "" {
		return answer{}, &Error{Kind: KindNotSent, Code: "hubspot_token_unavailable", Summary: "the portal's token could not be fetched"}
	}
	target := c.cfg.BaseURL + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	var wire wireState
	request, err := http.NewRequestWithContext(wire.trace(ctx, k.method), k.method, target, bytes.NewReader(payload))
	if err != nil {
		return answer{}, refuse("malformed", "the request could not be made")
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	if k.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return c.send(request, &wire)
}

// send makes the call and reads its answer. The limits that an answer states are
// reported even where the rest of it is of no use.
func (c *Client) send(request *http.Request, wire *wireState) (answer, *Error) {
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, transportError(err, wire.engaged.Load())
	}
	defer func() { _ = response.Body.Close() }() // read below; a failed close changes nothing
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	a := answer{status: response.StatusCode, body: body, correlation: plainID(response.Header.Get("X-HubSpot-Correlation-Id"))}
	if a.status < 200 || a.status > 299 {
		he := errorOfResponse(a.status, response.Header, body, c.cfg.Clock())
		c.report(response, he)
		return a, he
	}
	c.report(response, nil)
	if err != nil || len(body) > maxBody {
		return a, &Error{Kind: KindUnknown, Code: "hubspot_answer_truncated", CorrelationID: a.correlation,
			Summary: "HubSpot's answer ended early or is too large"}
	}
	return a, nil
}

// wireState knows whether any of a request can have left this machine.
type wireState struct{ engaged atomic.Bool }

// trace marks the moment at which a connection is handed to the request. What follows
// cannot be told apart for sure: a context that ends while the headers are being
// written races with the writer. net/http asks for a second connection only if the
// first took nothing, or for a read, which it may repeat.
func (w *wireState) trace(ctx context.Context, method string) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			if method != http.MethodGet {
				w.engaged.Store(false)
			}
		},
		GotConn: func(httptrace.GotConnInfo) { w.engaged.Store(true) },
	})
}

// transportError keeps nothing of the error's text: it prints the whole URL, and
// preference paths carry the address.
func transportError(err error, engaged bool) *Error {
	e := &Error{Kind: KindUnknown, Code: "hubspot_no_answer", Summary: "no answer: the connection broke"}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Code, e.Summary = "hubspot_timeout", "no answer in time"
	}
	if !engaged {
		e.Kind = KindNotSent
		e.Code += "_not_sent"
		e.Summary += "; nothing was sent"
	}
	return e
}
