package clients

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"hubsync/shared/config"
)

// refusedFor is how long a token that was refused is not tried again while there is
// another.
const refusedFor = 10 * time.Minute

// tokens is a secret that holds one bearer token, or during a rotation several, the new
// one first and a space between: the first that is not refused is used. So a new token
// is verified by its use, and a wrong one costs a call and not the service.
type tokens struct {
	value  config.Value
	name   string
	clock  func() time.Time
	logger *slog.Logger

	mu      sync.Mutex
	refused map[string]time.Time
}

func newTokens(name string, value config.Value, clock func() time.Time, logger *slog.Logger) *tokens {
	return &tokens{value: value, name: name, clock: clock, logger: logger, refused: map[string]time.Time{}}
}

// Get returns the token to use now.
func (t *tokens) Get(ctx context.Context) (string, error) {
	text, err := t.value.Get(ctx)
	if err != nil {
		return "", err
	}
	all := strings.Fields(text)
	if len(all) == 0 {
		return "", errors.New(t.name + " is empty")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, token := range all {
		if at, ok := t.refused[token]; !ok || t.clock().Sub(at) > refusedFor {
			return token, nil
		}
	}
	return all[0], nil // all are refused: whoever mends it finds the first
}

// refuse notes that a token was refused, and has the secret fetched anew.
func (t *tokens) refuse(token string) {
	t.mu.Lock()
	t.refused[token] = t.clock()
	t.mu.Unlock()
	fetched := t.value.Refused()
	t.logger.Warn("token refused", "name", t.name, "fetchedAnew", fetched)
}

// rotating repeats a call that was answered 401 with another token, once, where there is
// one. It is the only call that is made without a reservation of its own: a rotation
// costs one for each process and each call in flight.
type rotating struct {
	base   http.RoundTripper
	tokens *tokens
}

const bearer = "Bearer "

// RoundTrip makes the call, and makes it again if another token may help.
func (r *rotating) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.base.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	sent := strings.TrimPrefix(request.Header.Get("Authorization"), bearer)
	r.tokens.refuse(sent)
	other, err := r.tokens.Get(request.Context())
	if err != nil || other == sent || (request.Body != nil && request.GetBody == nil) {
		return response, nil //nolint:nilerr // the refusal is the answer
	}
	again := request.Clone(request.Context())
	if request.GetBody != nil {
		if again.Body, err = request.GetBody(); err != nil {
			return response, nil //nolint:nilerr // as above
		}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that its connection can be used again
	_ = response.Body.Close()
	again.Header.Set("Authorization", bearer+other)
	return r.base.RoundTrip(again)
}
