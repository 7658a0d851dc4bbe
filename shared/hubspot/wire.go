package hubspot

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// lenient: members that HubSpot adds are no error, and neither are twins of them. The
// types below go further: a member of an unexpected shape must not make the answers of
// 99 other inputs unreadable.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// envelope is the answer of batches, and of single preference calls too.
type envelope[T any] struct {
	Status    string        `json:"status"`
	Results   []T           `json:"results"`
	NumErrors flexInt       `json:"numErrors"`
	Errors    flexErrorList `json:"errors"`
}

// complete reports whether an answer claims to have treated every input.
func (e envelope[T]) complete() bool { return e.Status == "COMPLETE" }

// lossless reports whether it also names every error that it counts.
func (e envelope[T]) lossless() bool { return e.complete() && int(e.NumErrors) <= len(e.Errors) }

// inputsOf wraps a batch's inputs.
func inputsOf[T any](inputs []T) any {
	return struct {
		Inputs []T `json:"inputs"`
	}{inputs}
}

// decode reads a 2xx body. One that is not the JSON that was expected says nothing
// about what took effect.
func decode[T any](c *Client, a answer) (T, error) {
	var value T
	if err := json.Unmarshal(a.body, &value, lenient); err != nil {
		return value, &Error{Kind: KindUnknown, Status: a.status, Code: "hubspot_answer_unreadable", CorrelationID: a.correlation,
			Operation: a.operation, Portal: c.cfg.Portal, Summary: "the answer is not the JSON that was expected"}
	}
	return value, nil
}

// flexInt reads an id that some answers write as a string; null is 0.
type flexInt int64

// UnmarshalJSON accepts 7, "7", "" and null.
func (f *flexInt) UnmarshalJSON(text []byte) error {
	digits := strings.Trim(string(text), `"`)
	if digits == "" || digits == "null" {
		*f = 0
		return nil
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("id is not a whole number: %w", err)
	}
	*f = flexInt(n)
	return nil
}

// flexText reads a text that some answers write as a number or a boolean; null, and
// what is neither, is empty.
type flexText string

// UnmarshalJSON accepts any JSON value.
func (f *flexText) UnmarshalJSON(text []byte) error {
	*f = ""
	switch jsontext.Value(text).Kind() {
	case '"':
		var s string
		if err := json.Unmarshal(text, &s, lenient); err != nil {
			return fmt.Errorf("text: %w", err)
		}
		*f = flexText(s)
	case '0', 't', 'f':
		*f = flexText(text)
	default:
	}
	return nil
}

func texts(ids []flexText) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// flexTime reads an ISO time, or milliseconds since 1970; anything else is no time.
type flexTime struct{ time.Time }

// UnmarshalJSON accepts any JSON value.
func (f *flexTime) UnmarshalJSON(text []byte) error {
	f.Time = time.Time{}
	plain := strings.Trim(string(text), `"`)
	if at, err := time.Parse(time.RFC3339Nano, plain); err == nil {
		f.Time = at.UTC()
	} else if ms, err := strconv.ParseInt(plain, 10, 64); err == nil && ms > 0 {
		f.Time = time.UnixMilli(ms).UTC()
	}
	return nil
}

// flexContext reads the context of an error: lists of texts, which some answers write
// as one text.
type flexContext map[string][]string

// UnmarshalJSON accepts any JSON value and keeps what is a text, or a list of texts.
func (f *flexContext) UnmarshalJSON(text []byte) error {
	*f = nil
	var members map[string]jsontext.Value
	if json.Unmarshal(text, &members, lenient) != nil {
		return nil //nolint:nilerr // what is of another shape says nothing, and that is no error
	}
	*f = flexContext{}
	for name, member := range members {
		if member.Kind() != '[' {
			member = jsontext.Value("[" + string(member) + "]")
		}
		var list []flexText
		if json.Unmarshal(member, &list, lenient) == nil {
			(*f)[name] = texts(list)
		}
	}
	return nil
}

// values lists what a context says under any of these names.
func (f flexContext) values(names ...string) []string {
	var values []string
	for _, name := range names {
		values = append(values, f[name]...)
	}
	return values
}

// flexErrorList reads the errors of an answer and leaves out what is none.
type flexErrorList []errorBody

// UnmarshalJSON accepts any JSON value.
func (f *flexErrorList) UnmarshalJSON(text []byte) error {
	*f = nil
	var members []jsontext.Value
	if json.Unmarshal(text, &members, lenient) != nil {
		return nil //nolint:nilerr // what is of another shape says nothing, and that is no error
	}
	for _, member := range members {
		var e errorBody
		if member.Kind() == '{' && json.Unmarshal(member, &e, lenient) == nil {
			*f = append(*f, e)
		}
	}
	return nil
}
