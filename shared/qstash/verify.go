package qstash

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The verifier is our own, because the Go SDK's (v1.0.0) accepts what it must not: a
// token signed with an empty next key, other HMACs, tokens that never expire; and it
// skips the subject where none is given.

// leeway is how far QStash's clock and ours may differ.
const leeway = 5 * time.Second

// maxLifetime is more than the five minutes that QStash gives a token.
const maxLifetime = 10 * time.Minute

// maxToken bounds the header before anything looks at it.
const maxToken = 4096

const issuer = "Upstash"

// ErrSignature is what every refused signature is. Its text says which check failed,
// for our log; the caller gets no detail.
var ErrSignature = errors.New("qstash signature refused")

// Keys are the signing keys. Next may be empty: then no second key is tried.
type Keys struct {
	Current, Next string
}

// NewKeys refuses an empty current key, with which anybody could sign.
func NewKeys(current, next string) (Keys, error) {
	if strings.TrimSpace(current) == "" {
		return Keys{}, errors.New("qstash: the current signing key is empty")
	}
	return Keys{Current: current, Next: next}, nil
}

// ReadKeys joins two secrets into the pair that NewVerifier asks for.
func ReadKeys(current, next func(context.Context) (string, error)) func(context.Context) (Keys, error) {
	return func(ctx context.Context) (Keys, error) {
		c, err := current(ctx)
		if err != nil {
			return Keys{}, err
		}
		n, err := next(ctx)
		if err != nil {
			return Keys{}, err
		}
		return NewKeys(c, n)
	}
}

// Verifier checks the signatures of deliveries.
type Verifier struct {
	keys    func(context.Context) (Keys, error)
	clock   func() time.Time
	refused func() bool
}

// NewVerifier returns a verifier; keys is asked at every check, so that a rotation
// needs no restart.
func NewVerifier(keys func(context.Context) (Keys, error), clock func() time.Time) *Verifier {
	return &Verifier{keys: keys, clock: clock}
}

// OnRefused has f called when neither key made a signature; true: the keys may be others
// now, and the signature is checked once more. Both keys may have been rotated since
// they were read.
func (v *Verifier) OnRefused(f func() bool) { v.refused = f }

type claims struct {
	jwt.RegisteredClaims
	Body string `json:"body"`
}

// Verify checks that token signs body for the destination subject, exactly as it was
// published: HS256 under the current or the next key, issued by QStash, not expired,
// already valid. body is the raw request body. Every refusal is ErrSignature.
func (v *Verifier) Verify(ctx context.Context, token string, body []byte, subject string) error {
	if subject == "" {
		return fmt.Errorf("%w: no subject to compare with", ErrSignature)
	}
	if token == "" || len(token) > maxToken {
		return fmt.Errorf("%w: token of %d bytes", ErrSignature, len(token))
	}
	c, err := v.read(ctx, token)
	if errors.Is(err, jwt.ErrTokenSignatureInvalid) && v.refused != nil && v.refused() {
		c, err = v.read(ctx, token)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", ErrSignature, reasonOf(err))
	}
	return c.check(body, subject)
}

var errNoKeys = errors.New("signing keys are not available")

// read checks a token under the current, then the next key.
func (v *Verifier) read(ctx context.Context, token string) (claims, error) {
	var c claims
	keys, err := v.keys(ctx)
	if err != nil {
		return c, errNoKeys
	}
	err = v.parse(token, keys.Current, &c)
	if errors.Is(err, jwt.ErrTokenSignatureInvalid) && keys.Next != "" {
		c = claims{}
		err = v.parse(token, keys.Next, &c)
	}
	return c, err
}

func (v *Verifier) parse(token, key string, c *claims) error {
	if key == "" {
		return jwt.ErrTokenSignatureInvalid
	}
	_, err := jwt.ParseWithClaims(token, c, func(*jwt.Token) (any, error) { return []byte(key), nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithIssuer(issuer), jwt.WithExpirationRequired(), jwt.WithNotBeforeRequired(),
		jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(v.clock), jwt.WithStrictDecoding())
	return err
}

// reasonOf names the failed check without quoting anything of the token.
func reasonOf(err error) string {
	for _, known := range []error{
		jwt.ErrTokenMalformed, jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenExpired,
		errNoKeys, jwt.ErrTokenNotValidYet, jwt.ErrTokenUsedBeforeIssued, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenRequiredClaimMissing,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "token is not valid"
}

func (c *claims) check(body []byte, subject string) error {
	if c.IssuedAt == nil {
		return fmt.Errorf("%w: no time of issue", ErrSignature)
	}
	if c.ExpiresAt.Sub(c.IssuedAt.Time) > maxLifetime {
		return fmt.Errorf("%w: token lives longer than QStash's do", ErrSignature)
	}
	if subtle.ConstantTimeCompare([]byte(c.Subject), []byte(subject)) != 1 {
		return fmt.Errorf("%w: token is for another destination", ErrSignature)
	}
	sum := sha256.Sum256(body)
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(strings.TrimRight(c.Body, "=")), []byte(want)) != 1 {
		return fmt.Errorf("%w: token is for another body", ErrSignature)
	}
	return nil
}
