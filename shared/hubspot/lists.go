package hubspot

import (
	"context"
	"net/http"
	"net/url"
	"slices"
)

// MembershipResult says which records a list gained and lost, and which ids it does
// not know. A member that was added again stands nowhere.
type MembershipResult struct {
	Added, Removed, Missing []string
	CorrelationID           string
}

// AddAndRemoveMembers adds records to a list and removes others, in one call. Adding a
// member again, or removing a stranger, is no error. The list must be MANUAL or
// SNAPSHOT.
func (c *Client) AddAndRemoveMembers(ctx context.Context, listID string, add, remove []string) (MembershipResult, error) {
	if listID == "" || len(add)+len(remove) == 0 {
		return MembershipResult{}, refuse("empty", "a change of a list lacks the list or the records")
	}
	request := struct {
		Add    []string `json:"recordIdsToAdd"`
		Remove []string `json:"recordIdsToRemove"`
	}{slices.Concat([]string{}, add), slices.Concat([]string{}, remove)}
	a, err := c.do(ctx, call{"change list", http.MethodPut, c.lists + "/" + pathSegment(listID) + "/memberships/add-and-remove", nil, request})
	if err != nil {
		return MembershipResult{}, err
	}
	body, err := decode[struct {
		Added    []flexText `json:"recordIdsAdded"`
		AddedToo []flexText `json:"recordsIdsAdded"` // some versions spell it so
		Removed  []flexText `json:"recordIdsRemoved"`
		Missing  []flexText `json:"recordIdsMissing"`
	}](c, a)
	if err != nil {
		return MembershipResult{}, err
	}
	if body.Added == nil && body.AddedToo == nil && body.Removed == nil && body.Missing == nil {
		return MembershipResult{}, c.unnamed(a)
	}
	return MembershipResult{texts(append(body.Added, body.AddedToo...)), texts(body.Removed), texts(body.Missing), a.correlation}, nil
}

// objectTypeContact is HubSpot's id of contacts among its objects.
const objectTypeContact = "0-1"

// ReadMemberships reads the lists that up to 100 contacts are in, in one call. The result
// has an entry for every record that the answer names; one that is in no list may have
// none (POST …/lists/…/records/memberships/batch/read).
func (c *Client) ReadMemberships(ctx context.Context, recordIDs []string) (map[string][]string, error) {
	if he := checkBatch(recordIDs, "record id"); he != nil {
		return nil, he
	}
	type record struct {
		Type string `json:"objectTypeId"`
		ID   string `json:"recordId"`
	}
	inputs := make([]record, len(recordIDs))
	for i, id := range recordIDs {
		inputs[i] = record{objectTypeContact, id}
	}
	a, err := c.do(ctx, call{"read memberships", http.MethodPost, c.lists + "/records/memberships/batch/read", nil, inputsOf(inputs)})
	if err != nil {
		return nil, err
	}
	type membership struct {
		ListID flexText `json:"listId"`
	}
	e, err := decode[envelope[struct {
		RecordID    flexText     `json:"recordId"`
		Memberships []membership `json:"recordListMemberships"`
	}]](c, a)
	if err != nil {
		return nil, err
	}
	if !e.lossless() || len(e.Errors) > 0 {
		return nil, c.unnamed(a)
	}
	lists := map[string][]string{}
	for _, r := range e.Results {
		for _, m := range r.Memberships {
			lists[string(r.RecordID)] = append(lists[string(r.RecordID)], string(m.ListID))
		}
	}
	return lists, nil
}

// List is a list of contacts. Members can be written where ProcessingType is MANUAL or
// SNAPSHOT; ObjectTypeID of contacts is 0-1.
type List struct {
	ID             string
	Name           string
	ObjectTypeID   string
	ProcessingType string
}

type publicList struct {
	ID             flexText `json:"listId"`
	Name           flexText `json:"name"`
	ObjectTypeID   flexText `json:"objectTypeId"`
	ProcessingType flexText `json:"processingType"`
}

func (p publicList) list() List {
	return List{string(p.ID), string(p.Name), string(p.ObjectTypeID), string(p.ProcessingType)}
}

// List reads one list. KindNotFound: there is none.
func (c *Client) List(ctx context.Context, id string) (List, error) {
	if id == "" {
		return List{}, refuse("empty", "a list without id")
	}
	a, err := c.do(ctx, call{"read list", http.MethodGet, c.lists + "/" + pathSegment(id), nil, nil})
	if err != nil {
		return List{}, err
	}
	body, err := decode[struct {
		List publicList `json:"list"`
	}](c, a)
	if err != nil {
		return List{}, err
	}
	if string(body.List.ID) != id {
		return List{}, c.unnamed(a)
	}
	return body.List.list(), nil
}

// Lists reads up to 100 lists by id in one call. A list that does not exist is missing
// from the result.
func (c *Client) Lists(ctx context.Context, ids []string) (map[string]List, error) {
	if he := checkBatch(ids, "list id"); he != nil {
		return nil, he
	}
	a, err := c.do(ctx, call{"read lists", http.MethodGet, c.lists, url.Values{"listIds": ids}, nil})
	if err != nil {
		return nil, err
	}
	body, err := decode[struct {
		Lists *[]publicList `json:"lists"`
	}](c, a)
	if err != nil {
		return nil, err
	}
	if body.Lists == nil {
		return nil, c.unnamed(a)
	}
	lists := map[string]List{}
	for _, p := range *body.Lists {
		lists[string(p.ID)] = p.list()
	}
	return lists, nil
}
