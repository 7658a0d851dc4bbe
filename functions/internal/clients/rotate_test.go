package clients

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hubsync/shared/config"
)

// service takes one token, and counts what it refused.
type service struct {
	takes            string
	refused, granted int
	body             string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+s.takes {
		s.refused++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.granted++
	content, _ := io.ReadAll(r.Body)
	s.body = string(content)
}

func TestARefusedTokenGivesWayToTheOther(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		held, later, takes string // the secret before and after its rotation, and what the service takes
		status, refused    int
	}{
		"one that is right":              {"a", "a", "a", 200, 0},
		"rotated":                        {"a", "b", "b", 200, 1},
		"two, the new one is right":      {"b a", "b a", "b", 200, 0},
		"two, the new one is not yet":    {"b a", "b a", "a", 200, 1},
		"two came, the new one is right": {"a", "b a", "b", 200, 1},
		"none is right":                  {"a", "a", "z", 401, 1},
		"none of two is right":           {"b a", "b a", "z", 401, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &service{takes: tc.takes}
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			now, secret := time.Unix(1_000_000, 0), tc.held
			clock := func() time.Time { return now }
			store := config.NewStore(func(context.Context, string) (string, error) { return secret, nil }, clock)
			r := config.NewReader(func(name string) string {
				return map[string]string{"TOKEN_SECRET_ARN": "arn:x"}[name]
			}, store)
			tk := newTokens("TOKEN", r.Secret("TOKEN", true), clock, slog.New(slog.DiscardHandler))
			client := &http.Client{Transport: &rotating{base: http.DefaultTransport, tokens: tk}}
			if _, err := tk.Get(t.Context()); err != nil { // held from before
				t.Fatal(err)
			}
			now, secret = now.Add(time.Minute), tc.later
			call := func() int {
				token, err := tk.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("body"))
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Authorization", "Bearer "+token)
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				return response.StatusCode
			}
			if status := call(); status != tc.status || s.refused != tc.refused {
				t.Errorf("%d after %d refusals, want %d after %d", status, s.refused, tc.status, tc.refused)
			}
			if tc.status == 200 {
				if call(); s.refused != tc.refused || s.granted != 2 || s.body != "body" {
					t.Errorf("the next call: %d refusals, body %q", s.refused, s.body)
				}
			}
		})
	}
}
