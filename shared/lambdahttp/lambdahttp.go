// Package lambdahttp lets a Lambda function serve net/http handlers: it turns HTTP
// API and function URL events (payload format 2.0, the same shape) into requests and
// recorded responses into answers. The library's own adapter serves streaming URLs
// only. It also wraps the timed stages.
package lambdahttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// deadlineMargin is kept free at the end of an invocation, so that a handler that
// runs into its deadline can still answer.
const deadlineMargin = 500 * time.Millisecond

// Handler returns a Lambda handler that serves events with h. A panic becomes a 500
// and a log line: in Lambda it would end the process and the other work of it.
func Handler(h http.Handler, logger *slog.Logger) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (response events.APIGatewayV2HTTPResponse, err error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		request, err := Request(ctx, event)
		if err != nil {
			return problem(http.StatusBadRequest, "Bad Request", err.Error()), nil
		}
		defer func() {
			if p := recover(); p != nil {
				logger.Error("panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				response, err = problem(http.StatusInternalServerError, "Internal Server Error", "the request was not completed; send it again with the same Idempotency-Key"), nil
			}
		}()
		recorder := &recorder{header: http.Header{}}
		h.ServeHTTP(recorder, request)
		return recorder.response(), nil
	}
}

func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-deadlineMargin))
}

// Request builds the request of an event: the body decoded where it is base64, the
// stage cut off the path, headers as they came (lower-cased, twins joined by commas).
func Request(ctx context.Context, event events.APIGatewayV2HTTPRequest) (*http.Request, error) {
	body := []byte(event.Body)
	if event.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(event.Body)
		if err != nil {
			return nil, fmt.Errorf("body is marked as base64 and is not")
		}
		body = decoded
	}
	target := &url.URL{Scheme: "https", Host: event.RequestContext.DomainName, RawQuery: event.RawQueryString}
	setPath(target, withoutStage(event.RawPath, event.RequestContext.Stage))
	request, err := http.NewRequestWithContext(withClaims(ctx, event), event.RequestContext.HTTP.Method, "/", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request method is not a token")
	}
	request.URL = target
	request.RequestURI = target.RequestURI()
	request.Host = target.Host
	request.RemoteAddr = event.RequestContext.HTTP.SourceIP
	for name, value := range event.Headers {
		request.Header.Set(name, value)
	}
	if len(event.Cookies) > 0 {
		request.Header.Set("Cookie", strings.Join(event.Cookies, "; "))
	}
	return request, nil
}

func withoutStage(path, stage string) string {
	if stage == "" || stage == "$default" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "/"+stage); ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// setPath keeps the path's own encoding. An HTTP API may hand over a decoded path,
// where a stray % is part of the text.
func setPath(target *url.URL, raw string) {
	if raw == "" {
		raw = "/"
	}
	target.Path = raw
	if decoded, err := url.PathUnescape(raw); err == nil {
		target.Path, target.RawPath = decoded, raw
	}
}

// recorder collects a handler's response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

func (r *recorder) response() events.APIGatewayV2HTTPResponse {
	r.WriteHeader(http.StatusOK)
	headers := make(map[string]string, len(r.header))
	for name, values := range r.header {
		headers[name] = strings.Join(values, ", ")
	}
	response := events.APIGatewayV2HTTPResponse{StatusCode: r.status, Headers: headers, Body: r.body.String()}
	if !utf8.Valid(r.body.Bytes()) {
		response.Body, response.IsBase64Encoded = base64.StdEncoding.EncodeToString(r.body.Bytes()), true
	}
	return response
}

func problem(status int, title, detail string) events.APIGatewayV2HTTPResponse {
	return events.APIGatewayV2HTTPResponse{
		StatusCode: status,
		Headers:    map[string]string{"Content-Type": "application/problem+json"},
		Body:       fmt.Sprintf(`{"title":%q,"status":%d,"detail":%q}`, title, status, detail),
	}
}
