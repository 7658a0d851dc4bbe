package intake

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/outbox"
	"hubsync/shared/routing"
)

// Limits in characters. A key of 255 characters has at most 1,020 bytes, so an
// index row of two of them stays below PostgreSQL's limit of about 2,700.
const (
	maxKey  = 255
	maxText = 2000
)

// consent is the proof that a caller sends along; it is stored as given.
type consent struct {
	LegalBasis     string `json:"legalBasis,omitempty"`
	Explanation    string `json:"explanation,omitempty"`
	Source         string `json:"source,omitempty"`
	WordingVersion string `json:"wordingVersion,omitempty"`
}

// decision is a request that passed every check.
type decision struct {
	brandID, productID string
	contactKey         string
	address            Address
	desiredState       outbox.DesiredState
	occurredAt         *time.Time // as claimed, in UTC
	consent            consent
}

// judge checks every member and lists everything that is wrong. Errors of the
// decoder come first; a member that they name is not judged again.
func judge(brandID string, b body, problems []fieldError) (decision, []fieldError) {
	j := judgement{problems: problems}
	d := decision{
		brandID:    brandID,
		contactKey: j.key("contactKey", b.contactKey),
		productID:  j.key("productId", b.productID),
	}
	d.desiredState = j.desiredState(b.desiredState)
	d.address = j.address(b.email, d.desiredState == outbox.Unsubscribed)
	d.occurredAt = j.moment("occurredAt", b.occurredAt)
	d.consent = consent{
		LegalBasis:     j.legalBasis(b.legalBasis),
		Explanation:    j.prose("consent/explanation", b.explanation),
		Source:         j.prose("consent/source", b.source),
		WordingVersion: j.prose("consent/wordingVersion", b.wordingVersion),
	}
	return d, j.problems
}

// judgement collects what is wrong with the members.
type judgement struct{ problems []fieldError }

func (j *judgement) refuse(member, code, detail string) {
	j.problems = append(j.problems, bodyError("/"+member, code, detail))
}

// required reports whether a member is there to be judged.
func (j *judgement) required(member string, t text) bool {
	if !t.present && !t.refused {
		j.refuse(member, "required", "is missing")
	}
	return t.present
}

func (j *judgement) key(member string, t text) string {
	if !j.required(member, t) {
		return ""
	}
	switch {
	case strings.TrimSpace(t.value) == "":
		j.refuse(member, "required", "is empty")
	case utf8.RuneCountInString(t.value) > maxKey:
		j.refuse(member, "too_long", "is longer than 255 characters")
	case strings.ContainsFunc(t.value, unicode.IsControl):
		j.refuse(member, "control_character", "holds a control character")
	case strings.TrimSpace(t.value) != t.value:
		// HubSpot trims property values: the key would not be found again.
		j.refuse(member, "surrounding_space", "begins or ends with a space")
	}
	return t.value
}

func (j *judgement) desiredState(t text) outbox.DesiredState {
	if !j.required("desiredState", t) {
		return ""
	}
	state := outbox.DesiredState(t.value)
	if state != outbox.Subscribed && state != outbox.Unsubscribed {
		j.refuse("desiredState", "not_allowed", "must be subscribed or unsubscribed")
	}
	return state
}

func (j *judgement) address(t text, forOptOut bool) Address {
	if !j.required("email", t) {
		return Address{}
	}
	address, err := ParseAddress(t.value, forOptOut)
	var problem *AddressError
	if errors.As(err, &problem) {
		j.refuse("email", problem.Code, problem.Detail)
	}
	return address
}

func (j *judgement) legalBasis(t text) string {
	if t.present && !routing.KnownLegalBasis(t.value) {
		j.refuse("consent/legalBasis", "not_allowed", "is not a legal basis that HubSpot knows")
	}
	return t.value
}

// prose checks a text that people wrote: it may have lines and tabs.
func (j *judgement) prose(member string, t text) string {
	switch {
	case utf8.RuneCountInString(t.value) > maxText:
		j.refuse(member, "too_long", "is longer than 2,000 characters")
	case strings.ContainsFunc(t.value, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t'
	}):
		j.refuse(member, "control_character", "holds a control character")
	}
	return t.value
}

// timestamp is RFC 3339 with a zone, up to nanoseconds. time.Parse alone would
// also take a comma, one-digit hours and zones like +24:00.
var timestamp = regexp.MustCompile(
	`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// moment reads a point in time between 1970 and 9999. The future is allowed: a
// caller's clock may be ahead, and the accepted time is the upper bound anyway.
func (j *judgement) moment(member string, t text) *time.Time {
	if !t.present {
		return nil
	}
	value := strings.ToUpper(t.value) // RFC 3339 §5.6: t and z may be lower case
	if !timestamp.MatchString(value) {
		j.refuse(member, "invalid_time", "must be an RFC 3339 time with a zone, like 2026-02-01T09:30:00Z")
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		j.refuse(member, "invalid_time", "is not a date and time of the calendar")
		return nil
	}
	at = at.UTC()
	if at.Year() < 1970 || at.Year() > 9999 {
		j.refuse(member, "out_of_range", "must be between the years 1970 and 9999")
		return nil
	}
	return &at
}

// consentJSON is the consent as it is stored.
func (d decision) consentJSON() (string, error) {
	content, err := json.Marshal(d.consent)
	return string(content), err
}

// hashVersion is the version of the canonical form below; it stands in the stored
// hash, so that a later form can still tell what an earlier request said.
const hashVersion = "v1"

// hash is the same for requests that mean the same: the order of members, white
// space, escapes, the case of the address, the spelling of its host and the zone
// of occurredAt do not count. Everything else does, the contact key included.
func (d decision) hash() string {
	occurredAt := ""
	if d.occurredAt != nil {
		occurredAt = d.occurredAt.Format(time.RFC3339Nano)
	}
	var form strings.Builder
	for _, part := range []string{
		"hubsync request " + hashVersion,
		d.brandID, d.productID, d.contactKey, d.address.Key, string(d.desiredState), occurredAt,
		d.consent.LegalBasis, d.consent.Explanation, d.consent.Source, d.consent.WordingVersion,
	} {
		// Length before text: no two requests share one form.
		form.WriteString(strconv.Itoa(len(part)))
		form.WriteByte(':')
		form.WriteString(part)
	}
	sum := sha256.Sum256([]byte(form.String()))
	return hashVersion + ":" + hex.EncodeToString(sum[:])
}
