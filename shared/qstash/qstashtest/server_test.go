package qstashtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/upstash/qstash-go"
)

// world is an emulator on a socket, and an endpoint that notes what it gets and answers
// as told.
type world struct {
	*Server
	url, endpoint string
	sdk           *sdk.Client

	mu     sync.Mutex
	got    []*http.Request
	bodies []string
	answer func(n int, w http.ResponseWriter)
	peak   int
	active int
}

func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	w := &world{Server: New(o)}
	api := httptest.NewServer(w.Handler())
	endpoint := httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(func() { w.Close(); api.Close(); endpoint.Close() })
	w.url, w.endpoint = api.URL, endpoint.URL
	w.sdk = sdk.NewClientWith(sdk.Options{Url: api.URL, Token: DefaultToken})
	return w
}

func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.got, w.bodies = append(w.got, r), append(w.bodies, string(body))
	n, answer := len(w.got), w.answer
	w.active++
	w.peak = max(w.peak, w.active)
	w.mu.Unlock()
	if answer != nil {
		answer(n, rw)
	}
	w.mu.Lock()
	w.active--
	w.mu.Unlock()
}

func (w *world) deliveries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.got)
}

func (w *world) idle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if w.Idle() {
			return
		}
	}
	t.Fatalf("not idle: %+v", w.Stats())
}

// publish sends a message with headers and returns status and body.
func (w *world) publish(t *testing.T, body string, headers ...string) (int, string) {
	t.Helper()
	return w.call(t, http.MethodPost, "/v2/publish/"+w.endpoint+"/hook", body, headers...)
}

func (w *world) call(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+DefaultToken)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(content)
}

func TestTheSDKPublishesAndItsReceiverVerifies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	r, err := w.sdk.PublishJSON(sdk.PublishJSONOptions{Url: w.endpoint + "/hook", Body: map[string]any{"a": 1}, Headers: map[string]string{"X-Forwarded": "yes"}, DeduplicationId: "d1"})
	if err != nil || r.MessageId == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	again, err := w.sdk.PublishJSON(sdk.PublishJSONOptions{Url: w.endpoint + "/hook", Body: map[string]any{"a": 1}, DeduplicationId: "d1"})
	if err != nil || !again.Deduplicated || again.MessageId != r.MessageId {
		t.Errorf("twin: %+v, %v", again, err)
	}
	w.idle(t)
	if w.deliveries() != 1 {
		t.Fatalf("%d deliveries", w.deliveries())
	}
	got := w.got[0]
	if got.Header.Get("Upstash-Message-Id") != r.MessageId || got.Header.Get("Upstash-Retried") != "0" || got.Header.Get("X-Forwarded") != "yes" {
		t.Errorf("headers %v", got.Header)
	}
	err = sdk.NewReceiver(DefaultCurrentKey, DefaultNextKey).Verify(sdk.VerifyOptions{
		Signature: got.Header.Get("Upstash-Signature"), Body: w.bodies[0], Url: w.endpoint + "/hook"})
	if err != nil {
		t.Errorf("the SDK's receiver refuses our signature: %v", err)
	}
}

