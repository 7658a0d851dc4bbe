package qstash_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"hubsync/shared/casetest"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
)

const (
	subject = "https://worker.example.com/deliver"
	current = "sig_current_key_0123456789"
	next    = "sig_next_key_0123456789012"
)

var (
	now  = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	body = []byte(`{"eventIds":["x"]}`)
)

func verifier(keys qstash.Keys) *qstash.Verifier {
	return qstash.NewVerifier(func(context.Context) (qstash.Keys, error) { return keys, nil }, func() time.Time { return now })
}

// claims are a genuine delivery's.
func claims() jwt.MapClaims {
	sum := sha256.Sum256(body)
	return jwt.MapClaims{
		"iss": "Upstash", "sub": subject, "exp": now.Add(5 * time.Minute).Unix(), "nbf": now.Unix(), "iat": now.Unix(),
		"jti": "jwt_1", "body": base64.URLEncoding.EncodeToString(sum[:]),
	}
}

func sign(t *testing.T, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, c).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestVerifyAcceptsGenuineDeliveries(t *testing.T) {
	t.Parallel()
	unpadded := claims()
	unpadded["body"] = strings.TrimRight(unpadded["body"].(string), "=")
	emulated, err := qstashtest.Sign(current, subject, body, "1", now)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"current key":       sign(t, jwt.SigningMethodHS256, []byte(current), claims()),
		"next key":          sign(t, jwt.SigningMethodHS256, []byte(next), claims()),
		"unpadded body":     sign(t, jwt.SigningMethodHS256, []byte(current), unpadded),
		"from the emulator": emulated,
		"three seconds off": sign(t, jwt.SigningMethodHS256, []byte(current), with(claims(), "nbf", now.Add(3*time.Second).Unix())),
	} {
		casetest.Add()
		if err := verifier(qstash.Keys{Current: current, Next: next}).Verify(t.Context(), token, body, subject); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func with(c jwt.MapClaims, name string, value any) jwt.MapClaims {
	c[name] = value
	return c
}

func without(c jwt.MapClaims, name string) jwt.MapClaims {
	delete(c, name)
	return c
}

// Each row is a forgery that some receiver accepts: the Go SDK's takes the empty key,
// other HMACs and tokens that never expire.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	key := []byte(current)
	good := sign(t, jwt.SigningMethodHS256, key, claims())
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims()).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	for name, tc := range map[string]struct {
		token, subject string
		body           []byte
		keys           qstash.Keys
	}{
		"no token":                {token: ""},
		"not a token":             {token: "abc"},
		"hostile bytes":           {token: "a.b\x00\xff\r\n.c"},
		"huge":                    {token: strings.Repeat("a", 1<<20)},
		"two parts":               {token: parts[0] + "." + parts[1]},
		"another key":             {token: sign(t, jwt.SigningMethodHS256, []byte("other"), claims())},
		"the empty key":           {token: sign(t, jwt.SigningMethodHS256, []byte{}, claims()), keys: qstash.Keys{Current: current}},
		"HS512":                   {token: sign(t, jwt.SigningMethodHS512, key, claims())},
		"HS384":                   {token: sign(t, jwt.SigningMethodHS384, key, claims())},
		"none":                    {token: none},
		"no exp":                  {token: sign(t, jwt.SigningMethodHS256, key, without(claims(), "exp"))},
		"no nbf":                  {token: sign(t, jwt.SigningMethodHS256, key, without(claims(), "nbf"))},
		"no iat":                  {token: sign(t, jwt.SigningMethodHS256, key, without(claims(), "iat"))},
		"no sub":                  {token: sign(t, jwt.SigningMethodHS256, key, without(claims(), "sub"))},
		"no body":                 {token: sign(t, jwt.SigningMethodHS256, key, without(claims(), "body"))},
		"expired":                 {token: sign(t, jwt.SigningMethodHS256, key, with(claims(), "exp", now.Add(-6*time.Second).Unix()))},
		"not yet valid":           {token: sign(t, jwt.SigningMethodHS256, key, with(claims(), "nbf", now.Add(6*time.Second).Unix()))},
		"issued in the future":    {token: sign(t, jwt.SigningMethodHS256, key, with(claims(), "iat", now.Add(time.Minute).Unix()))},
		"a year's life":           {token: sign(t, jwt.SigningMethodHS256, key, with(claims(), "exp", now.AddDate(1, 0, 0).Unix()))},
		"another issuer":          {token: sign(t, jwt.SigningMethodHS256, key, with(claims(), "iss", "upstash"))},
		"another destination":     {token: good, subject: "https://worker.example.com/other"},
		"a trailing slash":        {token: good, subject: subject + "/"},
		"no subject to compare":   {token: good, subject: "-"},
		"altered body":            {token: good, body: []byte(`{"eventIds":["y"]}`)},
		"empty body":              {token: good, body: []byte{}},
		"altered claims":          {token: parts[0] + "." + parts[1][:len(parts[1])-2] + "AA." + parts[2]},
		"body claim of the other": {token: sign(t, jwt.SigningMethodHS256, key, with(claims(), "body", "AAAA"))},
	} {
		casetest.Add()
		sub, content, keys := subject, body, qstash.Keys{Current: current, Next: next}
		if tc.subject == "-" {
			sub = ""
		} else if tc.subject != "" {
			sub = tc.subject
		}
		if tc.body != nil {
			content = tc.body
		}
		if tc.keys.Current != "" {
			keys = tc.keys
		}
		err := verifier(keys).Verify(t.Context(), tc.token, content, sub)
		if !errors.Is(err, qstash.ErrSignature) {
			t.Errorf("%s: error %v", name, err)
		}
		if err != nil && tc.token != "" && len(tc.token) < 5000 && strings.Contains(err.Error(), tc.token) {
			t.Errorf("%s: the error shows the token", name)
		}
	}
}

func TestKeysRotateAndMustNotBeEmpty(t *testing.T) {
	t.Parallel()
	if _, err := qstash.NewKeys("", next); err == nil {
		t.Error("an empty current key is accepted")
	}
	if _, err := qstash.NewKeys(" ", next); err == nil {
		t.Error("a blank current key is accepted")
	}
	keys := qstash.Keys{Current: current, Next: next}
	v := qstash.NewVerifier(func(context.Context) (qstash.Keys, error) { return keys, nil }, func() time.Time { return now })
	rolled := sign(t, jwt.SigningMethodHS256, []byte(next), claims())
	if err := v.Verify(t.Context(), rolled, body, subject); err != nil {
		t.Errorf("rolled once: %v", err)
	}
	keys = qstash.Keys{Current: "sig_third", Next: "sig_fourth"}
	if err := v.Verify(t.Context(), rolled, body, subject); err == nil {
		t.Error("rolled twice, and the old key still signs")
	}
	away := qstash.NewVerifier(func(context.Context) (qstash.Keys, error) { return qstash.Keys{}, errors.New("away") }, time.Now)
	if err := away.Verify(t.Context(), rolled, body, subject); !errors.Is(err, qstash.ErrSignature) {
		t.Errorf("keys away: %v", err)
	}
}
