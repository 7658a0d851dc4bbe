package qstashtest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// logEntry is one line of a message's history.
type logEntry struct {
	Time      int64  `json:"time"`
	State     string `json:"state"`
	MessageID string `json:"messageId"`
	URL       string `json:"url"`
	Label     string `json:"label,omitempty"`
}

// log notes a step. The caller holds the lock.
func (s *Server) log(m *message, state string) {
	s.events = append(s.events, logEntry{s.opts.Clock.Now().UnixMilli(), state, m.ID, m.URL, m.Label})
	if len(s.events) > keptEvents {
		s.events = slices.Delete(s.events, 0, len(s.events)-keptEvents)
	}
}

// view is a message as the API shows it.
func (m *message) view() map[string]any {
	v := map[string]any{
		"messageId": m.ID, "url": m.URL, "method": m.Method, "header": m.Header, "maxRetries": m.MaxRetries, "retried": m.Retried,
		"notBefore": m.NotBefore.UnixMilli(), "createdAt": m.CreatedAt.UnixMilli(),
		"failureCallback": m.FailureURL, "label": m.Label, "flowControlKey": m.Flow.Key, "body": string(m.Body),
	}
	if m.dlqID != "" {
		v["dlqId"], v["responseStatus"] = m.dlqID, m.lastStatus
		v["responseBodyBase64"] = base64.StdEncoding.EncodeToString(m.lastBody)
	}
	return v
}

func (c *call) logs(name string) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := []logEntry{}
	for i := len(s.events) - 1; i >= 0; i-- {
		if id := c.query.Get("messageId"); id == "" || id == s.events[i].MessageID {
			entries = append(entries, s.events[i])
		}
	}
	reply(c.w, http.StatusOK, map[string]any{name: entries})
}

func (c *call) keys() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(c.path, "/rotate") {
		s.keys = [2]string{s.keys[1], "sig_" + digest([]byte(s.keys[1] + time.Now().String()))[:28]}
	}
	reply(c.w, http.StatusOK, map[string]string{"current": s.keys[0], "next": s.keys[1]})
}

// messages serves GET and DELETE of single messages, and DELETE of many.
func (c *call) messages() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	id, single := strings.CutPrefix(c.path, "/messages/")
	switch {
	case single && c.r.Method == http.MethodGet:
		if m := s.messages[id]; m != nil {
			reply(c.w, http.StatusOK, m.view())
			return
		}
		fail(c.w, http.StatusNotFound, "message not found")
	case single && c.r.Method == http.MethodDelete:
		if s.cancelMessage(id) {
			reply(c.w, http.StatusAccepted, map[string]any{})
			return
		}
		fail(c.w, http.StatusNotFound, "message not found")
	case c.r.Method == http.MethodDelete:
		reply(c.w, http.StatusOK, map[string]int{"cancelled": s.cancelMany(c.query["messageIds"], c.query.Get("count"))})
	default:
		fail(c.w, http.StatusMethodNotAllowed, "method not allowed")
	}
}

func (s *Server) cancelMessage(id string) bool {
	m := s.messages[id]
	if m == nil {
		return false
	}
	m.cancelled = true
	if stop := s.timers[m]; stop != nil {
		stop()
		delete(s.timers, m)
	}
	delete(s.messages, id)
	s.log(m, "CANCELED")
	return true
}

func (s *Server) cancelMany(ids []string, count string) int {
	most, err := strconv.Atoi(count)
	if err != nil {
		most = len(s.messages)
	}
	if len(ids) == 0 {
		for id := range s.messages {
			ids = append(ids, id)
		}
	}
	n := 0
	for _, list := range ids {
		for id := range strings.SplitSeq(list, ",") {
			if n < most && s.cancelMessage(id) {
				n++
			}
		}
	}
	return n
}

