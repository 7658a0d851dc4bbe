package lambdatest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"
)

// Front turns HTTP requests into events of payload format 2.0 and answers with what the
// function says, as an HTTP API or a function URL does.
type Front struct {
	// Stage stands before the path of the event, and not of the request, where an API
	// has a domain of its own; empty: $default, which stands nowhere.
	Stage string
	// URL answers failures as a function URL does (502, 429), else as an HTTP API (500, 503).
	URL bool
	// Base64 encodes every body; else only those that are no text by their media type.
	Base64 bool

	function atomic.Pointer[Function]
}

// Deploy makes the front invoke a function from now on.
func (f *Front) Deploy(function *Function) { f.function.Store(function) }

// textTypes are the media types whose bodies travel as text; all others as base64.
var textTypes = []string{"application/json", "application/problem+json", "application/xml", "application/javascript", "application/x-www-form-urlencoded"}

// ServeHTTP invokes the function with one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	function := f.function.Load()
	if function == nil {
		write(w, http.StatusNotFound, map[string]string{"message": "Not Found"})
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload))
	if err != nil {
		http.Error(w, "the body broke off", http.StatusBadRequest)
		return
	}
	payload, err := json.Marshal(f.event(r, body))
	if err != nil {
		http.Error(w, "the request makes no event", http.StatusBadRequest)
		return
	}
	// The caller's going away does not end an invocation.
	result, err := function.Invoke(context.WithoutCancel(r.Context()), payload)
	if err != nil {
		f.fail(w, err)
		return
	}
	f.answer(w, result.Payload)
}

// event builds the event of a request: names lower-cased, twins joined by commas.
func (f *Front) event(r *http.Request, body []byte) events.APIGatewayV2HTTPRequest {
	stage, path := "$default", r.URL.EscapedPath()
	if f.Stage != "" {
		stage, path = f.Stage, "/"+f.Stage+path
	}
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: r.URL.RawQuery,
		Headers: map[string]string{"host": r.Host}, Body: string(body),
	}
	for name, values := range r.Header {
		if name == "Cookie" {
			e.Cookies = strings.Split(strings.Join(values, "; "), "; ")
			continue
		}
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	if f.Base64 || !isText(r.Header.Get("Content-Type"), body) {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	now := time.Now()
	e.RequestContext = events.APIGatewayV2HTTPRequestContext{
		AccountID: account, APIID: "local", DomainName: r.Host, DomainPrefix: "local", RequestID: uuid.NewString(),
		RouteKey: "$default", Stage: stage, Time: now.UTC().Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
		HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
			Method: r.Method, Path: path, Protocol: r.Proto, SourceIP: host, UserAgent: r.UserAgent(),
		},
	}
	return e
}

func isText(contentType string, body []byte) bool {
	if len(body) == 0 {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || !utf8.Valid(body) {
		return false
	}
	if strings.HasPrefix(media, "text/") {
		return true
	}
	for _, t := range textTypes {
		if media == t {
			return true
		}
	}
	return false
}

// answer writes a function's answer. One that is not of format 2.0 counts as a body.
func (f *Front) answer(w http.ResponseWriter, payload []byte) {
	var r events.APIGatewayV2HTTPResponse
	if json.Unmarshal(payload, &r) != nil || r.StatusCode == 0 {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(payload) // the caller is gone: nothing to tell it
		return
	}
	body := []byte(r.Body)
	if r.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(r.Body)
		if err != nil {
			f.fail(w, err)
			return
		}
		body = decoded
	}
	for name, value := range r.Headers {
		w.Header().Set(name, value)
	}
	for _, c := range r.Cookies {
		w.Header().Add("Set-Cookie", c)
	}
	w.WriteHeader(r.StatusCode)
	_, _ = w.Write(body) // as above
}

// fail answers for a function that did not. The documents name the codes of a function
// URL; those of an HTTP API are what public reports show.
func (f *Front) fail(w http.ResponseWriter, err error) {
	throttled := errors.Is(err, ErrThrottled)
	switch {
	case f.URL && throttled:
		write(w, http.StatusTooManyRequests, map[string]string{"Message": "Rate Exceeded."})
	case f.URL:
		write(w, http.StatusBadGateway, map[string]string{"Message": "Internal Server Error"})
	case throttled:
		write(w, http.StatusServiceUnavailable, map[string]string{"message": "Service Unavailable"})
	default:
		write(w, http.StatusInternalServerError, map[string]string{"message": "Internal Server Error"})
	}
}