func TestTheSDKSeesDeadLettersMessagesAndKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.answer = func(_ int, rw http.ResponseWriter) { rw.WriteHeader(http.StatusTeapot) }
	for range 3 {
		if _, err := w.sdk.Publish(sdk.PublishOptions{Url: w.endpoint + "/hook", Body: "x", Retries: sdk.RetryCount(0)}); err != nil {
			t.Fatal(err)
		}
	}
	w.idle(t)
	dead, _, err := w.sdk.Dlq().List(sdk.ListDlqOptions{})
	if err != nil || len(dead) != 3 || dead[0].ResponseStatus != http.StatusTeapot {
		t.Fatalf("%+v, %v", dead, err)
	}
	if one, err := w.sdk.Dlq().Get(dead[0].DlqId); err != nil || one.DlqId != dead[0].DlqId {
		t.Errorf("%+v, %v", one, err)
	}
	if err := w.sdk.Dlq().Delete(dead[0].DlqId); err != nil {
		t.Error(err)
	}
	if err := w.sdk.Dlq().Delete(dead[0].DlqId); err == nil {
		t.Error("deleted twice")
	}
	if n, err := w.sdk.Dlq().DeleteMany([]string{dead[1].DlqId, "unknown"}); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	w.answer = nil
	if status, body := w.call(t, http.MethodPost, "/v2/dlq/retry?dlqIds="+dead[2].DlqId, ""); status != 200 || !strings.Contains(body, "messageId") {
		t.Errorf("%d %s", status, body)
	}
	w.idle(t)
	later, err := w.sdk.Publish(sdk.PublishOptions{Url: w.endpoint + "/hook", Body: "x", Delay: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := w.sdk.Messages().Get(later.MessageId); err != nil || m.MessageId != later.MessageId {
		t.Errorf("%+v, %v", m, err)
	}
	if err := w.sdk.Messages().Cancel(later.MessageId); err != nil {
		t.Error(err)
	}
	if _, err := w.sdk.Messages().Get(later.MessageId); err == nil {
		t.Error("a cancelled message is still there")
	}
	keys, err := w.sdk.Keys().Get()
	if err != nil || keys.Current != DefaultCurrentKey || keys.Next != DefaultNextKey {
		t.Errorf("%+v, %v", keys, err)
	}
	rotated, err := w.sdk.Keys().Rotate()
	if err != nil || rotated.Current != DefaultNextKey || rotated.Next == DefaultNextKey {
		t.Errorf("%+v, %v", rotated, err)
	}
	events, _, err := w.sdk.Events().List(sdk.ListEventsOptions{})
	if err != nil || len(events) == 0 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestRetriesFollowTheEndpointThenTheExpression(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.answer = func(n int, rw http.ResponseWriter) {
		if n < 4 {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	w.publish(t, "x", "Upstash-Retries", "5", "Upstash-Retry-Delay", "min(40, 10 * pow(2, retried))")
	w.idle(t)
	if st := w.Stats(); st.Attempts != 4 || st.Delivered != 1 || st.Retried != 3 {
		t.Errorf("%+v", st)
	}
	if w.got[3].Header.Get("Upstash-Retried") != "3" || w.got[0].Header.Get("Upstash-Signature") == w.got[1].Header.Get("Upstash-Signature") {
		t.Error("the count or the signature is not of the attempt")
	}
	h := http.Header{}
	h.Set("Retry-After", "100000000")
	if got := retryIn(&message{}, h); got != 24*time.Hour {
		t.Errorf("Retry-After of years: %s", got)
	}
	if got := retryIn(&message{Retried: 1}, http.Header{}); got < 148*time.Second || got > 149*time.Second {
		t.Errorf("QStash's second gap: %s", got)
	}
}

func TestNonRetryableGoesToTheDeadLettersAndCallsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.answer = func(n int, rw http.ResponseWriter) {
		if n == 1 {
			rw.Header().Set("Upstash-NonRetryable-Error", "true")
			rw.WriteHeader(statusNonRetryable)
		}
	}
	w.publish(t, "the body", "Upstash-Retries", "5", "Upstash-Failure-Callback", w.endpoint+"/failed")
	w.idle(t)
	if st := w.Stats(); st.Dead != 1 || w.deliveries() != 2 || w.got[1].URL.Path != "/failed" {
		t.Fatalf("%+v, %d deliveries", st, w.deliveries())
	}
	if !strings.Contains(w.bodies[1], `"sourceBody":"dGhlIGJvZHk="`) || w.got[1].Header.Get("Upstash-Signature") == "" {
		t.Errorf("callback %s", w.bodies[1])
	}
}

func TestFlowControlBoundsParallelismAndRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.answer = func(int, http.ResponseWriter) { time.Sleep(20 * time.Millisecond) }
	for i := range 20 {
		w.publish(t, fmt.Sprint(i), "Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "parallelism=3, rate=1000, period=1s")
	}
	w.idle(t)
	if w.peak > 3 || w.deliveries() != 20 {
		t.Errorf("%d at once, %d deliveries", w.peak, w.deliveries())
	}
	began := time.Now()
	for i := range 5 {
		w.publish(t, fmt.Sprint(i), "Upstash-Flow-Control-Key", "slow", "Upstash-Flow-Control-Value", "rate=2, period=1s")
	}
	w.idle(t)
	if took := time.Since(began); took < time.Second {
		t.Errorf("5 messages at 2 a second took %s", took)
	}
	if status, body := w.call(t, http.MethodPost, "/v2/flowControl/k/pause", ""); status != 200 || !strings.Contains(body, `"isPaused":true`) {
		t.Errorf("%d %s", status, body)
	}
	before := w.deliveries()
	w.publish(t, "held", "Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "parallelism=3")
	time.Sleep(30 * time.Millisecond)
	if w.deliveries() != before {
		t.Error("a paused key delivers")
	}
	w.call(t, http.MethodPost, "/v2/flowControl/k/resume", "")
	w.idle(t)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	for name, tc := range map[string]struct {
		headers []string
		status  int
	}{
		"good":            {nil, 201},
		"token":           {[]string{"Authorization", "Bearer x"}, 401},
		"colon":           {[]string{"Upstash-Deduplication-Id", "a:b"}, 400},
		"label":           {[]string{"Upstash-Label", "a b"}, 400},
		"flow key":        {[]string{"Upstash-Flow-Control-Key", "a b", "Upstash-Flow-Control-Value", "rate=1"}, 400},
		"flow value":      {[]string{"Upstash-Flow-Control-Key", "a", "Upstash-Flow-Control-Value", "speed=1"}, 400},
		"flow, no value":  {[]string{"Upstash-Flow-Control-Key", "a"}, 400},
		"retries":         {[]string{"Upstash-Retries", "many"}, 400},
		"timeout":         {[]string{"Upstash-Timeout", "soon"}, 400},
		"delay":           {[]string{"Upstash-Delay", "-"}, 400},
		"retry delay":     {[]string{"Upstash-Retry-Delay", "retried +"}, 400},
		"retry delay fn":  {[]string{"Upstash-Retry-Delay", "system(1)"}, 400},
		"retry delay neg": {[]string{"Upstash-Retry-Delay", "-5"}, 400},
	} {
		if status, body := w.publish(t, "x", tc.headers...); status != tc.status {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	batch := `[{"destination":"` + w.endpoint + `","body":"1"},{"destination":"` + w.endpoint + `","headers":{"upstash-deduplication-id":"a:b"},"body":"2"}]`
	before := w.Stats().Published
	if status, _ := w.call(t, http.MethodPost, "/v2/batch", batch); status != 400 || w.Stats().Published != before {
		t.Errorf("a batch with one bad item: %d", status)
	}
	if status, _ := w.call(t, http.MethodPost, "/v2/publish/ftp://x.example.com", "x"); status != 400 {
		t.Errorf("ftp: %d", status)
	}
	if status, _ := w.call(t, http.MethodPost, "/v2/publish/"+w.endpoint, string(bytes.Repeat([]byte("x"), maxBodySize+1))); status != 412 {
		t.Errorf("oversize: %d", status)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	if status, body := w.call(t, http.MethodPost, "/__emu/faults", `{"duplicate":1,"shuffleMs":5}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	w.publish(t, "x")
	w.idle(t)
	if w.deliveries() != 2 {
		t.Errorf("%d deliveries of a duplicated message", w.deliveries())
	}
	w.SetFaults(Faults{Drop: 1})
	w.publish(t, "x")
	w.SetFaults(Faults{LoseReply: 1})
	if status, _ := w.publish(t, "x"); status != 0 {
		t.Errorf("a lost reply came: %d", status)
	}
	w.idle(t)
	if w.deliveries() != 3 {
		t.Errorf("%d deliveries after a dropped and an unanswered message", w.deliveries())
	}
	w.SetFaults(Faults{BatchStatus: 429, DailyLimit: true})
	if status, _ := w.publish(t, "x"); status != 429 {
		t.Errorf("%d", status)
	}
	if status, _ := w.call(t, http.MethodPost, "/__emu/faults", `{"unknown":1}`); status != 400 {
		t.Errorf("an unknown fault: %d", status)
	}
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"1000": 1000, "1000 * (1 + retried)": 3000, "pow(2, retried) * 10": 40, "min(60000, max(5, 3))": 5, "10 - 2 - 3": 5,
		"exp(0) + sqrt(4)": 3, "-(-7)": 7, "8 / 4 / 2": 1, "round(2.6) + floor(2.6) + ceil(2.1)": 8,
	} {
		if got, err := evaluate(text, 2); err != nil || got != want {
			t.Errorf("%s = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1 +", "(1", "pow(2)", "x", "1/0", "0/0", "1 2", "min(1,2", "2 ** 3"} {
		if got, err := evaluate(text, 2); err == nil {
			t.Errorf("%q = %v", text, got)
		}
	}
}
