package qstash_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"hubsync/shared/qstash"
	"hubsync/shared/qstash/qstashtest"
)

func TestDeadLettersAreListedAndDeleted(t *testing.T) {
	t.Setenv("QSTASH_URL", "http://elsewhere.example.com") // the SDK would send our token there
	server := qstashtest.New(qstashtest.Options{})
	api := httptest.NewServer(server.Handler())
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Upstash-NonRetryable-Error", "true")
		w.WriteHeader(489)
	}))
	t.Cleanup(func() { server.Close(); api.Close(); refusing.Close() })
	c := client(t, api.URL)
	m := two()[0]
	m.Destination, m.FailureCallback = refusing.URL, ""
	if _, err := c.PublishBatch(t.Context(), []qstash.Message{m}); err != nil {
		t.Fatal(err)
	}
	var letters []qstash.DeadLetter
	for deadline := time.Now().Add(10 * time.Second); len(letters) == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var err error
		if letters, _, err = c.DeadLetters(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if len(letters) != 1 || letters[0].ID == "" || letters[0].MessageID == "" || letters[0].Status != 489 || string(letters[0].Body) != string(m.Body) {
		t.Fatalf("%+v", letters)
	}
	if n, err := c.DeleteDeadLetters(t.Context(), []string{letters[0].ID}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if letters, next, err := c.DeadLetters(t.Context(), ""); len(letters) != 0 || next != "" || err != nil {
		t.Errorf("%+v %q %v", letters, next, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.DeadLetters(ended, ""); err == nil {
		t.Error("an ended context is not heeded")
	}
}
