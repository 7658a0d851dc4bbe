package hubspot

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
	KindUnavailable  Kind = "unavailable"   // 5xx, 52x, a redirect: a write may have taken effect
	KindUnknown      Kind = "unknown"       // sent, and no usable answer: it may have taken effect
	KindNotSent      Kind = "not_sent"      // nothing left this machine
)

// lockedFloor is the least wait after a 423.
const lockedFloor = 2 * time.Second

// statusMigrating is HubSpot's own status of an account on the move.
const statusMigrating = 477

// Error is what HubSpot, or the way to it, answered instead of success. It carries no
// address, token or consent text in any form: HubSpot's own messages may, so only
// codes, ids and names of properties are taken out of them.
type Error struct {
	Kind          Kind
	Operation     string // "write statuses"
	Portal        string // our name of the account
	Status        int    // 0: no usable answer, or refused before it was sent
	Code          string // stable: hubspot_429_ten_secondly_rolling, hubspot_400_property_doesnt_exist
	Category      string
	CorrelationID string
	Policy        string // of a 429
	Property      string // the contact property that was refused
	Summary       string
	RetryAfter    time.Duration // 0: none given
	ExistingID    string        // of a conflict: the record that owns the value
	TraceIDs      []string      // inputs that it names, where these are UUIDs or numbers
	IDs           []string
}

// Error names the operation, the portal, and what is known of the failure.
func (e *Error) Error() string {
	text := "hubspot: "
	if e.Operation != "" {
		text += e.Operation + ": "
	}
	if e.Portal != "" {
		text += "portal " + e.Portal + ": "
	}
	return text + e.Summary + " (" + e.Code + ")"
}

// OutcomeUnknown reports whether a write that failed so may have taken effect, now or
// later.
func (e *Error) OutcomeUnknown() bool {
	return e.Kind == KindUnknown || e.Kind == KindUnavailable
}

// Retryable reports whether the same call may pass later without anyone's doing.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case KindRateLimited, KindDailyLimited, KindLocked, KindMigrating, KindUnavailable, KindUnknown, KindNotSent:
		return true
	default:
		return false
	}
}

// refuse is a call that was not made, because HubSpot would refuse all of it.
func refuse(code, summary string) *Error {
	return &Error{Kind: KindInvalid, Code: "hubspot_request_" + code, Summary: summary + "; nothing was sent"}
}

// errorBody is HubSpot's error, of a whole request or of one input. Every member is
// optional.
type errorBody struct {
	Message       flexText       `json:"message"`
	Category      flexText       `json:"category"`
	SubCategory   flexText       `json:"subCategory"`
	Code          flexText       `json:"code"`
	CorrelationID flexText       `json:"correlationId"`
	ErrorType     flexText       `json:"errorType"`
	PolicyName    flexText       `json:"policyName"`
	Context       flexContext    `json:"context"`
	Inner         jsontext.Value `json:"errors"` // more of the same
}

// inner reads the errors inside an error, one level deep.
func (b errorBody) inner() []errorBody {
	var list flexErrorList
	if len(b.Inner) > 0 && json.Unmarshal(b.Inner, &list, lenient) != nil {
		return nil
	}
	return list
}

// errorOfResponse classifies an answer that is not a success.
func errorOfResponse(status int, header http.Header, body []byte, now time.Time) *Error {
	e := &Error{Status: status, RetryAfter: RetryAfter(header.Get("Retry-After"), now)}
	var b errorBody
	if json.Unmarshal(body, &b, lenient) == nil {
		e.fill(b)
	}
	e.CorrelationID = cmp.Or(e.CorrelationID, plainID(header.Get("X-HubSpot-Correlation-Id")))
	e.Kind = kindOfStatus(status)
	if b.ErrorType == "RATE_LIMIT" || b.Category == "RATE_LIMITS" {
		e.Kind = KindRateLimited // one client saw it under status 500
	}
	switch e.Kind {
	case KindRateLimited:
		if e.Policy == "DAILY" {
			e.Kind = KindDailyLimited // until midnight: the interval says nothing about it
			break
		}
		e.RetryAfter = cmp.Or(e.RetryAfter, intervalOf(header))
	case KindLocked:
		e.RetryAfter = max(e.RetryAfter, lockedFloor)
	default:
	}
	e.finish()
	return e
}

