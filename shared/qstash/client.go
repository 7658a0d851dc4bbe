// Package qstash publishes messages to QStash and verifies what it delivers. The
// vendor's Go SDK serves where it is sound (dead letters, single messages); publishing
// and verifying are our own: its client takes no context, drops the errors of a
// batch's items, knows no flow control, and lets an environment variable override the
// caller's address.
package qstash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DefaultBaseURL is QStash's.
const DefaultBaseURL = "https://qstash.upstash.io"

// MaxBatch is how many messages one call may carry.
const MaxBatch = 100

const (
	defaultTimeout = 10 * time.Second
	maxAnswer      = 1 << 20
)

// Config says how to reach QStash.
type Config struct {
	BaseURL    string // default DefaultBaseURL
	Token      func(context.Context) (string, error)
	HTTPClient *http.Client
	Timeout    time.Duration // of one call; default 10 s
}

// Client publishes. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http http.Client
}

// New returns a client. It follows no redirect: the token must not travel elsewhere.
func New(cfg Config) (*Client, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Token == nil {
		return nil, errors.New("qstash: Token is required")
	}
	if u, err := url.Parse(cfg.BaseURL); err != nil || u.Host == "" {
		return nil, errors.New("qstash: BaseURL is not an absolute URL")
	}
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	c := &Client{cfg: cfg}
	if cfg.HTTPClient != nil {
		c.http = *cfg.HTTPClient
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// FlowControl limits deliveries per key. It counts deliveries, not what they cause.
type FlowControl struct {
	Key         string
	Parallelism int
	Rate        int
	Period      time.Duration // whole seconds
}

// Message is one message to publish.
type Message struct {
	Destination            string // absolute URL; the signature's subject is this text
	Body                   []byte
	DeduplicationID        string
	FlowControl            FlowControl
	Retries                int
	RetryDelay             string // expression in milliseconds, variable `retried`
	Timeout                time.Duration
	Delay                  time.Duration
	FailureCallback        string
	FailureCallbackRetries int
	Label                  string
	Forward                map[string]string // headers that the destination gets
}

// Result is what became of one message. Err is nil exactly if QStash has it.
type Result struct {
	MessageID    string
	Deduplicated bool // QStash had one with this id already; it counts as published
	Err          *Error
}

// item is a message in a batch on the wire.
type item struct {
	Destination string            `json:"destination"`
	Headers     map[string]string `json:"headers"`
	Body        string            `json:"body"`
}

// itemAnswer is a batch's answer for one message.
type itemAnswer struct {
	MessageID    string `json:"messageId"`
	Deduplicated bool   `json:"deduplicated"`
	Error        string `json:"error"`
	Status       int    `json:"status"`
}

// PublishBatch publishes up to MaxBatch messages in one call. The results are in the
// order of messages; a message that is not well-formed gets its error without being
// sent, and the others are sent. The error is an *Error and means the whole call:
// KindUnknown may have published all of it.
func (c *Client) PublishBatch(ctx context.Context, messages []Message) ([]Result, error) {
	if len(messages) > MaxBatch {
		return nil, &Error{Kind: KindInvalid, Message: fmt.Sprintf("a batch of %d messages, at most %d", len(messages), MaxBatch)}
	}
	results := make([]Result, len(messages))
	var items []item
	var sent []int
	for i, m := range messages {
		it, err := m.item()
		if err != nil {
			results[i].Err = err
			continue
		}
		items, sent = append(items, it), append(sent, i)
	}
	if len(items) == 0 {
		return results, nil
	}
	answers, err := c.post(ctx, items)
	if err != nil {
		return nil, err
	}
	for n, i := range sent {
		if n >= len(answers) {
			results[i].Err = &Error{Kind: KindUnknown, Message: "the answer has fewer items than the batch"}
			continue
		}
		results[i] = resultOf(answers[n])
	}
	return results, nil
}

func resultOf(a itemAnswer) Result {
	switch {
	case a.MessageID != "":
		return Result{MessageID: a.MessageID, Deduplicated: a.Deduplicated}
	case a.Error != "":
		return Result{Err: &Error{Kind: KindInvalid, Status: a.Status, Message: "QStash refuses this message"}}
	default:
		return Result{Err: &Error{Kind: KindUnknown, Message: "the answer names neither a message id nor an error"}}
	}
}

func (c *Client) post(ctx context.Context, items []item) ([]itemAnswer, error) {
	payload, err := json.Marshal(items)
	if err != nil {
		return nil, &Error{Kind: KindInvalid, Message: "the batch cannot be written as JSON"}
	}
	body, err := c.do(ctx, http.MethodPost, "/v2/batch", payload)
	if err != nil {
		return nil, err
	}
	var answers []itemAnswer
	if err := json.Unmarshal(body, &answers, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, &Error{Kind: KindUnknown, Message: "the answer is not the JSON that was expected"}
	}
	return answers, nil
}

// do makes one call and returns the body of a 2xx answer.
func (c *Client) do(ctx context.Context, method, path string, payload []byte) ([]byte, error) {
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return nil, &Error{Kind: KindUnavailable, Message: "the token could not be fetched; nothing was sent"}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, method, c.cfg.BaseURL+path, bytes.NewReader(payload))
	if err != nil {
		return nil, &Error{Kind: KindInvalid, Message: "the request could not be made"}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, transportError(sent.Load())
	}
	defer func() { _ = response.Body.Close() }() // read below; a failed close changes nothing
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, errorOfResponse(response.StatusCode, response.Header)
	}
	if err != nil || len(body) > maxAnswer {
		return nil, &Error{Kind: KindUnknown, Status: response.StatusCode, Message: "the answer ended early or is too large"}
	}
	return body, nil
}

