package hubspottest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Fault is a rule by which the server misbehaves. A call matches by portal, method and
// a part of its route (all empty: every call), with a probability, at most Count times
// (0: always).
type Fault struct {
	Portal      string  `json:"portal,omitempty"`
	Method      string  `json:"method,omitempty"`
	Route       string  `json:"route,omitempty"`
	Probability float64 `json:"probability"`
	Count       int     `json:"count,omitempty"`

	// What happens, one of:
	Status     int               `json:"status,omitempty"` // refused: nothing is written
	Header     map[string]string `json:"header,omitempty"`
	Body       string            `json:"body,omitempty"`
	LoseReply  bool              `json:"loseReply,omitempty"`  // written, and the connection is cut
	LandLateMs int               `json:"landLateMs,omitempty"` // the connection is cut, and the write lands later
	Truncate   bool              `json:"truncate,omitempty"`   // written, and the answer ends in the middle
	Replace    string            `json:"replace,omitempty"`    // written, and answered with this body,
	ReplaceAs  int               `json:"replaceAs,omitempty"`  // under this status (0: 200)
	SlowMs     int               `json:"slowMs,omitempty"`     // written, and answered late

	used int
}

// SetFaults replaces the rules; the first that matches a call applies.
func (s *Server) SetFaults(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
	for _, f := range faults {
		s.rules = append(s.rules, &f)
	}
}

// faultFor draws for a call. The lock is held.
func (s *Server) faultFor(c *call) *Fault {
	for _, f := range s.rules {
		switch {
		case f.Count > 0 && f.used >= f.Count,
			f.Portal != "" && (c.a == nil || c.a.ID != f.Portal),
			f.Method != "" && f.Method != c.r.Method,
			!strings.Contains(c.route(), f.Route),
			s.random.Float64() >= f.Probability:
			continue
		}
		f.used++
		return f
	}
	return nil
}

// refuses: the call is not carried out (now).
func (f *Fault) refuses() bool { return f.Status != 0 || f.LandLateMs > 0 }

// answer is what a refused call gets.
func (f *Fault) answer(c *call) {
	if f.Status == 0 {
		return
	}
	for name, value := range f.Header {
		c.answers.header.Set(name, value)
	}
	if f.Body != "" {
		if !strings.HasPrefix(strings.TrimSpace(f.Body), "{") {
			c.answers.header.Set("Content-Type", "text/html")
		}
		c.answers.status, c.answers.body = f.Status, []byte(f.Body)
		return
	}
	c.fail(f.Status, "FAULT", "as told")
}

// afterwards does what happens after the call was carried out; true: it was answered.
func (f *Fault) afterwards(w http.ResponseWriter, s *Server, c *call, a answer) bool {
	switch {
	case f.LandLateMs > 0:
		time.AfterFunc(time.Duration(f.LandLateMs)*time.Millisecond, func() {
			defer s.late.Done()
			s.mu.Lock()
			defer s.mu.Unlock()
			c.now = s.opts.Now()
			if c.a != nil {
				c.operate()
			}
		})
		cut(w)
		return true
	case f.LoseReply:
		cut(w)
		return true
	case f.Truncate:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100000")
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body[:len(a.body)/2]) // that is the fault
		return true
	case f.Replace != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(cmp.Or(f.ReplaceAs, http.StatusOK))
		_, _ = w.Write([]byte(f.Replace))
		return true
	case f.SlowMs > 0:
		time.Sleep(time.Duration(f.SlowMs) * time.Millisecond)
	}
	return false
}

func cut(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close() // that is the fault
	}
}

// admin serves the simulator's own verbs: GET /__sim/ledger, POST /__sim/faults,
// GET and PUT /__sim/state.
func (s *Server) admin(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET /__sim/ledger":
		_ = json.NewEncoder(w).Encode(s.Ledger()) // the caller is gone: nothing to tell it
	case "POST /__sim/faults":
		var faults []Fault
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&faults); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.SetFaults(faults...)
		_ = json.NewEncoder(w).Encode(faults)
	case "GET /__sim/state":
		_ = json.NewEncoder(w).Encode(s.Dump())
	case "PUT /__sim/state":
		if err := s.LoadState(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}
