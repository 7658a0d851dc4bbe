package worker

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// OwnPath is the worker's path at its own function URL. What is published to ends in a
// path, so that nobody between may add a slash or take one: the signature's subject is
// the URL to the letter.
const OwnPath = "/hubspot"

const failedPath = "/failed"

// endpoint is what a request's path asks for.
type endpoint int

const (
	noEndpoint endpoint = iota
	messageEndpoint
	failureEndpoint
)

// endpointOf compares the exact path, with and without the path of the worker's URL: what
// stands before the worker may cut it off. A redirect would break the signature's subject.
func (w *Worker) endpointOf(path string) endpoint {
	if rest, ok := strings.CutPrefix(path, w.base); ok && (rest == "" || rest[0] == '/') {
		path = rest
	}
	switch path {
	case "", "/":
		return messageEndpoint
	case failedPath:
		return failureEndpoint
	}
	return noEndpoint
}

// basePath is the path of the worker's URL, without a slash at its end.
func basePath(subject string) string {
	if subject == "" {
		return OwnPath
	}
	u, err := url.Parse(subject)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// subject is the worker's URL as the relay publishes it. Where it is not configured it is
// made of the host that Lambda names (never of a header), if that has the form of a
// function URL of our region; else it is empty, which no signature fits.
func (w *Worker) subject(r *http.Request) string {
	if w.Subject != "" {
		return w.Subject
	}
	if !w.ownHost.MatchString(r.Host) {
		return ""
	}
	return "https://" + r.Host + OwnPath
}

// callbackOf is the URL of the failure callbacks; no URL has none.
func callbackOf(subject string) string {
	if subject == "" {
		return ""
	}
	return subject + failedPath
}

// ownHostForm is the form of a function URL's host: an id that AWS made, and our region.
func ownHostForm(region string) *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]{16,63}\.lambda-url\.` + regexp.QuoteMeta(region) + `\.on\.aws$`)
}
