package qstashtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

const (
	statusNonRetryable = 489
	maxRetryAfter      = 24 * time.Hour
	keptBody           = 64 << 10
)

// deliver makes one attempt.
func (s *Server) deliver(f *flow, m *message) {
	defer s.wg.Done()
	status, header, body := s.attempt(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.inFlight--
	m.lastStatus, m.lastHeader, m.lastBody = status, header, body
	s.stats.Attempts++
	s.settle(m, status, header)
	s.pump(f)
}

// settle decides what an attempt's answer leads to. The caller holds the lock.
func (s *Server) settle(m *message, status int, header http.Header) {
	switch {
	case m.cancelled || s.closed:
		delete(s.messages, m.ID)
	case status >= 200 && status < 300:
		s.stats.Delivered++
		s.log(m, "DELIVERED")
		delete(s.messages, m.ID)
		s.callback(m, m.Callback, 0)
	case status == statusNonRetryable && header.Get("Upstash-NonRetryable-Error") == "true", m.Retried >= m.MaxRetries:
		s.bury(m)
	default:
		s.stats.Retried++
		s.log(m, "RETRY")
		m.NotBefore = s.opts.Clock.Now().Add(retryIn(m, header))
		m.Retried++
		s.schedule(m)
	}
}

// bury moves a message to the dead-letter queue and calls back.
func (s *Server) bury(m *message) {
	s.stats.Dead++
	s.log(m, "FAILED")
	delete(s.messages, m.ID)
	if m.IsCallback {
		return
	}
	m.dlqID = "dlq_" + uuid.NewString()
	s.dlq = append(s.dlq, m)
	s.callback(m, m.FailureURL, m.FailRetries)
}

// attempt sends the message and returns the answer; status 0: none.
func (s *Server) attempt(m *message) (int, http.Header, []byte) {
	ctx, cancel := context.WithTimeout(s.ctx, m.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, m.Method, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return 0, nil, nil
	}
	s.mu.Lock()
	key := s.keys[0]
	s.mu.Unlock()
	signature, err := Sign(key, m.URL, m.Body, uuid.NewString(), s.opts.Clock.Now())
	if err != nil {
		return 0, nil, nil
	}
	request.Header = m.Header.Clone()
	request.Header.Set("Upstash-Signature", signature)
	request.Header.Set("Upstash-Message-Id", m.ID)
	request.Header.Set("Upstash-Retried", strconv.Itoa(m.Retried))
	request.Header.Set("Upstash-Region", "us-east-1")
	request.Header.Set("User-Agent", "Upstash-QStash")
	response, err := s.opts.Client.Do(request)
	if err != nil {
		return 0, nil, nil
	}
	defer func() { _ = response.Body.Close() }() // what counts was read
	body, _ := io.ReadAll(io.LimitReader(response.Body, keptBody))
	return response.StatusCode, response.Header, body
}

// retryIn is the gap before the next attempt: what the endpoint says (up to a day),
// else the message's own expression, else QStash's min(86400, e^(2.5 n)) seconds.
func retryIn(m *message, header http.Header) time.Duration {
	for _, name := range []string{"Retry-After", "X-RateLimit-Reset"} {
		if d, ok := readRetryAfter(header.Get(name)); ok {
			return d
		}
	}
	if m.RetryDelay != "" {
		if ms, err := evaluate(m.RetryDelay, m.Retried); err == nil {
			return time.Duration(ms * float64(time.Millisecond))
		}
	}
	return time.Duration(math.Min(86400, math.Exp(2.5*float64(m.Retried+1))) * float64(time.Second))
}

func readRetryAfter(text string) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds < 0 {
		return 0, false
	}
	return min(time.Duration(seconds*float64(time.Second)), maxRetryAfter), true
}

// callback publishes what became of a message to a URL; it is a message itself, with
// the original's retries unless told otherwise. The caller holds the lock.
func (s *Server) callback(m *message, to string, retries int) {
	if to == "" || m.IsCallback {
		return
	}
	body, err := json.Marshal(map[string]any{
		"status": m.lastStatus, "header": m.lastHeader, "body": base64.StdEncoding.EncodeToString(m.lastBody),
		"retried": m.Retried, "maxRetries": m.MaxRetries, "dlqId": m.dlqID, "sourceMessageId": m.ID, "url": m.URL,
		"method": m.Method, "sourceHeader": m.Header, "sourceBody": base64.StdEncoding.EncodeToString(m.Body),
		"createdAt": m.CreatedAt.UnixMilli(), "notBefore": m.NotBefore.UnixMilli(),
	})
	if err != nil {
		return
	}
	if retries < 0 {
		retries = m.MaxRetries
	}
	cb := &message{
		ID: "msg_" + uuid.NewString(), URL: to, Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/json"}},
		Body: body, MaxRetries: retries, Timeout: defaultTimeout, NotBefore: s.opts.Clock.Now(), CreatedAt: s.opts.Clock.Now(),
		IsCallback: true, Flow: flowSettings{},
	}
	s.messages[cb.ID] = cb
	s.schedule(cb)
}
