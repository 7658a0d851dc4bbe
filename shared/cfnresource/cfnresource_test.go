package cfnresource

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// stack is the end of CloudFormation: it takes answers at a signed URL.
type stack struct {
	url     string
	refuse  int // so many answers first
	mu      sync.Mutex
	answers []map[string]string
}

func newStack(t *testing.T) *stack {
	s := &stack{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		answer := map[string]string{}
		// The signature covers neither another method nor a content type.
		if r.Method != http.MethodPut || r.Header.Get("Content-Type") != "" || r.URL.Query().Get("signature") != "s3cret" || json.Unmarshal(body, &answer) != nil {
			t.Errorf("%s %s, type %q, body %s", r.Method, r.URL, r.Header.Get("Content-Type"), body)
		}
		if s.refuse > 0 {
			s.refuse--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.answers = append(s.answers, answer)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/bucket/stack?signature=s3cret"
	return s
}

func (s *stack) event(kind, version, old string) json.RawMessage {
	raw, _ := json.Marshal(map[string]any{
		"RequestType": kind, "ResponseURL": s.url, "StackId": "arn:aws:cloudformation:eu-central-1:123456789012:stack/hubsync/1", "RequestId": "r1",
		"LogicalResourceId": "Migration", "PhysicalResourceId": map[string]string{"Create": ""}[kind] + map[bool]string{true: "schema"}[kind != "Create"],
		"ResourceProperties":    map[string]any{"ServiceToken": "arn", "Version": version},
		"OldResourceProperties": map[string]any{"Version": old},
	})
	return raw
}

func resource(apply func(context.Context, Request) error) Resource {
	return Resource{ID: "schema", Apply: apply, Client: http.DefaultClient, Wait: func(context.Context, time.Duration) {}}
}

func verbs(_ context.Context, q struct{ Verb string }) (string, error) { return "did " + q.Verb, nil }

func TestSchemaMigratesToItsOwnVersionAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, version string
		migrates      bool
		status        string
	}{
		"first deployment":             {"Create", "ccc", true, "SUCCESS"},
		"next deployment":              {"Update", "ccc", true, "SUCCESS"},
		"rollback to an older one":     {"Update", "aaa", false, "SUCCESS"},
		"deletion keeps the data":      {"Delete", "ccc", false, "SUCCESS"},
		"deletion of an unknown one":   {"Delete", "zzz", false, "SUCCESS"},
		"template newer than build":    {"Update", "ddd", false, "FAILED"},
		"first with yesterday's build": {"Create", "bbb", false, "FAILED"},
		"no version":                   {"Create", "", false, "FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, migrated := newStack(t), false
			serve := Before(resource(Schema([]string{"aaa", "bbb", "ccc"}, func(context.Context) error { migrated = true; return nil })), verbs)
			if _, err := serve(t.Context(), s.event(c.kind, c.version, "bbb")); err != nil {
				t.Fatal(err)
			}
			if migrated != c.migrates || len(s.answers) != 1 || s.answers[0]["Status"] != c.status || s.answers[0]["PhysicalResourceId"] != "schema" ||
				s.answers[0]["RequestId"] != "r1" || s.answers[0]["LogicalResourceId"] != "Migration" || !strings.HasSuffix(s.answers[0]["StackId"], "/1") {
				t.Errorf("migrated %v, answers %v", migrated, s.answers)
			}
			if c.status == "FAILED" && !strings.Contains(s.answers[0]["Reason"], "sam build") {
				t.Errorf("the reason does not say what to do: %s", s.answers[0]["Reason"])
			}
		})
	}
}

func TestTheStackHearsOfEveryFailure(t *testing.T) {
	t.Parallel()
	for name, apply := range map[string]func(context.Context, Request) error{
		"error": func(context.Context, Request) error { return errors.New("step 7: " + strings.Repeat("é", 5000)) },
		"panic": func(context.Context, Request) error { panic("step 7") },
		"late": func(ctx context.Context, _ Request) error {
			<-ctx.Done()
			return errors.New("step 7 ran out of time")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			ctx, cancel := context.WithTimeout(t.Context(), answerReserve+50*time.Millisecond)
			defer cancel()
			if _, err := Before(resource(apply), verbs)(ctx, s.event("Update", "x", "y")); err != nil {
				t.Fatal(err)
			}
			if len(s.answers) != 1 || s.answers[0]["Status"] != "FAILED" || !strings.Contains(s.answers[0]["Reason"], "step 7") || len(s.answers[0]["Reason"]) > 2*maxReason+10 {
				t.Errorf("answers %v", s.answers)
			}
		})
	}
}

func TestAnswerIsTriedAgainAndItsURLIsNeverShown(t *testing.T) {
	t.Parallel()
	ok := func(context.Context, Request) error { return nil }
	s := newStack(t)
	s.refuse = answerTries - 1
	if _, err := Before(resource(ok), verbs)(t.Context(), s.event("Create", "x", "")); err != nil || len(s.answers) != 1 {
		t.Errorf("%v, %v", err, s.answers)
	}
	s.refuse = answerTries
	_, err := Before(resource(ok), verbs)(t.Context(), s.event("Create", "x", ""))
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v", err)
	}
	for _, target := range []string{"http://127.0.0.1:1/x?signature=s3cret", "http://[::1/x?signature=s3cret"} {
		s.url = target
		if _, err := Before(resource(ok), verbs)(t.Context(), s.event("Create", "x", "")); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error %v", err)
		}
	}
}

func TestWhatIsNotCloudFormationsGoesOn(t *testing.T) {
	t.Parallel()
	serve := Before(resource(func(context.Context, Request) error { t.Error("applied"); return nil }), verbs)
	for _, raw := range []string{`{"verb":"migrate"}`, `{"verb":"migrate","RequestType":"Create"}`, `{"verb":"migrate","RequestType":"Grow","ResponseURL":"u","StackId":"s","RequestId":"r"}`} {
		if got, err := serve(t.Context(), []byte(raw)); err != nil || got != "did migrate" {
			t.Errorf("%s: %v, %v", raw, got, err)
		}
	}
	if _, err := serve(t.Context(), []byte(`[]`)); err == nil {
		t.Error("a list was taken for a request")
	}
}
