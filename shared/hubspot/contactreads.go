package hubspot

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// ContactRead is what a read found. Err is set where the answer does not say.
type ContactRead struct {
	Found      bool
	RecordID   string
	Properties map[string]string
	Err        *Error
}

// alwaysRead are the properties that every read asks for: by them its answer is
// matched with what was asked.
var alwaysRead = []string{emailProperty, additionalEmailsProperty, recordIDProperty}

// readID is one input of a batch read.
type readID struct {
	ID string `json:"id"`
}

type readRequest struct {
	Inputs     []readID `json:"inputs"`
	Properties []string `json:"properties"`
	IDProperty string   `json:"idProperty,omitempty"`
}

// readKey is the form under which an id stands in the answer: addresses are compared
// in lower case, every other id as it is.
func readKey(id, idProperty string) string {
	if idProperty == emailProperty {
		return foldEmail(id)
	}
	return id
}

// ReadContacts reads up to 100 contacts by a unique property (or, with idProperty
// empty, by record id) in one call. The result has an entry for every id; addresses
// stand there in lower case.
func (c *Client) ReadContacts(ctx context.Context, ids []string, idProperty string, properties []string) (map[string]ContactRead, error) {
	request := readRequest{Properties: propertiesToRead(idProperty, properties), IDProperty: idProperty}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = readKey(id, idProperty)
		request.Inputs = append(request.Inputs, readID{id})
	}
	if he := checkBatch(keys, "id"); he != nil {
		return nil, he
	}
	a, err := c.do(ctx, call{"read contacts", http.MethodPost, c.contacts + "/batch/read", nil, request})
	if err != nil {
		return nil, err
	}
	e, err := decode[envelope[contactObject]](c, a)
	if err != nil {
		return nil, err
	}
	found := map[string]ContactRead{}
	for _, o := range e.Results {
		names := o.names(idProperty)
		if len(keys) == 1 && len(e.Results) == 1 {
			names = keys // a merge yields another record id, and it is the only one
		}
		for _, name := range names {
			if held := found[name]; held.Found && held.RecordID != string(o.ID) {
				found[name] = ContactRead{Err: c.unconfirmed(a, "contradictory", "the answer shows two records for one id")}
				continue
			}
			if o.ID != "" {
				found[name] = ContactRead{Found: true, RecordID: string(o.ID), Properties: o.properties()}
			}
		}
	}
	results := make(map[string]ContactRead, len(keys))
	for _, key := range keys {
		read, named := found[key]
		if !named {
			read = c.missingRead(a, e.Errors, key, idProperty)
		}
		results[key] = read
	}
	return results, nil
}

func propertiesToRead(idProperty string, properties []string) []string {
	names := slices.Concat(alwaysRead, properties)
	if idProperty != "" {
		names = append(names, idProperty)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// names lists the ids by which a record could have been asked for: secondary addresses
// are identifiers too.
func (o contactObject) names(idProperty string) []string {
	switch idProperty {
	case "", recordIDProperty:
		return []string{string(o.ID)}
	case emailProperty:
		names := []string{foldEmail(string(o.Properties[emailProperty]))}
		for secondary := range strings.SplitSeq(string(o.Properties[additionalEmailsProperty]), ";") {
			names = append(names, foldEmail(strings.TrimSpace(secondary)))
		}
		slices.Sort(names)
		return slices.Compact(names)
	default:
		return []string{string(o.Properties[idProperty])}
	}
}

// missingRead says why an id was not found: HubSpot says that there is none, or it
// says nothing.
func (c *Client) missingRead(a answer, failed []errorBody, key, idProperty string) ContactRead {
	for _, e := range failed {
		names := e.Context.values("ids", "id")
		if !slices.ContainsFunc(names, func(id string) bool { return readKey(id, idProperty) == key }) {
			continue
		}
		if e.Category == "OBJECT_NOT_FOUND" {
			return ContactRead{}
		}
		return ContactRead{Err: c.inputError(a, e)}
	}
	return ContactRead{Err: c.unnamed(a)}
}

// GetContact reads one contact by a unique property, or (empty) by record id. A 404
// counts as "there is none" only if HubSpot says so itself: a wrong path is one too.
func (c *Client) GetContact(ctx context.Context, id, idProperty string, properties []string) (ContactRead, error) {
	if id == "" {
		return ContactRead{}, refuse("empty", "a read without id")
	}
	query := url.Values{"properties": {strings.Join(propertiesToRead(idProperty, properties), ",")}}
	if idProperty != "" {
		query.Set("idProperty", idProperty)
	}
	a, err := c.do(ctx, call{"get contact", http.MethodGet, c.contacts + "/" + pathSegment(id), query, nil})
	var he *Error
	if errors.As(err, &he) && he.Kind == KindNotFound && he.Category == "OBJECT_NOT_FOUND" {
		return ContactRead{}, nil
	}
	if err != nil {
		return ContactRead{}, err
	}
	o, err := decode[contactObject](c, a)
	if err != nil {
		return ContactRead{}, err
	}
	if o.ID == "" {
		return ContactRead{Err: c.unnamed(a)}, nil
	}
	return ContactRead{Found: true, RecordID: string(o.ID), Properties: o.properties()}, nil
}