// fill takes what is safe to keep out of a body.
func (e *Error) fill(b errorBody) {
	inner := b.inner()
	messages := []string{string(b.Message)}
	for _, i := range inner {
		messages = append(messages, string(i.Message))
	}
	e.Category, e.Policy = plainWord(string(b.Category)), plainWord(string(b.PolicyName))
	e.CorrelationID = plainID(string(b.CorrelationID))
	e.Code = codeOf(b, inner, messages)
	e.Property = firstMatch(propertyName, messages)
	e.ExistingID = firstMatch(existingID, messages)
	e.TraceIDs = plainIDs(b.Context.values("objectWriteTraceId"))
	e.IDs = plainIDs(b.Context.values("ids", "id"))
}

// codeOf finds the most specific stable code of an error.
func codeOf(b errorBody, inner []errorBody, messages []string) string {
	for _, i := range inner {
		if code := plainWord(string(i.Code)); code != "" {
			return code
		}
	}
	sub := string(b.SubCategory)
	return cmp.Or(
		firstMatch(propertyCode, messages),
		firstMatch(namedCode, messages),
		plainWord(string(b.Code)),
		plainWord(sub[strings.LastIndexByte(sub, '.')+1:]),
	)
}

// finish makes the stable code and the summary of what is known.
func (e *Error) finish() {
	detail := strings.ToLower(cmp.Or(e.Code, e.Policy, e.Category))
	e.Code = "hubspot_" + strconv.Itoa(e.Status)
	e.Summary = "HubSpot answered " + strconv.Itoa(e.Status)
	if e.Category != "" {
		e.Summary += ", category " + e.Category
	}
	if detail != "" {
		e.Code += "_" + detail
		e.Summary += ", " + detail
	}
	if e.Property != "" {
		e.Summary += ", property " + e.Property
	}
}

// inputError classifies one input's error inside a batch answer. Only what says that
// the input is to blame is held against it.
func (c *Client) inputError(a answer, b errorBody) *Error {
	e := &Error{Operation: a.operation, Portal: c.cfg.Portal}
	e.fill(b)
	e.CorrelationID = cmp.Or(e.CorrelationID, a.correlation)
	category := string(b.Category)
	switch {
	case category == "OBJECT_NOT_FOUND":
		e.Kind, e.Status = KindNotFound, http.StatusNotFound
	case category == "CONFLICT", category == "OBJECT_ALREADY_EXISTS", e.ExistingID != "":
		e.Kind, e.Status = KindConflict, http.StatusConflict
	case category == "RATE_LIMITS", b.ErrorType == "RATE_LIMIT":
		e.Kind, e.Status = KindRateLimited, http.StatusTooManyRequests
	case category == "MISSING_SCOPES", category == "FORBIDDEN":
		e.Kind, e.Status = KindForbidden, http.StatusForbidden
	case category == "INTERNAL_ERROR", category == "SERVER_ERROR", category == "SERVICE_UNAVAILABLE":
		e.Kind, e.Status = KindUnavailable, http.StatusInternalServerError
	case category == "VALIDATION_ERROR", e.Code != "", strings.HasPrefix(category, "INVALID_"), strings.HasPrefix(category, "MISSING_"):
		e.Kind, e.Status = KindInvalid, http.StatusBadRequest
	default:
		e.Kind, e.Status = KindUnknown, a.status
	}
	e.finish()
	return e
}

// unconfirmed is the error of an input that an answer names neither as done nor as
// refused, or as something else than was asked: only a positive confirmation is
// success.
func (c *Client) unconfirmed(a answer, code, summary string) *Error {
	return &Error{Kind: KindUnknown, Operation: a.operation, Portal: c.cfg.Portal, Status: a.status, CorrelationID: a.correlation,
		Code: "hubspot_" + code, Summary: summary}
}

const codeUnnamed = "unconfirmed"

// Unnamed reports whether an answer named this input neither as done nor as refused.
func (e *Error) Unnamed() bool { return e.Code == "hubspot_"+codeUnnamed }

func (c *Client) unnamed(a answer) *Error {
	return c.unconfirmed(a, codeUnnamed, "the answer names this input neither as done nor as refused")
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
	case status == statusMigrating:
		return KindMigrating
	case status >= 500, status < 400, status == http.StatusRequestTimeout:
		return KindUnavailable // a redirect blames no input: a wrong base URL, or a door closed for a while
	default:
		return KindInvalid
	}
}
