package qstashtest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Sign makes the Upstash-Signature of a delivery: QStash's claims under a key.
func Sign(key, subject string, body []byte, id string, now time.Time) (string, error) {
	sum := sha256.Sum256(body)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "Upstash", "sub": subject, "exp": now.Add(5 * time.Minute).Unix(), "nbf": now.Unix(), "iat": now.Unix(),
		"jti": "jwt_" + id, "body": base64.URLEncoding.EncodeToString(sum[:]),
	}).SignedString([]byte(key))
	if err != nil {
		return "", fmt.Errorf("sign delivery: %w", err)
	}
	return token, nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
