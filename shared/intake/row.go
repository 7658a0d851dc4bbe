package intake

import (
	"strings"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
)

// Row is one decision that comes in a file rather than over HTTP. It is judged by the
// very rules of the API; the brand and the key, which the API takes from the path and a
// header, are members of the row.
type Row struct {
	BrandID, IdempotencyKey text
	body                    body
	problems                []fieldError
}

// RowProblem is one thing that is wrong with a row. It never quotes the row.
type RowProblem struct {
	Field  string // contactKey, consent.legalBasis, body
	Code   string // stable
	Detail string
}

// RowMembers are the names under which Set takes a value. They are those of the API; the
// members of consent stand beside the others.
var RowMembers = []string{
	"brandId", "productId", "contactKey", "email", "desiredState", "occurredAt",
	"legalBasis", "explanation", "source", "wordingVersion", "idempotencyKey",
}

// Set gives a member its value; an empty one counts as left out.
func (r *Row) Set(member, value string) {
	if t := r.member(member); t != nil {
		*t = text{value: value, present: value != ""}
	}
}

// Get returns a member's value, "" where it has none.
func (r *Row) Get(member string) string {
	if t := r.member(member); t != nil {
		return t.value
	}
	return ""
}

func (r *Row) member(name string) *text {
	switch name {
	case "brandId":
		return &r.BrandID
	case "idempotencyKey":
		return &r.IdempotencyKey
	case "productId":
		return &r.body.productID
	case "contactKey":
		return &r.body.contactKey
	case "email":
		return &r.body.email
	case "desiredState":
		return &r.body.desiredState
	case "occurredAt":
		return &r.body.occurredAt
	case "legalBasis":
		return &r.body.legalBasis
	case "explanation":
		return &r.body.explanation
	case "source":
		return &r.body.source
	case "wordingVersion":
		return &r.body.wordingVersion
	}
	return nil
}

// DecodeRow reads a row from a JSON object: the API's body, with brandId and
// idempotencyKey beside its members. What is wrong is told by Decision.
func DecodeRow(raw []byte) Row {
	var r Row
	if problem := precheck(raw); problem != nil {
		r.problems = []fieldError{*problem}
		return r
	}
	known := decisionMembers(&r.body)
	known["brandId"], known["idempotencyKey"] = &r.BrandID, &r.IdempotencyKey
	r.problems = decodeMembers(raw, known)
	return r
}

// Refuse adds a problem that the API does not know: a rule of files.
func (r *Row) Refuse(field, code, detail string) {
	r.problems = append(r.problems, fieldError{Field: field, Code: code, Detail: detail})
}

// Decision judges the row. The decision is to be stored only if there is no problem; its
// source is import, its lane the bulk one.
func (r *Row) Decision(newID func() uuid.UUID) (postgres.Decision, []RowProblem) {
	if unreadable(r.problems) {
		return postgres.Decision{}, rowProblems(r.problems)
	}
	brand := judgement{problems: r.problems}
	brandID := brand.key("brandId", r.BrandID)
	key := brand.rowKey(r.IdempotencyKey)
	d, problems := judge(brandID, r.body, brand.problems)
	if len(problems) > 0 {
		return postgres.Decision{}, rowProblems(problems)
	}
	consent, err := d.consentJSON()
	if err != nil {
		return postgres.Decision{}, []RowProblem{{Field: "consent", Code: "invalid", Detail: "cannot be stored"}}
	}
	return postgres.Decision{
		RequestID: newID(), EventID: newID(), BrandID: d.brandID, ProductID: d.productID,
		ContactKey: d.contactKey, Email: d.address.Given, EmailKey: d.address.Key,
		DesiredState: d.desiredState, IdempotencyKey: key, RequestHash: d.hash(),
		Source: "import", OccurredAt: d.occurredAt, Consent: consent, Lane: outbox.LaneBulk,
	}, nil
}

// rowKey checks a key as the header's is checked: printable ASCII, 255 at most.
func (j *judgement) rowKey(t text) string {
	switch {
	case !t.present || t.value == "":
		if !t.refused {
			j.refuse("idempotencyKey", "required", "is missing")
		}
	case len(t.value) > maxKey:
		j.refuse("idempotencyKey", "too_long", "is longer than 255 characters")
	case strings.ContainsFunc(t.value, func(r rune) bool { return r < ' ' || r > '~' }):
		j.refuse("idempotencyKey", "invalid", "must be printable ASCII characters")
	}
	return t.value
}

// rowProblems leaves out the names of unknown members: they are the file's text.
func rowProblems(problems []fieldError) []RowProblem {
	out := make([]RowProblem, 0, len(problems))
	for _, p := range problems {
		if p.Code == "unknown_member" || p.Code == "duplicate_member" {
			p.Field, p.Detail = "body", "holds a member that is not known, or one twice"
		}
		out = append(out, RowProblem{Field: p.Field, Code: p.Code, Detail: p.Detail})
	}
	return out
}
