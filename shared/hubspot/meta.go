package hubspot

import (
	"context"
	"net/http"
)

// These reads are for checking a mapping before it becomes active, and a portal before
// it is used.

const (
	propertiesPath = "/crm/v3/properties/contacts"
	accountPath    = "/account-info/v3/details"
	tokenPath      = "/oauth/v2/private-apps/get/access-token-info"
)

// Definition is one subscription type. Its business unit is the brand of every write
// to it; 0: the account's own.
type Definition struct {
	ID             int64
	Name           string
	BusinessUnitID int64
	Active         bool
}

// Definitions reads every subscription type of the account.
func (c *Client) Definitions(ctx context.Context) ([]Definition, error) {
	a, err := c.do(ctx, call{"read definitions", http.MethodGet, c.preferences + "/definitions", nil, nil})
	if err != nil {
		return nil, err
	}
	results, err := resultsOf[struct {
		ID             flexInt  `json:"id"`
		Name           flexText `json:"name"`
		BusinessUnitID flexInt  `json:"businessUnitId"`
		Active         bool     `json:"isActive"`
	}](c, a)
	if err != nil {
		return nil, err
	}
	definitions := make([]Definition, len(results))
	for i, r := range results {
		definitions[i] = Definition{int64(r.ID), string(r.Name), int64(r.BusinessUnitID), r.Active}
	}
	return definitions, nil
}

// Property is one property of contacts. Options are the values of an enumeration.
type Property struct {
	Name           string
	Type           string // string, number, bool, enumeration, date, datetime, ...
	FieldType      string
	HasUniqueValue bool
	ReadOnly       bool // its value cannot be written
	Options        []string
}

// Properties reads every property of contacts.
func (c *Client) Properties(ctx context.Context) ([]Property, error) {
	a, err := c.do(ctx, call{"read properties", http.MethodGet, propertiesPath, nil, nil})
	if err != nil {
		return nil, err
	}
	results, err := resultsOf[struct {
		Name           flexText `json:"name"`
		Type           flexText `json:"type"`
		FieldType      flexText `json:"fieldType"`
		HasUniqueValue bool     `json:"hasUniqueValue"`
		Options        []struct {
			Value flexText `json:"value"`
		} `json:"options"`
		Modification struct {
			ReadOnlyValue bool `json:"readOnlyValue"`
		} `json:"modificationMetadata"`
	}](c, a)
	if err != nil {
		return nil, err
	}
	properties := make([]Property, len(results))
	for i, r := range results {
		properties[i] = Property{
			Name: string(r.Name), Type: string(r.Type), FieldType: string(r.FieldType),
			HasUniqueValue: r.HasUniqueValue, ReadOnly: r.Modification.ReadOnlyValue,
		}
		for _, o := range r.Options {
			properties[i].Options = append(properties[i].Options, string(o.Value))
		}
	}
	return properties, nil
}

// CreateContactKeyProperty makes the property that holds our contact key: a text that is
// unique among contacts. KindConflict: there is one of this name.
func (c *Client) CreateContactKeyProperty(ctx context.Context) error {
	_, err := c.do(ctx, call{"create property", http.MethodPost, propertiesPath, nil, struct {
		Name      string `json:"name"`
		Label     string `json:"label"`
		Group     string `json:"groupName"`
		Type      string `json:"type"`
		FieldType string `json:"fieldType"`
		Unique    bool   `json:"hasUniqueValue"`
	}{ContactKeyProperty, "External contact id", "contactinformation", "string", "text", true}})
	return err
}

// Token is what HubSpot says about the token itself.
type Token struct {
	PortalID int64
	AppID    int64
	Scopes   []string
}

// TokenInfo reads the scopes of a private app's token. Other kinds of token are refused
// with an error: their scopes show only in what they may do.
func (c *Client) TokenInfo(ctx context.Context) (Token, error) {
	text, err := c.cfg.Token(ctx)
	if err != nil {
		return Token{}, &Error{Kind: KindNotSent, Code: "hubspot_token_unavailable", Operation: "read token", Portal: c.cfg.Portal,
			Summary: "the portal's token could not be fetched"}
	}
	a, err := c.do(ctx, call{"read token", http.MethodPost, tokenPath, nil, struct {
		Key string `json:"tokenKey"`
	}{text}})
	if err != nil {
		return Token{}, err
	}
	body, err := decode[struct {
		PortalID flexInt    `json:"hubId"`
		AppID    flexInt    `json:"appId"`
		Scopes   []flexText `json:"scopes"`
	}](c, a)
	if err != nil {
		return Token{}, err
	}
	if body.Scopes == nil {
		return Token{}, c.unnamed(a)
	}
	return Token{int64(body.PortalID), int64(body.AppID), texts(body.Scopes)}, nil
}

// resultsOf reads an answer that is a list of results; without one it says nothing.
func resultsOf[T any](c *Client, a answer) ([]T, error) {
	body, err := decode[struct {
		Results *[]T `json:"results"`
	}](c, a)
	if err != nil {
		return nil, err
	}
	if body.Results == nil {
		return nil, c.unnamed(a)
	}
	return *body.Results, nil
}

// Account is what the account says of itself. The daily limit ends at midnight of
// TimeZone, an IANA name.
type Account struct {
	PortalID int64
	TimeZone string
	Type     string // STANDARD, DEVELOPER_TEST, SANDBOX, ...
}

// AccountInfo reads the account that the token belongs to.
func (c *Client) AccountInfo(ctx context.Context) (Account, error) {
	a, err := c.do(ctx, call{"read account", http.MethodGet, accountPath, nil, nil})
	if err != nil {
		return Account{}, err
	}
	body, err := decode[struct {
		PortalID flexInt  `json:"portalId"`
		TimeZone flexText `json:"timeZone"`
		Type     flexText `json:"accountType"`
	}](c, a)
	if err != nil {
		return Account{}, err
	}
	if body.PortalID == 0 {
		return Account{}, c.unnamed(a)
	}
	return Account{int64(body.PortalID), string(body.TimeZone), string(body.Type)}, nil
}
