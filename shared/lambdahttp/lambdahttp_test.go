package lambdahttp

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"hubsync/shared/casetest"
)

func event(method, path, stage, body string, base64Encoded bool) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{RawPath: path, Body: body, IsBase64Encoded: base64Encoded,
		Headers: map[string]string{"idempotency-key": "k", "content-type": "application/json"}}
	e.RequestContext.Stage, e.RequestContext.DomainName = stage, "api.example.com"
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.SourceIP = method, "192.0.2.1"
	return e
}

func TestHandlerServesTheSameRequestInEveryForm(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Add("X-Twin", "a")
		w.Header().Add("X-Twin", "b")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(r.Method + " " + r.URL.EscapedPath() + " " + r.URL.Path + " " + r.Header.Get("Idempotency-Key") + " " + string(body)))
	})
	for name, tc := range map[string]struct {
		event events.APIGatewayV2HTTPRequest
		want  string
	}{
		"plain":           {event("POST", "/v1/x", "$default", "{}", false), "POST /v1/x /v1/x k {}"},
		"base64":          {event("POST", "/v1/x", "$default", base64.StdEncoding.EncodeToString([]byte("{}")), true), "POST /v1/x /v1/x k {}"},
		"with a stage":    {event("POST", "/prod/v1/x", "prod", "{}", false), "POST /v1/x /v1/x k {}"},
		"stage only":      {event("GET", "/prod", "prod", "", false), "GET / / k "},
		"no stage in it":  {event("GET", "/production/x", "prod", "", false), "GET /production/x /production/x k "},
		"encoded":         {event("GET", "/v1/a%2Fb", "", "", false), "GET /v1/a%2Fb /v1/a/b k "},
		"stray percent":   {event("GET", "/v1/100%", "", "", false), "GET /v1/100%25 /v1/100% k "},
		"empty path":      {event("GET", "", "", "", false), "GET / / k "},
		"double slash":    {event("GET", "//v1//x", "", "", false), "GET //v1//x //v1//x k "},
		"trailing slash":  {event("POST", "/v1/x/", "", "", false), "POST /v1/x/ /v1/x/ k "},
		"unicode decoded": {event("GET", "/v1/ä", "", "", false), "GET /v1/%C3%A4 /v1/ä k "},
	} {
		casetest.Add()
		response, err := Handler(echo, slog.New(slog.DiscardHandler))(t.Context(), tc.event)
		if err != nil || response.StatusCode != 202 || response.Body != tc.want || response.Headers["X-Twin"] != "a, b" {
			t.Errorf("%s: %+v, %v; want %q", name, response, err, tc.want)
		}
	}
}

func TestHandlerRefusesFalseBase64(t *testing.T) {
	t.Parallel()
	called := false
	h := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }), slog.New(slog.DiscardHandler))
	response, err := h(t.Context(), event("POST", "/", "", "%%%", true))
	if err != nil || response.StatusCode != 400 || called {
		t.Errorf("%+v, %v, called %v", response, err, called)
	}
}

func TestHandlerAnswersAfterAPanicAndKeepsBytes(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	response, err := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }), logger)(t.Context(), event("POST", "/", "", "", false))
	if err != nil || response.StatusCode != 500 || !strings.Contains(log.String(), "boom") || strings.Contains(response.Body, "boom") {
		t.Errorf("%+v, %v, log %q", response, err, log.String())
	}
	bytes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff, 0xfe}) })
	if response, err = Handler(bytes, logger)(t.Context(), event("GET", "/", "", "", false)); err != nil || !response.IsBase64Encoded || response.Body != "//4=" {
		t.Errorf("%+v, %v", response, err)
	}
}

func TestTimedStopsBeforeTheDeadlineAndSurvivesAPanic(t *testing.T) {
	t.Parallel()
	deadline := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	left, err := Timed(func(ctx context.Context) (time.Time, error) {
		d, _ := ctx.Deadline()
		return d, nil
	}, slog.New(slog.DiscardHandler))(ctx)
	if err != nil || !left.Before(deadline) {
		t.Errorf("deadline %s, %v", left, err)
	}
	_, err = Timed(func(context.Context) (int, error) { panic(errors.New("boom")) }, slog.New(slog.DiscardHandler))(ctx)
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("error %v", err)
	}
}

func TestEitherTellsHTTPFromSchedule(t *testing.T) {
	t.Parallel()
	h := Either(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) }),
		func(context.Context) (string, error) { return "ran", nil }, slog.New(slog.DiscardHandler))
	answer, err := h(t.Context(), []byte(`{"rawPath":"/internal/reconcile","requestContext":{"http":{"method":"GET"}}}`))
	if response, ok := answer.(events.APIGatewayV2HTTPResponse); err != nil || !ok || response.Body != "/internal/reconcile" {
		t.Errorf("%+v, %v", answer, err)
	}
	for _, raw := range []string{`{"source":"aws.scheduler"}`, `{}`, `null`, `"x"`} {
		if answer, err = h(t.Context(), []byte(raw)); err != nil || answer != "ran" {
			t.Errorf("%s: %+v, %v", raw, answer, err)
		}
	}
}

func TestClaimIsOfTheVerifiedTokenOnly(t *testing.T) {
	t.Parallel()
	e := event("GET", "/v1/x", "", "", false)
	e.Headers["hubsync_brands"] = "acme" // a header is no claim
	seen := func() (claim string) {
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { claim = Claim(r.Context(), "hubsync_brands") })
		if _, err := Handler(h, slog.New(slog.DiscardHandler))(t.Context(), e); err != nil {
			t.Error(err)
		}
		return claim
	}
	if got := seen(); got != "" {
		t.Errorf("claim %q without a token", got)
	}
	e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{}
	if got := seen(); got != "" {
		t.Errorf("claim %q of a caller that signed", got)
	}
	e.RequestContext.Authorizer.JWT = &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"hubsync_brands": "[acme nordic]"}}
	if got := seen(); got != "[acme nordic]" {
		t.Errorf("claim %q", got)
	}
}
