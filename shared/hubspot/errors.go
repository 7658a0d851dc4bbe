package hubspot

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
)

// Kind says what a failure means for what to do next.
type Kind string

// The kinds.
const (
	KindUnauthorized Kind = "unauthorized"  // 401: the token is refused
	KindForbidden    Kind = "forbidden"     // 403: scope or plan
	KindNotFound     Kind = "not_found"     // 404, or an input that names no record
	KindConflict     Kind = "conflict"      // 409: another record owns a unique value
	KindInvalid      Kind = "invalid"       // 400, 414 and the like: this input will never pass
	KindRateLimited  Kind = "rate_limited"  // 429 of a short window
	KindDailyLimited Kind = "daily_limited" // 429 until the account's midnight
	KindLocked       Kind = "locked"        // 423: at least 2 s
	KindMigrating    Kind = "migrating"     // 477: up to a day
	KindUnavailable  Kind = "unavailable"   // 5xx, 52x: a write may have taken effect
	KindUnknown      Kind = "unknown"       // sent, and no usable answer: it may have taken effect
	KindNotSent      Kind = "not_sent"      // nothing left this machine
)

// Error is what HubSpot, or the way to it, answered instead of success. It carries no
// address, token or consent text in any form: HubSpot's own messages may, so they are
// not kept, only stable codes and ids are.
type Error struct {
	Kind          Kind
	Status        int // 0: no answer
	Code          string
	Category      string
	CorrelationID string
	Policy        string // of a 429
	Summary       string
	RetryAfter    time.Duration // 0: none given
	ExistingID    string        // of a conflict: the record that owns the value
	TraceIDs      []string      // inputs that it names
	IDs           []string
}

func (e *Error) Error() string {
	return fmt.Sprintf("hubspot: %s (%s)", e.Summary, e.Code)
}

// OutcomeUnknown reports whether a write that failed so may have taken effect, now or
// later.
func (e *Error) OutcomeUnknown() bool {
	return e.Kind == KindUnknown || e.Kind == KindUnavailable
}

// errorBody is HubSpot's error, of a whole request or of one input. Every member is
// optional.
type errorBody struct {
	Status        any                 `json:"status"`
	Message       string              `json:"message"`
	Category      string              `json:"category"`
	SubCategory   any                 `json:"subCategory"`
	CorrelationID string              `json:"correlationId"`
	ErrorType     string              `json:"errorType"`
	PolicyName    string              `json:"policyName"`
	Context       map[string][]string `json:"context"`
	Errors        []struct {
		Message string              `json:"message"`
		Code    string              `json:"code"`
		Context map[string][]string `json:"context"`
	} `json:"errors"`
}

var (
	existingID = regexp.MustCompile(`Existing ID: (\d+)`)
	// HubSpot's validation text embeds JSON with one of these.
	propertyCode = regexp.MustCompile(`"error"\s*:\s*"([A-Z][A-Z0-9_]{2,60})"`)
	plainCode    = regexp.MustCompile(`^[A-Z][A-Z0-9_]{2,60}$`)
	// Codes that stand in a message without being marked as such.
	namedCode = regexp.MustCompile(`\b(PROPERTY_DOESNT_EXIST|INVALID_EMAIL|INVALID_OPTION|INVALID_DATE|INVALID_INTEGER|INVALID_LONG|MISSING_REQUIRED_PROPERTY|MISSING_CONDITIONAL_REQUIRED_PROPERTY)\b`)
)

// errorOfResponse classifies an answer that is not a success.
func errorOfResponse(status int, header http.Header, body []byte, now time.Time) *Error {
	e := &Error{Status: status, RetryAfter: RetryAfter(header.Get("Retry-After"), now)}
	var b errorBody
	if json.Unmarshal(body, &b, lenient) == nil {
		e.fill(b)
	}
	if e.CorrelationID == "" {
		e.CorrelationID = plainID(header.Get("X-HubSpot-Correlation-Id"))
	}
	e.Kind = kindOfStatus(status)
	if b.ErrorType == "RATE_LIMIT" || b.Category == "RATE_LIMITS" {
		e.Kind = KindRateLimited // one client saw it under status 500
	}
	if e.Kind == KindRateLimited {
		if e.Policy == "DAILY" {
			e.Kind = KindDailyLimited
		}
		e.RetryAfter = cmp.Or(e.RetryAfter, intervalOf(header))
	}
	e.finish()
	return e
}

