package qstashtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// publishAnswer is QStash's answer for one message.
type publishAnswer struct {
	MessageID    string `json:"messageId,omitempty"`
	URL          string `json:"url,omitempty"`
	Deduplicated bool   `json:"deduplicated,omitempty"`
	Error        string `json:"error,omitempty"`
	Status       int    `json:"status,omitempty"`
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the caller is gone: nothing to tell it
}

func fail(w http.ResponseWriter, status int, text string) {
	reply(w, status, map[string]string{"error": text})
}

func (c *call) publish(destination, queue string) {
	if c.misbehaves() {
		return
	}
	m, err := newMessage(destination, c.r.Header, c.body, c.server.opts.Clock.Now())
	if err != nil {
		fail(c.w, http.StatusBadRequest, err.Error())
		return
	}
	if len(c.body) > maxBodySize {
		fail(c.w, http.StatusPreconditionFailed, "message size exceeded")
		return
	}
	m.queue = queue
	answer := c.server.accept(m)
	if c.losesReply() {
		return
	}
	reply(c.w, http.StatusCreated, answer)
}

// batchItem is one message of a batch.
type batchItem struct {
	Destination string            `json:"destination"`
	Queue       string            `json:"queue"`
	Headers     map[string]string `json:"headers"`
	Body        string            `json:"body"`
}

// batch takes all messages or none: one invalid item refuses the whole.
func (c *call) batch() {
	if c.misbehaves() {
		return
	}
	var items []batchItem
	if err := json.Unmarshal(c.body, &items); err != nil {
		fail(c.w, http.StatusBadRequest, "batch body is not an array of messages")
		return
	}
	messages := make([]*message, len(items))
	for i, item := range items {
		header := http.Header{}
		for name, value := range item.Headers {
			header.Set(name, value)
		}
		m, err := newMessage(item.Destination, header, []byte(item.Body), c.server.opts.Clock.Now())
		if err != nil {
			fail(c.w, http.StatusBadRequest, "item "+strconv.Itoa(i)+": "+err.Error())
			return
		}
		if len(item.Body) > maxBodySize {
			fail(c.w, http.StatusPreconditionFailed, "message size exceeded")
			return
		}
		m.queue = item.Queue
		messages[i] = m
	}
	answers := make([]publishAnswer, len(messages))
	for i, m := range messages {
		if text := c.server.itemFault(m); text != "" {
			answers[i] = publishAnswer{Error: text, Status: http.StatusBadRequest}
			continue
		}
		answers[i] = c.server.accept(m)
	}
	if c.losesReply() {
		return
	}
	reply(c.w, http.StatusOK, answers)
}

// accept takes a message, unless one with its deduplication id was taken lately: then
// the answer names that one and nothing is sent, whatever became of it.
func (s *Server) accept(m *message) publishAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Clock.Now()
	if m.DedupID != "" {
		if seen, ok := s.dedup[m.DedupID]; ok && now.Before(seen.until) {
			s.stats.Deduplicated++
			return publishAnswer{MessageID: seen.messageID, URL: m.URL, Deduplicated: true}
		}
	}
	m.ID = "msg_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if m.DedupID != "" {
		s.dedup[m.DedupID] = dedupSeen{m.ID, now.Add(s.opts.DedupWindow)}
	}
	s.stats.Published++
	s.log(m, "CREATED")
	if s.chance(s.faults.Drop) {
		return publishAnswer{MessageID: m.ID, URL: m.URL} // lost inside
	}
	s.messages[m.ID] = m
	s.schedule(m)
	if s.chance(s.faults.Duplicate) {
		twin := *m
		twin.ID += "_twin"
		s.messages[twin.ID] = &twin
		s.schedule(&twin)
	}
	return publishAnswer{MessageID: m.ID, URL: m.URL}
}
