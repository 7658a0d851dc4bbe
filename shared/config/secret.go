package config

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Secret is text that never shows itself: not in a log, an error, JSON or a %v.
type Secret string

const redacted = "[redacted]"

// String, GoString, LogValue, MarshalText and Format are every way in which a value
// gets printed.
func (s Secret) String() string                { return redacted }
func (s Secret) GoString() string              { return redacted }
func (s Secret) LogValue() slog.Value          { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error)  { return []byte(redacted), nil }
func (s Secret) Format(f fmt.State, verb rune) { _, _ = f.Write([]byte(redacted)) }

// Reveal returns the secret itself, for the one place that sends it.
func (s Secret) Reveal() string { return string(s) }

// secretTTL is how long a fetched secret is used before it is fetched again; a
// dynamic reference in the template would freeze it at deploy time.
const secretTTL = 5 * time.Minute

// leastAge is how old a secret must be to be fetched again because it was refused:
// whoever sends false signatures must not drive the calls to the store.
const leastAge = 5 * time.Second

// Store fetches secrets by ARN and keeps each for five minutes.
type Store struct {
	fetch func(ctx context.Context, arn string) (string, error)
	clock func() time.Time

	mu     sync.Mutex
	values map[string]storedSecret
}

type storedSecret struct {
	value     string
	fetchedAt time.Time
	refused   bool
}

// NewStore returns a store over a fetch function (Secrets Manager's GetSecretValue).
func NewStore(fetch func(ctx context.Context, arn string) (string, error), clock func() time.Time) *Store {
	return &Store{fetch: fetch, clock: clock, values: map[string]storedSecret{}}
}

// Get returns the secret of an ARN. While it cannot be fetched, a value that was
// fetched before is used on: an outage of the store is no reason to stop.
func (s *Store) Get(ctx context.Context, arn string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.values[arn]
	if ok && !held.refused && s.clock().Sub(held.fetchedAt) < secretTTL {
		return held.value, nil
	}
	value, err := s.fetch(ctx, arn)
	if err != nil {
		if ok {
			return held.value, nil
		}
		return "", fmt.Errorf("fetch secret %s: %w", arn, err)
	}
	s.values[arn] = storedSecret{value: value, fetchedAt: s.clock()}
	return value, nil
}

// Refused says that a secret was refused, so that the next Get fetches it anew; false:
// it was fetched a moment ago. The value stays for when the store is away: a false
// signature must not cost the true key.
func (s *Store) Refused(arn string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.values[arn]
	if !ok || s.clock().Sub(held.fetchedAt) < leastAge {
		return false
	}
	held.refused = true
	s.values[arn] = held
	return true
}

// Value is a secret given in the environment, or the ARN of one in a store.
type Value struct {
	plain Secret
	arn   string
	store *Store
}

// Plain returns a Value that is its own secret, for tests and the local world.
func Plain(text string) Value { return Value{plain: Secret(text)} }

// Get returns the secret's text.
func (v Value) Get(ctx context.Context) (string, error) {
	if v.arn != "" {
		return v.store.Get(ctx, v.arn)
	}
	return v.plain.Reveal(), nil
}

// Set reports whether the secret was given at all.
func (v Value) Set() bool { return v.arn != "" || v.plain != "" }

// Refused says that the secret was refused: a rotated one is fetched at the next Get.
// False: there is no other to fetch.
func (v Value) Refused() bool { return v.arn != "" && v.store.Refused(v.arn) }

// Stored reports whether the secret lives in a store, where it may be rotated.
func (v Value) Stored() bool { return v.arn != "" }

// Format hides the secret in every verb: fmt does not ask the methods of an
// unexported field.
func (v Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue hides the secret in logs.
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }
