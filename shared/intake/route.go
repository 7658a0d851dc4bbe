package intake

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unmatched stands in the log for a path without a route.
const unmatched = "unmatched"

// route is one path of the API. The standard library's mux is not used: it
// answers a path like //v1 or /v1/../x with a redirect, and a client that follows
// one turns a POST into a GET.
type route struct {
	template string
	methods  []string
	serve    func(*handler, http.ResponseWriter, *http.Request, []string) answer
}

func (r *route) allows(method string) bool { return slices.Contains(r.methods, method) }

var (
	writes = []string{http.MethodPost}
	puts   = []string{http.MethodPut}
	reads  = []string{http.MethodGet, http.MethodHead}
)

var routes = []route{
	{"/v1/brands/{brandId}/subscriptions", writes, (*handler).postDecision},
	{"/v1/brands/{brandId}/unsubscribe-all", writes, (*handler).postBrandOptOut},
	{"/v1/unsubscribe-all", writes, (*handler).postOptOut},
	{"/v1/brands/{brandId}/contacts/{contactKey}/email", puts, (*handler).putEmail},
	{"/v1/brands/{brandId}/subscription-requests/{id}", reads, (*handler).getRequest},
	{"/v1/brands/{brandId}/contacts/{contactKey}/subscriptions", reads, (*handler).getSubscriptions},
	{"/healthz", reads, (*handler).getHealth},
}

// match finds the route of a path and the values of its parameters. An empty
// segment matches nothing: a trailing or doubled slash is another path.
func match(segments []string) (*route, []string) {
	for i := range routes {
		if params, ok := matchTemplate(routes[i].template, segments); ok {
			return &routes[i], params
		}
	}
	return nil, nil
}

func matchTemplate(template string, segments []string) (params []string, ok bool) {
	for want := range strings.SplitSeq(template[1:], "/") {
		if len(segments) == 0 || segments[0] == "" {
			return nil, false
		}
		if want[0] == '{' {
			params = append(params, segments[0])
		} else if want != segments[0] {
			return nil, false
		}
		segments = segments[1:]
	}
	return params, len(segments) == 0
}

// pathSegments decodes an escaped path, each segment once: an encoded slash
// belongs to its segment. It refuses what could not be stored or compared.
func pathSegments(escaped string) (segments []string, valid bool) {
	for segment := range strings.SplitSeq(strings.TrimPrefix(escaped, "/"), "/") {
		decoded, err := url.PathUnescape(segment)
		if err != nil || !utf8.ValidString(decoded) || strings.ContainsFunc(decoded, unicode.IsControl) {
			return nil, false
		}
		segments = append(segments, decoded)
	}
	return segments, true
}

// checkMediaType accepts application/json in UTF-8 without a content coding.
func checkMediaType(header http.Header) *answer {
	for _, value := range header.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(value, ",") {
			if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
				a := refusal(http.StatusUnsupportedMediaType, "content-coding", "The content coding is not supported",
					"Send the body without Content-Encoding.").with("Accept-Encoding", "identity")
				return &a
			}
		}
	}
	types := header.Values("Content-Type")
	if len(types) == 1 {
		mediaType, params, err := mime.ParseMediaType(types[0])
		charset, named := params["charset"]
		if err == nil && mediaType == "application/json" && (!named || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	a := refusal(http.StatusUnsupportedMediaType, "media-type", "The media type is not supported",
		"Send one Content-Type: application/json, in UTF-8.").with("Accept", "application/json")
	return &a
}

// traceparent returns the caller's W3C trace context if there is exactly one and
// it is valid (Trace Context, §3.2), else "".
func traceparent(headers []string) string {
	if len(headers) != 1 || len(headers[0]) != 55 {
		return ""
	}
	value := headers[0]
	for i := range len(value) {
		c := value[i]
		if dash := i == 2 || i == 35 || i == 52; dash != (c == '-') {
			return ""
		} else if !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	version, trace, parent := value[:2], value[3:35], value[36:52]
	if version == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return ""
	}
	return value
}

// Routes lists every method and path template that the handler serves, such as
// "GET /healthz", for whatever stands before it.
func Routes() []string {
	var all []string
	for _, r := range routes {
		for _, method := range r.methods {
			all = append(all, method+" "+r.template)
		}
	}
	return all
}
