package hubspot

import (
	"context"
	"net/http"
)

// MembershipResult says which records a list gained and lost, and which ids it does
// not know.
type MembershipResult struct {
	Added, Removed, Missing []string
	CorrelationID           string
}

// ChangeMembers adds records to a list and removes others, in one call. Adding a
// member again, or removing a stranger, is no error. The list must be MANUAL or
// SNAPSHOT.
func (c *Client) ChangeMembers(ctx context.Context, listID string, add, remove []string) (MembershipResult, error) {
	if add == nil {
		add = []string{}
	}
	if remove == nil {
		remove = []string{}
	}
	a, err := c.do(ctx, http.MethodPut, c.lists+"/"+pathSegment(listID)+"/memberships/add-and-remove", nil, struct {
		Add    []string `json:"recordIdsToAdd"`
		Remove []string `json:"recordIdsToRemove"`
	}{add, remove})
	if err != nil {
		return MembershipResult{}, err
	}
	body, err := decode[struct {
		Added   []flexText `json:"recordIdsAdded"`
		Removed []flexText `json:"recordIdsRemoved"`
		Missing []flexText `json:"recordIdsMissing"`
	}](a)
	if err != nil {
		return MembershipResult{}, err
	}
	return MembershipResult{texts(body.Added), texts(body.Removed), texts(body.Missing), a.correlation}, nil
}

// flexText reads an id that some answers write as a number.
type flexText string

// UnmarshalJSON accepts "7" and 7.
func (f *flexText) UnmarshalJSON(text []byte) error {
	if len(text) >= 2 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	*f = flexText(text)
	return nil
}

func texts(ids []flexText) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}
