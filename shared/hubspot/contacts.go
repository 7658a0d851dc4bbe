package hubspot

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ContactKeyProperty is the unique property that holds our contact key. Partial
// upserts are not supported by address.
const ContactKeyProperty = "external_contact_id"

// recordIDProperty is how a read names HubSpot's own id.
const recordIDProperty = "hs_object_id"

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
	IDProperty string // empty: HubSpot's record id. Never email: batch updates refuse it
	Properties map[string]string
	TraceID    string
}

// ContactResult is the answer to one write. Err is nil exactly if it is confirmed.
type ContactResult struct {
	Confirmed     bool
	RecordID      string
	New           bool
	UpdatedAt     time.Time
	Err           *Error
	CorrelationID string
}

type contactInput struct {
	ID         string            `json:"id"`
	IDProperty string            `json:"idProperty,omitempty"`
	TraceID    string            `json:"objectWriteTraceId,omitempty"`
	Properties map[string]string `json:"properties"`
}

// contactObject is a record on the wire.
type contactObject struct {
	ID         string            `json:"id"`
	New        bool              `json:"new"`
	TraceID    string            `json:"objectWriteTraceId"`
	Properties map[string]string `json:"properties"`
	CreatedAt  string            `json:"createdAt"`
	UpdatedAt  string            `json:"updatedAt"`
}

// UpsertContacts creates or updates up to 100 contacts by our key in one call. Results
// are in the order of writes. KindConflict with ExistingID: the address belongs to that
// record already; adopt it.
func (c *Client) UpsertContacts(ctx context.Context, writes []ContactWrite) ([]ContactResult, error) {
	inputs := make([]contactInput, len(writes))
	for i, w := range writes {
		properties := maps.Clone(w.Properties)
		if properties == nil {
			properties = map[string]string{}
		}
		properties[ContactKeyProperty] = w.ExternalID
		if w.Email != "" {
			properties["email"] = w.Email
		}
		inputs[i] = contactInput{w.ExternalID, ContactKeyProperty, w.TraceID, properties}
	}
	return c.writeContacts(ctx, "/batch/upsert", inputs)
}

// UpdateContacts updates up to 100 contacts in one call. KindNotFound: it does not exist.
func (c *Client) UpdateContacts(ctx context.Context, updates []ContactUpdate) ([]ContactResult, error) {
	inputs := make([]contactInput, len(updates))
	for i, u := range updates {
		inputs[i] = contactInput{u.ID, u.IDProperty, u.TraceID, u.Properties}
	}
	return c.writeContacts(ctx, "/batch/update", inputs)
}

func (c *Client) writeContacts(ctx context.Context, path string, inputs []contactInput) ([]ContactResult, error) {
	seen := map[string]bool{}
	for _, input := range inputs {
		if seen["id "+input.ID] || (input.TraceID != "" && seen["trace "+input.TraceID]) {
			return nil, errDuplicate("id or trace id")
		}
		seen["id "+input.ID], seen["trace "+input.TraceID] = true, true
	}
	a, err := c.do(ctx, http.MethodPost, c.contacts+path, nil, inputsOf(inputs))
	if err != nil {
		return nil, err
	}
	return judgeContacts(a, inputs)
}

// judgeContacts finds each input's own answer, by trace id, else by the id that it was
// sent with.
func judgeContacts(a answer, inputs []contactInput) ([]ContactResult, error) {
	e, err := decode[envelope[contactObject]](a)
	if err != nil {
		return nil, err
	}
	results := make([]ContactResult, len(inputs))
	for i, input := range inputs {
		results[i].CorrelationID = a.correlation
		if object := findObject(e.Results, input, len(inputs)); object != nil {
			updated, _ := time.Parse(time.RFC3339Nano, object.UpdatedAt) // zero where it is not stated
			results[i].Confirmed, results[i].RecordID, results[i].New, results[i].UpdatedAt = true, object.ID, object.New, updated
			continue
		}
		results[i].Err = unnamed(a.status, a.correlation)
		for _, refused := range e.Errors {
			traces, ids := contextValues(refused, "objectWriteTraceId"), contextValues(refused, "ids", "id")
			named := slices.Contains(traces, input.TraceID) || (len(traces) == 0 && containsFold(ids, input.ID))
			if named || (len(inputs) == 1 && len(e.Errors) == 1) {
				results[i].Err = errorOfInput(a.status, a.correlation, refused)
				break
			}
		}
	}
	return results, nil
}

func findObject(objects []contactObject, input contactInput, inputs int) *contactObject {
	for i, o := range objects {
		switch {
		case o.TraceID != "" && input.TraceID != "":
			if o.TraceID == input.TraceID {
				return &objects[i]
			}
		case input.IDProperty == "" && o.ID == input.ID,
			input.IDProperty != "" && strings.EqualFold(o.Properties[input.IDProperty], input.ID),
			inputs == 1 && len(objects) == 1:
			return &objects[i]
		}
	}
	return nil
}

func containsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, text) })
}

// ContactRead is what a read found. Err is set where the answer does not say.
type ContactRead struct {
	Found      bool
	RecordID   string
	Properties map[string]string
	Err        *Error
}

// ReadContacts reads up to 100 contacts by a unique property (or, with idProperty
// empty, by record id) in one call. The result has an entry for every id, by its
// lower-cased form.
func (c *Client) ReadContacts(ctx context.Context, ids []string, idProperty string, properties []string) (map[string]ContactRead, error) {
	keys, err := distinct(ids)
	if err != nil {
		return nil, err
	}
	type id struct {
		ID string `json:"id"`
	}
	request := struct {
		Inputs     []id     `json:"inputs"`
		Properties []string `json:"properties"`
		IDProperty string   `json:"idProperty,omitempty"`
	}{Properties: append([]string{"email", "hs_additional_emails", recordIDProperty}, properties...), IDProperty: idProperty}
	for _, text := range ids {
		request.Inputs = append(request.Inputs, id{text})
	}
	a, err := c.do(ctx, http.MethodPost, c.contacts+"/batch/read", nil, request)
	if err != nil {
		return nil, err
	}
	e, err := decode[envelope[contactObject]](a)
	if err != nil {
		return nil, err
	}
	results := map[string]ContactRead{}
	for _, o := range e.Results {
		for _, name := range namesOf(o, idProperty) {
			if slices.Contains(keys, name) {
				results[name] = ContactRead{Found: true, RecordID: o.ID, Properties: o.Properties}
			}
		}
	}
	for i, key := range keys {
		if _, found := results[key]; !found {
			results[key] = missingRead(e.Errors, ids[i], a)
		}
	}
	return results, nil
}

// namesOf lists the lower-cased ids by which a record could have been asked for:
// secondary addresses are identifiers too.
func namesOf(o contactObject, idProperty string) []string {
	if idProperty == "" {
		return []string{o.ID}
	}
	names := []string{strings.ToLower(o.Properties[idProperty])}
	if idProperty == "email" {
		for _, secondary := range strings.Split(o.Properties["hs_additional_emails"], ";") {
			names = append(names, strings.ToLower(strings.TrimSpace(secondary)))
		}
	}
	return names
}

func missingRead(errors []errorBody, id string, a answer) ContactRead {
	for _, e := range errors {
		if !containsFold(contextValues(e, "ids", "id"), id) {
			continue
		}
		if e.Category == "OBJECT_NOT_FOUND" {
			return ContactRead{}
		}
		return ContactRead{Err: errorOfInput(a.status, a.correlation, e)}
	}
	return ContactRead{Err: unnamed(a.status, a.correlation)}
}