var keyText = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,200}$`)

// item checks a message by QStash's own rules: one bad item would refuse a batch.
func (m Message) item() (item, *Error) {
	u, err := url.Parse(m.Destination)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return item{}, invalid("destination is not an absolute http(s) URL")
	case strings.Contains(m.DeduplicationID, ":") || len(m.DeduplicationID) > 200:
		return item{}, invalid("deduplication id has a colon or is longer than 200")
	case m.FlowControl.Key != "" && !keyText.MatchString(m.FlowControl.Key):
		return item{}, invalid("flow-control key: use A-Z a-z 0-9 _ . -")
	case m.Label != "" && !keyText.MatchString(m.Label):
		return item{}, invalid("label: use A-Z a-z 0-9 _ . -")
	}
	headers := m.headers()
	for _, value := range headers {
		if strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			return item{}, invalid("a header value has a control character")
		}
	}
	return item{m.Destination, headers, string(m.Body)}, nil
}

func invalid(text string) *Error {
	return &Error{Kind: KindInvalid, Message: text + "; it was not sent"}
}

func (m Message) headers() map[string]string {
	h := map[string]string{
		"content-type": "application/json", "upstash-method": "POST", "upstash-retries": strconv.Itoa(m.Retries),
	}
	set := func(name, value string, wanted bool) {
		if wanted {
			h[name] = value
		}
	}
	set("upstash-deduplication-id", m.DeduplicationID, m.DeduplicationID != "")
	set("upstash-retry-delay", m.RetryDelay, m.RetryDelay != "")
	set("upstash-timeout", seconds(m.Timeout), m.Timeout > 0)
	set("upstash-delay", seconds(m.Delay), m.Delay > 0)
	set("upstash-failure-callback", m.FailureCallback, m.FailureCallback != "")
	set("upstash-failure-callback-retries", strconv.Itoa(m.FailureCallbackRetries), m.FailureCallback != "")
	set("upstash-label", m.Label, m.Label != "")
	if f := m.FlowControl; f.Key != "" {
		h["upstash-flow-control-key"] = f.Key
		h["upstash-flow-control-value"] = f.value()
	}
	for name, value := range m.Forward {
		h["upstash-forward-"+strings.ToLower(name)] = value
	}
	return h
}

func (f FlowControl) value() string {
	var parts []string
	if f.Parallelism > 0 {
		parts = append(parts, "parallelism="+strconv.Itoa(f.Parallelism))
	}
	if f.Rate > 0 {
		parts = append(parts, "rate="+strconv.Itoa(f.Rate))
	}
	if f.Period > 0 {
		parts = append(parts, "period="+seconds(f.Period))
	}
	return strings.Join(parts, ", ")
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + "s"
}
