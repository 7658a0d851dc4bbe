package qstash

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Kind says what a failure means for what to do next.
type Kind string

// The kinds.
const (
	KindUnauthorized Kind = "unauthorized"  // 401, 403: the token is refused
	KindInvalid      Kind = "invalid"       // 400: a whole batch may be refused for one item
	KindTooLarge     Kind = "too_large"     // 412, 413
	KindBurstLimited Kind = "burst_limited" // 429: soon again
	KindDailyLimited Kind = "daily_limited" // 429: the day's messages are used up
	KindUnavailable  Kind = "unavailable"   // 5xx, or nothing was sent
	KindUnknown      Kind = "unknown"       // sent, and no usable answer: it may have been published
)

// Error is a failure of a call or of one message. It carries no token and no body.
type Error struct {
	Kind       Kind
	Status     int // 0: no answer
	RetryAfter time.Duration
	Message    string
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return "qstash: " + e.Message
	}
	return fmt.Sprintf("qstash: %s (status %d)", e.Message, e.Status)
}

func errorOfResponse(status int, header http.Header) *Error {
	e := &Error{Status: status, RetryAfter: retryAfter(header)}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Kind, e.Message = KindUnauthorized, "the token is refused"
	case status == http.StatusTooManyRequests && isDaily(header):
		e.Kind, e.Message = KindDailyLimited, "the day's messages are used up"
	case status == http.StatusTooManyRequests:
		e.Kind, e.Message = KindBurstLimited, "too many calls for now"
	case status == http.StatusPreconditionFailed, status == http.StatusRequestEntityTooLarge:
		e.Kind, e.Message = KindTooLarge, "the message is too large"
	case status >= 500:
		e.Kind, e.Message = KindUnavailable, "QStash is not available"
	default:
		e.Kind, e.Message = KindInvalid, "QStash refuses the request"
	}
	return e
}

// isDaily tells the two 429s apart: the daily one states RateLimit-* headers with
// nothing remaining, the other ones Burst-RateLimit-*.
func isDaily(header http.Header) bool {
	if header.Get("Burst-RateLimit-Remaining") == "0" {
		return false
	}
	return header.Get("RateLimit-Remaining") == "0" || header.Get("X-RateLimit-Remaining") == "0"
}

func retryAfter(header http.Header) time.Duration {
	const most = 24 * 60 * 60
	n, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, most)) * time.Second
}

// transportError keeps nothing of the error's own text: it holds the URL.
func transportError(sent bool) *Error {
	if !sent {
		return &Error{Kind: KindUnavailable, Message: "QStash cannot be reached; nothing was sent"}
	}
	return &Error{Kind: KindUnknown, Message: "no answer from QStash: the message may have been published"}
}
