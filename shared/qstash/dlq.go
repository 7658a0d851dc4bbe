package qstash

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"time"

	sdk "github.com/upstash/qstash-go"
)

// DeadLetter is a message that QStash gave up. Its events have a schedule of their own in
// the database, so that it is a trace of trouble and not a task.
type DeadLetter struct {
	ID        string // in the dead-letter queue
	MessageID string
	URL       string
	Status    int // of the last attempt; 0: there was no answer
	CreatedAt time.Time
	Body      []byte // as published
}

// maxDeadLetters is QStash's own page size.
const maxDeadLetters = 100

// DeadLetters lists the dead-letter queue from a cursor (empty: the beginning), and
// returns the next one; empty: that was all.
func (c *Client) DeadLetters(ctx context.Context, cursor string) ([]DeadLetter, string, error) {
	dlq, err := c.dlq(ctx)
	if err != nil {
		return nil, "", err
	}
	messages, next, err := dlq.List(sdk.ListDlqOptions{Cursor: cursor, Count: maxDeadLetters})
	if err != nil {
		return nil, "", fmt.Errorf("list QStash's dead letters: %w", err)
	}
	letters := make([]DeadLetter, len(messages))
	for i, m := range messages {
		letters[i] = DeadLetter{m.DlqId, m.MessageId, m.Url, m.ResponseStatus, time.UnixMilli(m.CreatedAt).UTC(), []byte(m.Body)}
		if m.Body == "" && m.BodyBase64 != "" {
			if letters[i].Body, err = base64.StdEncoding.DecodeString(m.BodyBase64); err != nil {
				letters[i].Body = nil // whatever it is, it names no events
			}
		}
	}
	return letters, next, nil
}

// DeleteDeadLetters removes entries of the dead-letter queue, and returns how many there
// were.
func (c *Client) DeleteDeadLetters(ctx context.Context, ids []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	dlq, err := c.dlq(ctx)
	if err != nil {
		return 0, err
	}
	n, err := dlq.DeleteMany(ids)
	if err != nil {
		return 0, fmt.Errorf("delete %d of QStash's dead letters: %w", len(ids), err)
	}
	return n, nil
}

// dlq is the vendor's client for one call. It knows no context, and an environment
// variable overrides the caller's address: the transport puts both right, so that the
// token goes to the configured address and nowhere else.
func (c *Client) dlq(ctx context.Context) (*sdk.Dlq, error) {
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the QStash token: %w", err)
	}
	base, err := url.Parse(c.cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("QStash address: %w", err)
	}
	client := c.http
	client.Timeout = c.cfg.Timeout
	client.Transport = &addressed{ctx: ctx, base: base, next: c.http.Transport}
	return sdk.NewClientWith(sdk.Options{Url: c.cfg.BaseURL, Token: token, Client: &client}).Dlq(), nil
}

// addressed sends requests to one address, within one context.
type addressed struct {
	ctx  context.Context //nolint:containedctx // the SDK takes none: it is this one call's
	base *url.URL
	next http.RoundTripper
}

// RoundTrip sends the request.
func (a *addressed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(a.ctx)
	r.URL.Scheme, r.URL.Host, r.Host = a.base.Scheme, a.base.Host, ""
	next := a.next
	if next == nil {
		next = http.DefaultTransport
	}
	return next.RoundTrip(r)
}