// dlq serves the dead-letter queue.
func (c *call) dlq() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	id, single := strings.CutPrefix(c.path, "/dlq/")
	switch method := c.r.Method; {
	case c.path == "/dlq/retry" && method == http.MethodPost:
		responses := []map[string]string{}
		for _, m := range s.takeDead(c.dlqIDs()) {
			m.Retried, m.NotBefore, m.dlqID = 0, s.opts.Clock.Now(), ""
			s.messages[m.ID] = m
			s.schedule(m)
			responses = append(responses, map[string]string{"messageId": m.ID})
		}
		reply(c.w, http.StatusOK, map[string]any{"responses": responses})
	case !single && method == http.MethodGet:
		views := []map[string]any{}
		for _, m := range s.dlq {
			views = append(views, m.view())
		}
		reply(c.w, http.StatusOK, map[string]any{"messages": views})
	case !single && method == http.MethodDelete:
		reply(c.w, http.StatusOK, map[string]int{"deleted": len(s.takeDead(c.dlqIDs()))})
	case single && method == http.MethodGet:
		if i := s.deadIndex(id); i >= 0 {
			reply(c.w, http.StatusOK, s.dlq[i].view())
			return
		}
		fail(c.w, http.StatusNotFound, "dlq message not found")
	case single && method == http.MethodDelete:
		if len(s.takeDead([]string{id})) == 1 {
			reply(c.w, http.StatusOK, map[string]any{})
			return
		}
		fail(c.w, http.StatusNotFound, "dlq message not found")
	default:
		fail(c.w, http.StatusMethodNotAllowed, "method not allowed")
	}
}

func (c *call) dlqIDs() []string {
	var ids []string
	for _, list := range c.query["dlqIds"] {
		ids = append(ids, strings.Split(list, ",")...)
	}
	var body struct {
		IDs []string `json:"dlqIds"`
	}
	if json.Unmarshal(c.body, &body) == nil {
		ids = append(ids, body.IDs...)
	}
	return ids
}

func (s *Server) deadIndex(id string) int {
	return slices.IndexFunc(s.dlq, func(m *message) bool { return m.dlqID == id })
}

func (s *Server) takeDead(ids []string) []*message {
	var taken []*message
	for _, id := range ids {
		if i := s.deadIndex(id); i >= 0 {
			taken = append(taken, s.dlq[i])
			s.dlq = slices.Delete(s.dlq, i, i+1)
		}
	}
	return taken
}

func (c *call) globalParallelism() {
	st := c.server.Stats()
	reply(c.w, http.StatusOK, map[string]int{"parallelismMax": freeParallelism, "parallelismCount": st.InFlight})
}

// flowControl serves GET of all keys or one, and POST of its verbs.
func (c *call) flowControl() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := strings.TrimPrefix(strings.TrimPrefix(c.path, "/flowControl"), "/")
	key, verb, _ := strings.Cut(rest, "/")
	if key == "" {
		views := []map[string]any{}
		for k, f := range s.flows {
			if k != "" {
				views = append(views, f.view(k))
			}
		}
		reply(c.w, http.StatusOK, views)
		return
	}
	f := s.flows[key]
	if f == nil {
		f = &flow{settings: flowSettings{Key: key}}
		s.flows[key] = f
	}
	switch {
	case verb == "" && c.r.Method == http.MethodGet:
		reply(c.w, http.StatusOK, f.view(key))
		return
	case c.r.Method != http.MethodPost:
		fail(c.w, http.StatusMethodNotAllowed, "method not allowed")
		return
	case verb == "pause":
		f.paused = true
	case verb == "resume":
		f.paused = false
	case verb == "pin":
		c.pin(f)
	case verb == "unpin":
		f.pinned = false
	case verb == "resetRate":
		f.inWindow = 0
	default:
		fail(c.w, http.StatusNotFound, "not found")
		return
	}
	s.pump(f)
	reply(c.w, http.StatusOK, f.view(key))
}

// pin fixes a key's settings, whatever messages ask for.
func (c *call) pin(f *flow) {
	f.pinned = true
	for name, into := range map[string]*int{"parallelism": &f.settings.Parallelism, "rate": &f.settings.Rate} {
		if n, err := strconv.Atoi(c.query.Get(name)); err == nil && n > 0 {
			*into = n
		}
	}
	if d, err := duration(c.query.Get("period")); err == nil && d > 0 {
		f.settings.Period = d
	}
}

func (f *flow) view(key string) map[string]any {
	return map[string]any{
		"flowControlKey": key, "waitListSize": len(f.waiting), "parallelismMax": f.settings.Parallelism, "parallelismCount": f.inFlight,
		"rateMax": f.settings.Rate, "rateCount": f.inWindow, "ratePeriod": int(f.settings.Period / time.Second),
		"ratePeriodStart": f.windowStart.Unix(), "isPaused": f.paused, "isPinnedParallelism": f.pinned, "isPinnedRate": f.pinned,
	}
}
