package qstashtest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Faults are the ways in which the server misbehaves. Probabilities are from 0 to 1.
type Faults struct {
	Duplicate   float64 `json:"duplicate"`   // a message is delivered twice
	ShuffleMs   int     `json:"shuffleMs"`   // deliveries wait a random while, so that they overtake each other
	Drop        float64 `json:"drop"`        // a message is accepted and never delivered
	LoseReply   float64 `json:"loseReply"`   // a publish is accepted and not answered
	BatchStatus int     `json:"batchStatus"` // every publish is refused with this status
	DailyLimit  bool    `json:"dailyLimit"`  // … and a 429 is the daily one
	// ItemErrorContains refuses those items of a batch whose body holds this text.
	ItemErrorContains string `json:"itemErrorContains"`
	// RefuseBatchContaining refuses a whole batch when an item's body holds this text.
	RefuseBatchContaining string `json:"refuseBatchContaining"`
}

// SetFaults replaces the faults.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// chance draws. The caller holds the lock.
func (s *Server) chance(p float64) bool { return p > 0 && s.random.Float64() < p }

// misbehaves answers a publish with a fault that refuses it.
func (c *call) misbehaves() bool {
	s := c.server
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	status := f.BatchStatus
	if status == 0 && f.RefuseBatchContaining != "" && strings.Contains(string(c.body), f.RefuseBatchContaining) {
		status = http.StatusBadRequest
	}
	if status == 0 {
		return false
	}
	if status == http.StatusTooManyRequests {
		name := "Burst-RateLimit-"
		if f.DailyLimit {
			name = "RateLimit-"
		}
		c.w.Header().Set(name+"Limit", "1000")
		c.w.Header().Set(name+"Remaining", "0")
		c.w.Header().Set("Retry-After", "1")
	}
	fail(c.w, status, "as told")
	return true
}

// losesReply cuts the connection after a publish was accepted.
func (c *call) losesReply() bool {
	c.server.mu.Lock()
	lose := c.server.chance(c.server.faults.LoseReply)
	c.server.mu.Unlock()
	if !lose {
		return false
	}
	if conn, _, err := http.NewResponseController(c.w).Hijack(); err == nil {
		_ = conn.Close() // that is the fault
		return true
	}
	return false
}

func (s *Server) itemFault(m *message) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.faults.ItemErrorContains; t != "" && strings.Contains(string(m.Body), t) {
		return "as told"
	}
	return ""
}

// admin serves the emulator's own verbs: POST /__emu/faults, GET /__emu/stats.
func (s *Server) admin(w http.ResponseWriter, r *http.Request, path string) {
	switch {
	case path == "/__emu/faults" && r.Method == http.MethodPost:
		var f Faults
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		s.SetFaults(f)
		reply(w, http.StatusOK, f)
	case path == "/__emu/stats" && r.Method == http.MethodGet:
		reply(w, http.StatusOK, s.Stats())
	default:
		fail(w, http.StatusNotFound, "not found")
	}
}
