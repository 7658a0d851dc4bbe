package hubspot

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

var testNow = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const (
	testToken       = "pat-na1-11111111-2222-3333-4444-555555555555"
	testCorrelation = "0a1b2c3d-0000-4000-8000-0123456789ab"
)

func testClock() time.Time { return testNow }

// request is what a fake HubSpot was sent.
type request struct {
	method string
	uri    string // as it stood on the wire
	body   string
	header http.Header
}

// fake answers every call with one text, and remembers the calls.
type fake struct {
	status int
	header map[string]string
	body   string

	mu       sync.Mutex
	requests []request
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.requests = append(f.requests, request{r.Method, r.RequestURI, string(body), r.Header.Clone()})
	f.mu.Unlock()
	w.Header().Set("X-HubSpot-Correlation-Id", testCorrelation)
	for name, value := range f.header {
		w.Header().Set(name, value)
	}
	if f.status == 0 {
		f.status = http.StatusOK
	}
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, f.body)
}

func (f *fake) calls() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// newClient returns a client of a handler, with what a test changes of its config.
func newClient(t *testing.T, h http.Handler, change ...func(*Config)) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	cfg := Config{
		Portal: "p1", BaseURL: server.URL, Clock: testClock, Timeout: 5 * time.Second,
		Token:      func(context.Context) (string, error) { return testToken, nil },
		HTTPClient: server.Client(),
	}
	for _, c := range change {
		c(&cfg)
	}
	client, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func answering(t *testing.T, status int, body string) *Client {
	t.Helper()
	return newClient(t, &fake{status: status, body: body})
}

// hubspotError fails unless err is an *Error of this kind.
func hubspotError(t *testing.T, err error, kind Kind) *Error {
	t.Helper()
	var he *Error
	if !errors.As(err, &he) {
		t.Fatalf("error %v is no *Error", err)
	}
	if he.Kind != kind {
		t.Fatalf("kind %s, want %s (%v)", he.Kind, kind, he)
	}
	return he
}

func kindOf(e *Error) Kind {
	if e == nil {
		return ""
	}
	return e.Kind
}

func complete(results string, errors ...string) string {
	return `{"status":"COMPLETE","results":[` + results + `],"numErrors":` + string('0'+rune(len(errors))) + `,"errors":[` + strings.Join(errors, ",") + `]}`
}
