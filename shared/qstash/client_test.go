package qstash_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hubsync/shared/casetest"
	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
)

func client(t *testing.T, url string) *qstash.Client {
	t.Helper()
	c, err := qstash.New(qstash.Config{BaseURL: url, Token: func(context.Context) (string, error) { return qstashtest.DefaultToken, nil }, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answering(t *testing.T, h http.HandlerFunc) *qstash.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return client(t, server.URL)
}

func two() []qstash.Message {
	m := qstash.Message{Destination: subject, Body: body, DeduplicationID: "a_r1", Retries: 5, Timeout: 75 * time.Second,
		FlowControl: qstash.FlowControl{Key: "hubsync-test-main-live", Rate: 150, Period: 10 * time.Second, Parallelism: 12}}
	other := m
	other.DeduplicationID = "b_r1"
	return []qstash.Message{m, other}
}

// Only a message id is success; whatever else an answer says, or does not, has its kind.
func TestAnswersAreJudgedStrictly(t *testing.T) {
	t.Parallel()
	cut := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
	text := func(status int, content string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, content)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		whole  qstash.Kind // of the call
		items  [2]qstash.Kind
	}{
		"both":            {answer: text(200, `[{"messageId":"m1"},{"messageId":"m2","deduplicated":true}]`)},
		"created":         {answer: text(201, `[{"messageId":"m1"},{"messageId":"m2"}]`)},
		"one error":       {answer: text(200, `[{"messageId":"m1"},{"error":"bad","status":400}]`), items: [2]qstash.Kind{"", qstash.KindInvalid}},
		"too few":         {answer: text(200, `[{"messageId":"m1"}]`), items: [2]qstash.Kind{"", qstash.KindUnknown}},
		"nothing said":    {answer: text(200, `[{},{"messageId":"m2"}]`), items: [2]qstash.Kind{qstash.KindUnknown, ""}},
		"empty":           {answer: text(200, ``), whole: qstash.KindUnknown},
		"html":            {answer: text(200, `<html>`), whole: qstash.KindUnknown},
		"an object":       {answer: text(200, `{"messageId":"m1"}`), whole: qstash.KindUnknown},
		"huge":            {answer: text(200, `[`+strings.Repeat(" ", 2<<20)+`]`), whole: qstash.KindUnknown},
		"truncated":       {answer: text(200, `[{"messageId"`, "Content-Length", "500"), whole: qstash.KindUnknown},
		"cut off":         {answer: cut, whole: qstash.KindUnknown},
		"slow":            {answer: func(http.ResponseWriter, *http.Request) { time.Sleep(1500 * time.Millisecond) }, whole: qstash.KindUnknown},
		"400":             {answer: text(400, `{"error":"x"}`), whole: qstash.KindInvalid},
		"401":             {answer: text(401, `{}`), whole: qstash.KindUnauthorized},
		"412":             {answer: text(412, `{}`), whole: qstash.KindTooLarge},
		"daily 429":       {answer: text(429, `{}`, "RateLimit-Remaining", "0", "Retry-After", "7"), whole: qstash.KindDailyLimited},
		"burst 429":       {answer: text(429, `{}`, "Burst-RateLimit-Remaining", "0", "RateLimit-Remaining", "0"), whole: qstash.KindBurstLimited},
		"503":             {answer: text(503, `oops`), whole: qstash.KindUnavailable},
		"redirect":        {answer: text(307, ``, "Location", "http://127.0.0.1:1/"), whole: qstash.KindInvalid},
		"unknown members": {answer: text(200, `[{"messageId":"m1","x":1},{"messageId":"m2"}]`)},
	} {
		casetest.Add()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, err := answering(t, tc.answer).PublishBatch(t.Context(), two())
			var qe *qstash.Error
			if tc.whole != "" {
				if !errors.As(err, &qe) || qe.Kind != tc.whole {
					t.Errorf("error %v, want kind %s", err, tc.whole)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range tc.items {
				got := qstash.Kind("")
				if results[i].Err != nil {
					got = results[i].Err.Kind
				}
				if got != want {
					t.Errorf("item %d: kind %q, want %q", i, got, want)
				}
			}
		})
	}
}

// A malformed message must not take the others with it: QStash refuses a whole batch.
func TestABadMessageIsHeldBackAlone(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent.Store(int64(strings.Count(string(content), `"destination"`)))
		_, _ = io.WriteString(w, `[{"messageId":"m1"}]`)
	})
	for name, spoil := range map[string]func(*qstash.Message){
		"colon":       func(m *qstash.Message) { m.DeduplicationID = "a:1" },
		"destination": func(m *qstash.Message) { m.Destination = "/relative" },
		"flow key":    func(m *qstash.Message) { m.FlowControl.Key = "a b" },
		"label":       func(m *qstash.Message) { m.Label = "ä" },
		"header":      func(m *qstash.Message) { m.Forward = map[string]string{"traceparent": "a\r\nX: y"} },
	} {
		casetest.Add()
		messages := two()
		spoil(&messages[0])
		results, err := c.PublishBatch(t.Context(), messages)
		if err != nil || results[0].Err == nil || results[0].Err.Kind != qstash.KindInvalid || results[1].MessageID != "m1" || sent.Load() != 1 {
			t.Errorf("%s: %+v, %v, sent %d", name, results, err, sent.Load())
		}
	}
	if _, err := c.PublishBatch(t.Context(), make([]qstash.Message, 101)); err == nil {
		t.Error("a batch of 101 is accepted")
	}
}

func TestErrorsShowNeitherTokenNorBody(t *testing.T) {
	t.Parallel()
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(append(content, r.Header.Get("Authorization")...))
	})
	_, err := c.PublishBatch(t.Context(), two())
	_, unreachable := client(t, "http://127.0.0.1:1").PublishBatch(t.Context(), two())
	for _, e := range []error{err, unreachable} {
		if e == nil || strings.Contains(e.Error(), qstashtest.DefaultToken) || strings.Contains(e.Error(), "eventIds") {
			t.Errorf("error %v", e)
		}
	}
	var qe *qstash.Error
	if !errors.As(unreachable, &qe) || qe.Kind != qstash.KindUnavailable {
		t.Errorf("nothing was sent, and it says %v", unreachable)
	}
}

func TestDecodeFailure(t *testing.T) {
	t.Parallel()
	f, err := qstash.DecodeFailure([]byte(`{"status":500,"retried":5,"maxRetries":5,"dlqId":"d","sourceMessageId":"m","url":"u","sourceBody":"e30=","new":1}`))
	if err != nil || f.SourceMessageID != "m" || string(f.SourceBody) != "{}" || f.Retried != 5 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range []string{``, `[]`, `{"sourceBody":"%"}`, `{"sourceBody":`} {
		casetest.Add()
		if _, err := qstash.DecodeFailure([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
