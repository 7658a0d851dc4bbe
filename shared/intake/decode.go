package intake

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// fieldError names one thing that is wrong with a request, for the caller only:
// an unknown member's name is the caller's text and never goes into a log.
type fieldError struct {
	Field   string `json:"field"`             // consent.legalBasis, Idempotency-Key, body
	Pointer string `json:"pointer,omitempty"` // RFC 6901, for members of the body
	Code    string `json:"code"`              // stable
	Detail  string `json:"detail"`
}

// Limits of what one answer repeats to the caller.
const (
	maxFieldErrors = 100
	maxShownName   = 100 // characters of an unknown member's name
)

// text is a member of type string.
type text struct {
	value   string
	present bool
	refused bool // an error about it is already on the list
}

// body is the request body as it came, before any of it was judged.
type body struct {
	contactKey, email, productID, desiredState, occurredAt text
	// Members of consent.
	legalBasis, explanation, source, wordingVersion text
}

// members names what a body may hold: *text, or for an object a map of such.
type members map[string]any

func decisionMembers(b *body) members {
	all := wideMembers(b)
	all["productId"], all["desiredState"] = &b.productID, &b.desiredState
	return all
}

func wideMembers(b *body) members {
	consent := map[string]any{
		"legalBasis": &b.legalBasis, "explanation": &b.explanation,
		"source": &b.source, "wordingVersion": &b.wordingVersion,
	}
	return members{"contactKey": &b.contactKey, "email": &b.email, "occurredAt": &b.occurredAt, "consent": consent}
}

func addressMembers(b *body) members { return members{"email": &b.email} }

// decodeBody reads one JSON object with exactly the known members, each at most
// once and of its type, and lists everything that is not so. encoding/json would
// take {"desiredState":"unsubscribed","DesiredState":"subscribed"} as subscribed.
func decodeBody(raw []byte, known func(*body) members) (body, []fieldError) {
	var b body
	if problem := precheck(raw); problem != nil {
		return b, []fieldError{*problem}
	}
	problems := decodeMembers(raw, known(&b))
	return b, problems
}

// decodeMembers reads one object that passed precheck into its members.
func decodeMembers(raw []byte, known members) []fieldError {
	r := reader{decoder: jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))}
	if err := r.document(known); err != nil {
		return []fieldError{syntaxError(err)}
	}
	return r.errors
}

func precheck(raw []byte) *fieldError {
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		return &fieldError{Field: "body", Code: "required", Detail: "is empty; a JSON object is needed"}
	case bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")):
		return &fieldError{Field: "body", Code: "byte_order_mark", Detail: "begins with a byte order mark; JSON has none"}
	case !utf8.Valid(raw):
		return &fieldError{Field: "body", Code: "invalid_unicode", Detail: "is not valid UTF-8"}
	}
	return nil
}

// syntaxError says where the JSON breaks off, and not what stands there.
func syntaxError(err error) fieldError {
	detail := "is not a valid JSON text"
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		detail += ", from byte " + strconv.FormatInt(syntactic.ByteOffset, 10) + " on"
	}
	return fieldError{Field: "body", Code: "invalid_json", Detail: detail}
}

// errNotOneObject is a document that is JSON but not one object.
var errNotOneObject = errors.New("not one JSON object")

// reader walks over the tokens of one document and collects what is wrong.
type reader struct {
	decoder *jsontext.Decoder
	errors  []fieldError
}

func (r *reader) document(members map[string]any) error {
	if r.decoder.PeekKind() != '{' {
		if err := r.decoder.SkipValue(); err != nil {
			return err
		}
		r.refuse("", "type", "must be a JSON object")
		return r.end()
	}
	if err := r.object("", members); err != nil {
		return err
	}
	return r.end()
}

// end makes sure that nothing follows the first value.
func (r *reader) end() error {
	_, err := r.decoder.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return errNotOneObject
	}
	return err
}

// object reads an object whose members are *text or, for an object, a map of
// such. A member that is refused is skipped, so that the others are judged too.
func (r *reader) object(at string, members map[string]any) error {
	if _, err := r.decoder.ReadToken(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for r.decoder.PeekKind() != '}' {
		token, err := r.decoder.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		pointer := at + "/" + escapePointer(name)
		known := members[name]
		switch {
		case known == nil:
			r.refuse(pointer, "unknown_member", unknownDetail(name, members))
			err = r.decoder.SkipValue()
		case seen[name]:
			r.refuse(pointer, "duplicate_member", "stands more than once")
			err = r.decoder.SkipValue()
		default:
			seen[name] = true
			err = r.member(pointer, known)
		}
		if err != nil {
			return err
		}
	}
	_, err := r.decoder.ReadToken()
	return err
}

func (r *reader) member(pointer string, known any) error {
	kind := r.decoder.PeekKind()
	switch known := known.(type) {
	case *text:
		if kind != '"' {
			known.refused = true
			r.refuse(pointer, "type", "must be a string"+nullHint(kind))
			return r.decoder.SkipValue()
		}
		token, err := r.decoder.ReadToken()
		if err != nil {
			return err
		}
		known.value, known.present = token.String(), true
		return nil
	case map[string]any:
		if kind != '{' {
			r.refuse(pointer, "type", "must be an object"+nullHint(kind))
			return r.decoder.SkipValue()
		}
		return r.object(pointer, known)
	}
	return r.decoder.SkipValue()
}

func nullHint(kind jsontext.Kind) string {
	if kind == 'n' {
		return "; leave the member out rather than sending null"
	}
	return ""
}

func (r *reader) refuse(pointer, code, detail string) {
	r.errors = append(r.errors, bodyError(pointer, code, detail))
}

// bodyError is a fieldError about the member at pointer.
func bodyError(pointer, code, detail string) fieldError {
	if pointer == "" {
		return fieldError{Field: "body", Code: code, Detail: detail}
	}
	field := strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
	return fieldError{Field: field, Pointer: pointer, Code: code, Detail: detail}
}

// unknownDetail helps with the usual mistake, a name in another case.
func unknownDetail(name string, members map[string]any) string {
	for known := range members {
		if strings.EqualFold(known, name) {
			return "is not a known member; names are exact: " + known
		}
	}
	return "is not a known member"
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func escapePointer(name string) string {
	if runes := []rune(name); len(runes) > maxShownName {
		name = string(runes[:maxShownName]) + "…"
	}
	return pointerEscaper.Replace(name)
}
