package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"time"

	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/outbox"
)

// errBroken is what a caller gets whose answer is lost; errLate one that waited in vain.
var (
	errBroken = errors.New("simulated: the connection broke")
	errLate   = errors.New("simulated: no answer in time")
)

// request is a call on its way, read whole.
type request struct {
	*http.Request
	content []byte
}

func read(r *http.Request) (request, error) {
	if r.Body == nil {
		return request{r, nil}, nil
	}
	content, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // a buffer
	// From here on the call counts as sent.
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		if trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{})
		}
		if trace.WroteHeaders != nil {
			trace.WroteHeaders()
		}
	}
	return request{r, content}, err
}

// carryOut lets a handler answer the call.
func (r request) carryOut(h http.Handler) *http.Response {
	inner := httptest.NewRequest(r.Method, r.URL.RequestURI(), bytes.NewReader(r.content))
	inner.Header = r.Header.Clone()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, inner)
	response := recorder.Result()
	response.Request = r.Request
	return response
}

func (r request) answer(status int, body string, header ...string) *http.Response {
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		recorder.Header().Set(header[i], header[i+1])
	}
	recorder.WriteHeader(status)
	_, _ = recorder.WriteString(body)
	response := recorder.Result()
	response.Request = r.Request
	return response
}

// publishing carries the relay's calls to QStash.
type publishing struct{ w *world }

func (p publishing) RoundTrip(r *http.Request) (*http.Response, error) {
	w := p.w
	w.point("before publish")
	call, err := read(r)
	if err != nil {
		return nil, err
	}
	response, err := w.publish(call)
	if w.current != nil {
		w.current.after = "publish"
	}
	return response, err
}

// deliveries carries QStash's calls to the worker: each is a process of its own, which
// goes on when QStash no longer waits.
type deliveries struct{ w *world }

func (d deliveries) RoundTrip(r *http.Request) (*http.Response, error) {
	w := d.w
	call, err := read(r)
	if err != nil {
		return nil, err
	}
	var response *http.Response
	process := w.spawn("worker", func() {
		h := w.workerProcess()
		answer := call.carryOut(h)
		w.workers = append(w.workers, h)
		w.point("before reply")
		w.trace("%s replies %d", w.current.name, answer.StatusCode)
		response = answer
	})
	w.await("waits for "+process.name, func() bool { return process.ended }, outbox.DeliverTimeout)
	w.ledger.deliveries++
	switch {
	case response == nil && process.ended: // it died: Lambda answers for it
		return call.answer(http.StatusBadGateway, `{"message":"Internal Server Error"}`), nil
	case response == nil:
		return nil, errLate
	case w.take("lost delivery reply") != nil:
		return nil, errBroken
	}
	return response, nil
}

// hubspotCalls carries the product's calls to HubSpot.
type hubspotCalls struct {
	w      *world
	portal string
}

// callTimeout is how long a caller waits for HubSpot.
const callTimeout = outbox.CallTimeout

func (h hubspotCalls) RoundTrip(r *http.Request) (*http.Response, error) {
	w := h.w
	began := w.now
	name := "HubSpot " + operation(r)
	w.point("before " + name)
	call, err := read(r)
	if err != nil {
		return nil, err
	}
	c := &sent{portal: h.portal, operation: operation(r), at: w.now, began: began, by: w.current}
	if c.by != nil {
		c.reads = maps.Clone(c.by.reads)
	}
	response, err := w.callHubSpot(c, call)
	if w.current != nil {
		w.current.after = name
	}
	if err == nil && w.now.Sub(began) > callTimeout {
		return nil, errLate // it was frozen on its way
	}
	return response, err
}

// operation is what a call to HubSpot does, without whom it is about.
func operation(r *http.Request) string {
	path := r.URL.EscapedPath()
	for _, known := range []string{
		"statuses/batch/unsubscribe-all/read", "statuses/batch/read", "statuses/batch/write",
		"contacts/batch/upsert", "contacts/batch/update", "contacts/batch/read", "memberships/add-and-remove",
	} {
		if strings.HasSuffix(path, known) {
			return known
		}
	}
	switch {
	case strings.HasSuffix(path, "/unsubscribe-all"):
		return "unsubscribe-all"
	case strings.Contains(path, "/statuses/") && r.Method == http.MethodGet:
		return "status read"
	case strings.Contains(path, "/statuses/"):
		return "status write"
	}
	return "other"
}

// carryOutHubSpot lets HubSpot answer, and notes what it did.
func (w *world) carryOutHubSpot(c *sent, call request) *http.Response {
	c.landed, c.step = w.now, w.steps
	before := len(w.hubspot.Ledger())
	response := call.carryOut(w.hubspot.Handler())
	for _, line := range w.hubspot.Ledger()[before:] {
		c.writes = append(c.writes, line.Writes...)
	}
	w.ledger.note(c, call.content)
	w.trace("HubSpot %s answers %d", c.operation, response.StatusCode)
	return response
}

// noteRead notes that a process has read an address's preferences.
func (w *world) noteRead(c *sent, call request) {
	if c.by != nil && (c.operation == "statuses/batch/read" || c.operation == "status read") {
		for _, email := range call.inputs() {
			c.by.reads[email] = w.steps
		}
	}
}

// broken is a body that ends too early.
type broken struct {
	io.ReadCloser
	left int
}

func (b *broken) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// sent is one call that reached HubSpot.
type sent struct {
	portal, operation string
	began, at, landed time.Time
	step              int
	by                *actor
	writes            []hubspottest.Write
	reads             map[string]int // of the sender, when it sent: address → step
	heard             bool           // its answer arrived
}

// inputs lists the addresses of a batch, or of a path.
func (r request) inputs() []string {
	var b struct{ Inputs []json.RawMessage }
	if err := json.Unmarshal(r.content, &b); err == nil && len(b.Inputs) > 0 {
		var addresses []string
		for _, raw := range b.Inputs {
			var email string
			if json.Unmarshal(raw, &email) == nil {
				addresses = append(addresses, strings.ToLower(email))
			}
		}
		return addresses
	}
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		if strings.Contains(segment, "@") {
			return []string{strings.ToLower(segment)}
		}
	}
	return nil
}
