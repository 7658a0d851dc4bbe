// Package secrettest is as much of AWS Secrets Manager as hubsync calls, on the
// loopback: GetSecretValue over JSON 1.1. Point AWS_ENDPOINT_URL_SECRETS_MANAGER to it.
package secrettest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server holds secrets by name.
type Server struct {
	URL string

	mu     sync.Mutex
	values map[string]string
	calls  int
	away   bool
}

// Start starts an empty store that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{values: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// ARN is what a secret of a name is asked for with.
func ARN(name string) string {
	return "arn:aws:secretsmanager:eu-central-1:123456789012:secret:" + name + "-AbCdEf"
}

// Put sets a secret, or rotates it.
func (s *Server) Put(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[ARN(name)] = value
}

// Calls returns how many calls came, those that failed among them.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// SetAway makes every call fail.
func (s *Server) SetAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// ServeHTTP answers a signed call; the signature itself is not checked.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ SecretId string }
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	switch {
	case s.away:
		refuse(w, http.StatusInternalServerError, "InternalServiceError")
		return
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "):
		refuse(w, http.StatusBadRequest, "MissingAuthenticationTokenException")
		return
	case r.Header.Get("X-Amz-Target") != "secretsmanager.GetSecretValue":
		refuse(w, http.StatusBadRequest, "UnknownOperationException")
		return
	case json.NewDecoder(r.Body).Decode(&in) != nil || in.SecretId == "":
		refuse(w, http.StatusBadRequest, "InvalidParameterException")
		return
	}
	value, ok := s.values[in.SecretId]
	if !ok {
		refuse(w, http.StatusBadRequest, "ResourceNotFoundException")
		return
	}
	name := in.SecretId[strings.LastIndex(in.SecretId, ":")+1:]
	answer(w, http.StatusOK, map[string]any{
		"ARN": in.SecretId, "Name": name, "SecretString": value, "VersionId": "00000000-0000-4000-8000-000000000001",
		"VersionStages": []string{"AWSCURRENT"}, "CreatedDate": float64(time.Now().Unix()),
	})
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Amzn-Errortype", code)
	answer(w, status, map[string]any{"__type": code, "Message": "refused"})
}

func answer(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller is gone: nothing to tell it
}
