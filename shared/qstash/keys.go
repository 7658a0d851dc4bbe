package qstash

import (
	"context"
	"net/http"

	json "github.com/go-json-experiment/json"
)

// SigningKeys reads the pair that QStash signs with now, and will sign with after the
// next rotation (GET /v2/keys). Needs an owner's or administrator's token.
func (c *Client) SigningKeys(ctx context.Context) (Keys, error) {
	body, err := c.do(ctx, http.MethodGet, "/v2/keys", nil)
	if err != nil {
		return Keys{}, err
	}
	var pair struct {
		Current string `json:"current"`
		Next    string `json:"next"`
	}
	if err := json.Unmarshal(body, &pair); err != nil || pair.Current == "" {
		return Keys{}, &Error{Kind: KindUnknown, Message: "the answer names no signing key"}
	}
	return Keys(pair), nil
}