func (e *Error) fill(b errorBody) {
	e.Category, e.Policy = plainWord(b.Category), plainWord(b.PolicyName)
	e.CorrelationID = plainID(b.CorrelationID)
	e.Code = codeOf(b)
	if m := existingID.FindStringSubmatch(b.Message); m != nil {
		e.ExistingID = m[1]
	}
	e.TraceIDs = b.Context["objectWriteTraceId"]
	e.IDs = b.Context["ids"]
}

// finish makes the stable code and the summary of what is known.
func (e *Error) finish() {
	detail := strings.ToLower(cmp.Or(e.Code, e.Policy, e.Category))
	e.Code = "hubspot_" + string(e.Kind)
	if e.Status > 0 {
		e.Code = "hubspot_" + strconv.Itoa(e.Status)
	}
	if detail != "" {
		e.Code += "_" + detail
	}
	e.Summary = "HubSpot answered " + strconv.Itoa(e.Status)
	if e.Status == 0 {
		e.Summary = "no answer from HubSpot"
	}
	if e.Category != "" {
		e.Summary += ", category " + e.Category
	}
	if detail != "" {
		e.Summary += ", " + detail
	}
}

// errorOfInput classifies one input's error inside a batch answer.
func errorOfInput(status int, correlation string, b errorBody) *Error {
	e := &Error{Status: status}
	e.fill(b)
	e.CorrelationID = cmp.Or(e.CorrelationID, plainID(correlation))
	switch {
	case b.Category == "OBJECT_NOT_FOUND":
		e.Kind, e.Status = KindNotFound, http.StatusNotFound
	case b.Category == "CONFLICT" || e.ExistingID != "":
		e.Kind, e.Status = KindConflict, http.StatusConflict
	case b.Category == "RATE_LIMITS":
		e.Kind, e.Status = KindRateLimited, http.StatusTooManyRequests
	case b.Category == "INTERNAL_ERROR" || b.Category == "SERVER_ERROR":
		e.Kind, e.Status = KindUnavailable, http.StatusInternalServerError
	default:
		e.Kind, e.Status = KindInvalid, http.StatusBadRequest
	}
	e.finish()
	return e
}

// unnamed is the error of an input that an answer names neither as done nor as
// refused: only a positive confirmation is success.
func unnamed(status int, correlation string) *Error {
	return &Error{Kind: KindUnknown, Status: status, CorrelationID: plainID(correlation), Code: "hubspot_unconfirmed",
		Summary: "HubSpot's answer names this input neither as done nor as refused"}
}

func kindOfStatus(status int) Kind {
	switch {
	case status == http.StatusUnauthorized:
		return KindUnauthorized
	case status == http.StatusForbidden:
		return KindForbidden
	case status == http.StatusNotFound:
		return KindNotFound
	case status == http.StatusConflict:
		return KindConflict
	case status == http.StatusTooManyRequests:
		return KindRateLimited
	case status == http.StatusLocked:
		return KindLocked
	case status == 477:
		return KindMigrating
	case status >= 500, status == http.StatusRequestTimeout:
		return KindUnavailable
	default: // a redirect is one too: we follow none
		return KindInvalid
	}
}

// codeOf finds the most specific stable code of an error.
func codeOf(b errorBody) string {
	for _, inner := range b.Errors {
		if plainCode.MatchString(inner.Code) {
			return inner.Code
		}
		if m := propertyCode.FindStringSubmatch(inner.Message); m != nil {
			return m[1]
		}
	}
	if m := propertyCode.FindStringSubmatch(b.Message); m != nil {
		return m[1]
	}
	if m := namedCode.FindString(b.Message); m != "" {
		return m
	}
	if sub, ok := b.SubCategory.(string); ok {
		return plainWord(sub[strings.LastIndex(sub, ".")+1:])
	}
	return ""
}

// plainWord keeps a code-like text and drops anything else, which could echo input.
func plainWord(text string) string {
	if plainCode.MatchString(text) {
		return text
	}
	return ""
}

var idLike = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// plainID keeps what looks like an id.
func plainID(text string) string {
	if idLike.MatchString(text) {
		return text
	}
	return ""
}

func intervalOf(header http.Header) time.Duration {
	ms, err := strconv.Atoi(header.Get("X-HubSpot-RateLimit-Interval-Milliseconds"))
	if err != nil || ms <= 0 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
