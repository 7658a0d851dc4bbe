package hubspot

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// ContactKeyProperty is the unique property that holds our contact key. Partial
// upserts are not supported by address.
const ContactKeyProperty = "external_contact_id"

const (
	emailProperty            = "email"
	additionalEmailsProperty = "hs_additional_emails"
	recordIDProperty         = "hs_object_id"
)

// ContactWrite creates or updates a contact by our key.
type ContactWrite struct {
	ExternalID string
	Email      string // given to a new contact; never write one that HubSpot had before
	Properties map[string]string
	TraceID    string // unique in the batch: without it one bad row refuses all
}

// ContactUpdate updates a contact that exists.
type ContactUpdate struct {
	ID         string
	IDProperty string // empty: HubSpot's record id. Batches refuse email
	Properties map[string]string
	TraceID    string // unique in the batch: without it one bad row refuses all
}

// ContactResult is the answer to one write. Err is nil exactly if it is confirmed.
type ContactResult struct {
	Confirmed     bool
	RecordID      string // may change when HubSpot merges contacts
	New           bool
	UpdatedAt     time.Time // by HubSpot's clock; zero: not stated
	Err           *Error
	CorrelationID string
}

// contactInput is a write on the wire.
type contactInput struct {
	ID         string            `json:"id"`
	IDProperty string            `json:"idProperty,omitempty"`
	TraceID    string            `json:"objectWriteTraceId,omitempty"`
	Properties map[string]string `json:"properties"`
}

// contactObject is a record on the wire.
type contactObject struct {
	ID         flexText            `json:"id"`
	New        bool                `json:"new"`
	TraceID    flexText            `json:"objectWriteTraceId"`
	Properties map[string]flexText `json:"properties"`
	UpdatedAt  flexTime            `json:"updatedAt"`
}

func (o contactObject) properties() map[string]string {
	properties := make(map[string]string, len(o.Properties))
	for name, value := range o.Properties {
		properties[name] = string(value)
	}
	return properties
}

// UpsertContacts creates or updates up to 100 contacts by our key in one call. Results
// are in the order of writes. KindConflict with ExistingID: the address belongs to that
// record already; adopt it.
func (c *Client) UpsertContacts(ctx context.Context, writes []ContactWrite) ([]ContactResult, error) {
	inputs := make([]contactInput, len(writes))
	for i, w := range writes {
		properties := map[string]string{}
		maps.Copy(properties, w.Properties)
		properties[ContactKeyProperty] = w.ExternalID
		if w.Email != "" {
			properties[emailProperty] = w.Email
		}
		inputs[i] = contactInput{w.ExternalID, ContactKeyProperty, w.TraceID, properties}
	}
	return c.writeContacts(ctx, "upsert contacts", "/batch/upsert", inputs)
}

// UpdateContacts updates up to 100 contacts in one call. Results are in the order of
// updates. KindNotFound: it does not exist.
func (c *Client) UpdateContacts(ctx context.Context, updates []ContactUpdate) ([]ContactResult, error) {
	inputs := make([]contactInput, len(updates))
	for i, u := range updates {
		if u.IDProperty == emailProperty {
			return nil, refuse("by_email", "HubSpot updates no batch by address")
		}
		inputs[i] = u.input()
	}
	return c.writeContacts(ctx, "update contacts", "/batch/update", inputs)
}

func (u ContactUpdate) input() contactInput {
	properties := u.Properties
	if properties == nil {
		properties = map[string]string{}
	}
	return contactInput{u.ID, u.IDProperty, u.TraceID, properties}
}

func (c *Client) writeContacts(ctx context.Context, operation, path string, inputs []contactInput) ([]ContactResult, error) {
	type id struct{ property, value string }
	var ids []id
	var traces []string
	for _, input := range inputs {
		if input.ID == "" {
			return nil, refuse("empty", "an input without id")
		}
		ids = append(ids, id{input.IDProperty, input.ID})
		if input.TraceID != "" {
			traces = append(traces, input.TraceID)
		}
	}
	if he := checkBatch(ids, "id"); he != nil {
		return nil, he
	}
	if len(traces) > 0 {
		if he := checkBatch(traces, "trace id"); he != nil {
			return nil, he
		}
	}
	a, err := c.do(ctx, call{operation, http.MethodPost, c.contacts + path, nil, inputsOf(inputs)})
	if err != nil {
		return nil, err
	}
	return c.judgeContacts(a, inputs)
}

// judgeContacts finds each input's own answer, by trace id, else by the id that it was
// sent with.
func (c *Client) judgeContacts(a answer, inputs []contactInput) ([]ContactResult, error) {
	e, err := decode[envelope[contactObject]](c, a)
	if err != nil {
		return nil, err
	}
	results := make([]ContactResult, len(inputs))
	for i, input := range inputs {
		only := len(inputs) == 1
		objects := slices.DeleteFunc(slices.Clone(e.Results), func(o contactObject) bool { return !o.answers(input, only) })
		refused := slices.IndexFunc(e.Errors, func(b errorBody) bool { return only || b.namesInput(input) })
		switch {
		case refused >= 0 && len(objects) > 0:
			results[i].Err = c.unconfirmed(a, "contradictory", "the answer names this input as done and as refused")
		case refused >= 0:
			results[i].Err = c.inputError(a, e.Errors[refused])
		case len(objects) != 1 || objects[0].ID == "":
			results[i].Err = c.unnamed(a)
		default:
			results[i] = objects[0].result()
		}
		results[i].CorrelationID = a.correlation
	}
	return results, nil
}

// answers reports whether a result is that of an input. An id other than ours is the
// only input's own all the same: a merge yields a new one.
func (o contactObject) answers(input contactInput, only bool) bool {
	switch {
	case o.TraceID != "" && input.TraceID != "":
		return string(o.TraceID) == input.TraceID
	case input.IDProperty == "" || input.IDProperty == recordIDProperty:
		return only || string(o.ID) == input.ID
	default:
		return only || string(o.Properties[input.IDProperty]) == input.ID
	}
}

// namesInput reports whether an error is about an input.
func (b errorBody) namesInput(input contactInput) bool {
	if traces := b.Context.values("objectWriteTraceId"); len(traces) > 0 && input.TraceID != "" {
		return slices.Contains(traces, input.TraceID)
	}
	return slices.Contains(b.Context.values("ids", "id"), input.ID)
}

func (o contactObject) result() ContactResult {
	return ContactResult{Confirmed: true, RecordID: string(o.ID), New: o.New, UpdatedAt: o.UpdatedAt.Time}
}

// UpdateContact updates one contact that exists; here IDProperty may be email.
// KindNotFound: it does not exist.
func (c *Client) UpdateContact(ctx context.Context, u ContactUpdate) (ContactResult, error) {
	if u.ID == "" {
		return ContactResult{}, refuse("empty", "an update without id")
	}
	input := u.input()
	a, err := c.do(ctx, call{"update contact", http.MethodPatch, c.contacts + "/" + pathSegment(u.ID), idQuery(u.IDProperty),
		struct {
			Properties map[string]string `json:"properties"`
		}{input.Properties}})
	if err != nil {
		return ContactResult{}, err
	}
	o, err := decode[contactObject](c, a)
	if err != nil {
		return ContactResult{}, err
	}
	result := o.result()
	if o.ID == "" {
		result = ContactResult{Err: c.unnamed(a)}
	}
	result.CorrelationID = a.correlation
	return result, nil
}

func idQuery(idProperty string) url.Values {
	if idProperty == "" {
		return nil
	}
	return url.Values{"idProperty": {idProperty}}
}
