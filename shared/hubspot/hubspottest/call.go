package hubspottest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// call is one request to an account, while it is being answered. The server's lock is
// held.
type call struct {
	s       *Server
	a       *account
	r       *http.Request
	now     time.Time
	path    []string // percent-decoded segments
	query   url.Values
	body    []byte
	record  int // index of the call's line in the ledger
	answers answer
}

// answer is what the caller will get.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// serve answers one call: faults, token, limits, then the operation.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	c := &call{s: s, r: r, now: s.opts.Now(), query: r.URL.Query(), body: body}
	c.answers.header = http.Header{"Content-Type": {"application/json;charset=utf-8"}, "X-Hubspot-Correlation-Id": {uuid.NewString()}}
	for segment := range strings.SplitSeq(strings.Trim(r.URL.EscapedPath(), "/"), "/") {
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			decoded = segment
		}
		c.path = append(c.path, decoded)
	}
	c.a = s.accounts[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	fault := s.faultFor(c)
	if fault == nil || !fault.refuses() {
		c.admit()
	} else {
		c.note()
		fault.answer(c)
	}
	s.ledger[c.record].Status = c.answers.status
	a := c.answers
	if fault != nil && fault.LandLateMs > 0 {
		s.late.Add(1)
	}
	s.mu.Unlock()
	if fault != nil && fault.afterwards(w, s, c, a) {
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the caller is gone: nothing to tell it
}

// note writes the call into the ledger.
func (c *call) note() {
	line := Call{At: c.now, Method: c.r.Method, Route: c.route(), Inputs: c.countInputs()}
	if c.a != nil {
		line.Portal = c.a.ID
	}
	c.s.ledger = append(c.s.ledger, line)
	c.record = len(c.s.ledger) - 1
}

// route is the path without what it names.
func (c *call) route() string {
	parts := make([]string, len(c.path))
	for i, p := range c.path {
		if strings.Contains(p, "@") || (i > 0 && isNumber(p)) {
			p = "{id}"
		}
		parts[i] = p
	}
	return "/" + strings.Join(parts, "/")
}

func isNumber(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}

func (c *call) countInputs() int {
	var b struct {
		Inputs []json.RawMessage `json:"inputs"`
	}
	if len(c.body) == 0 || json.Unmarshal(c.body, &b) != nil || len(b.Inputs) == 0 {
		return 1
	}
	return len(b.Inputs)
}

// admit checks the token and the limits, and carries the call out.
func (c *call) admit() {
	c.note()
	if c.a == nil {
		c.fail(http.StatusUnauthorized, "INVALID_AUTHENTICATION", "Authentication credentials not found.")
		return
	}
	if !c.withinLimits() {
		return
	}
	c.operate()
}

// withinLimits keeps the rolling window and the day, and states both in the headers.
func (c *call) withinLimits() bool {
	a := c.a
	from := 0
	for from < len(a.admitted) && c.now.Sub(a.admitted[from]) >= a.BurstWindow {
		from++
	}
	a.admitted = a.admitted[from:]
	if day := c.now.In(a.TimeZone).Format(time.DateOnly); day != a.day {
		a.day, a.dayCount = day, 0
	}
	policy := ""
	switch {
	case a.dayCount >= a.DailyLimit:
		policy = "DAILY"
	case len(a.admitted) >= a.BurstLimit:
		policy = "TEN_SECONDLY_ROLLING"
	default:
		a.admitted = append(a.admitted, c.now)
		a.dayCount++
	}
	h := c.answers.header
	h.Set("X-HubSpot-RateLimit-Max", strconv.Itoa(a.BurstLimit))
	h.Set("X-HubSpot-RateLimit-Remaining", strconv.Itoa(a.BurstLimit-len(a.admitted)))
	h.Set("X-HubSpot-RateLimit-Interval-Milliseconds", strconv.FormatInt(a.BurstWindow.Milliseconds(), 10))
	h.Set("X-HubSpot-RateLimit-Daily", strconv.Itoa(a.DailyLimit))
	h.Set("X-HubSpot-RateLimit-Daily-Remaining", strconv.Itoa(a.DailyLimit-a.dayCount))
	if policy == "" {
		return true
	}
	c.refuse(policy)
	return false
}

// refuse answers 429.
func (c *call) refuse(policy string) {
	c.write(http.StatusTooManyRequests, map[string]any{
		"status": "error", "message": "You have reached your " + strings.ToLower(policy) + " limit.", "errorType": "RATE_LIMIT",
		"correlationId": c.correlation(), "policyName": policy, "requestId": uuid.NewString(),
	})
}

func (c *call) correlation() string { return c.answers.header.Get("X-Hubspot-Correlation-Id") }

func (c *call) write(status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"status":"error","message":"unencodable"}`)
	}
	c.answers.status, c.answers.body = status, body
}

// fail answers with an error of the whole request.
func (c *call) fail(status int, category, message string, more ...map[string]any) {
	value := map[string]any{"status": "error", "message": message, "correlationId": c.correlation(), "category": category}
	for _, m := range more {
		for k, v := range m {
			value[k] = v
		}
	}
	c.write(status, value)
}

// envelope answers a batch, or a single preference call. HubSpot's results are not in
// the order of the inputs.
func (c *call) envelope(okStatus int, results []any, errors []any) {
	c.s.random.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
	if results == nil {
		results = []any{}
	}
	value := map[string]any{
		"status": "COMPLETE", "results": results, "startedAt": stamp(c.now), "completedAt": stamp(c.now),
	}
	if len(errors) > 0 {
		value["numErrors"], value["errors"] = len(errors), errors
	}
	c.write(okStatus, value)
}

// inputError is one input's error inside an envelope.
func inputError(category, message string, context map[string][]string) map[string]any {
	return map[string]any{"status": "error", "category": category, "message": message, "context": context, "errors": []any{}, "links": map[string]string{}}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// decode reads the body; false: it was answered 400.
func (c *call) decode(into any) bool {
	if err := json.NewDecoder(bytes.NewReader(c.body)).Decode(into); err != nil {
		c.fail(http.StatusBadRequest, "VALIDATION_ERROR", "Invalid input JSON")
		return false
	}
	return true
}

func (c *call) tooMany(n int) bool {
	if n <= 100 {
		return false
	}
	c.fail(http.StatusBadRequest, "VALIDATION_ERROR", fmt.Sprintf("The maximum number of inputs supported in a batch request is 100; got %d", n))
	return true
}

// operate finds the operation of a path. Contacts, lists and preferences each exist
// under a dated and an older prefix.
func (c *call) operate() {
	p := c.path
	at := func(i int) string {
		if i < len(p) {
			return p[i]
		}
		return ""
	}
	switch {
	case at(0) == "crm" && at(1) == "objects" && isDated(at(2)) && at(3) == "contacts":
		c.contacts(p[4:])
	case at(0) == "crm" && at(1) == "v3" && at(2) == "objects" && at(3) == "contacts":
		c.contacts(p[4:])
	case at(0) == "crm" && at(1) == "lists" && isDated(at(2)), at(0) == "crm" && at(1) == "v3" && at(2) == "lists":
		c.lists(p[3:])
	case at(0) == "crm" && at(1) == "v3" && at(2) == "properties" && at(3) == "contacts":
		c.propertiesOf(p[4:])
	case at(0) == "communication-preferences" && (isDated(at(1)) || at(1) == "v4"):
		c.preferences(p[2:])
	case strings.Join(p, "/") == "oauth/v2/private-apps/get/access-token-info" && c.r.Method == http.MethodPost:
		c.tokenInfo()
	case at(0) == "account-info" && at(1) == "v3" && at(2) == "details":
		c.write(http.StatusOK, map[string]any{"portalId": c.a.HubID, "timeZone": c.a.TimeZone.String(), "accountType": "STANDARD"})
	default:
		c.notFound()
	}
}

func (c *call) notFound() {
	c.fail(http.StatusNotFound, "OBJECT_NOT_FOUND", "resource not found")
}

func isDated(version string) bool { return version == "2026-03" || version == "2026-09" }
