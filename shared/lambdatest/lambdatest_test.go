package lambdatest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
)

// TestMain makes the test's own binary the bootstrap of a small function.
func TestMain(m *testing.M) {
	switch os.Getenv("BOOTSTRAP") {
	case "":
		os.Exit(m.Run())
	case "exits":
		os.Exit(3)
	case "sigterm":
		lambda.StartWithOptions(handle, lambda.WithEnableSIGTERM(func() {
			fmt.Println("told to end")
			os.Exit(0)
		}))
	default:
		lambda.Start(handle)
	}
}

var calls int // of one environment

func handle(ctx context.Context, event map[string]any) (any, error) {
	calls++
	switch event["do"] {
	case "panic":
		panic("boom")
	case "exit":
		os.Exit(7)
	case "error":
		return nil, errors.New("no")
	case "sleep":
		time.Sleep(time.Minute)
	case "nap":
		time.Sleep(100 * time.Millisecond)
	}
	deadline, ok := ctx.Deadline()
	return map[string]any{"calls": calls, "left": time.Until(deadline).Seconds(), "hasDeadline": ok, "path": event["rawPath"],
		"body": event["body"], "base64": event["isBase64Encoded"], "name": os.Getenv("AWS_LAMBDA_FUNCTION_NAME")}, nil
}

func deploy(t *testing.T, kind string, change func(*Config)) *Function {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Name: "small", Bootstrap: self, Env: []string{"BOOTSTRAP=" + kind}, Timeout: 5 * time.Second}
	if change != nil {
		change(&cfg)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func invoke(t *testing.T, f *Function, payload string) (Result, map[string]any) {
	t.Helper()
	r, err := f.Invoke(t.Context(), []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	var said map[string]any
	if err := json.Unmarshal(r.Payload, &said); err != nil {
		t.Fatal(err)
	}
	return r, said
}

func TestAnEnvironmentServesOneAfterTheOtherAndIsFrozenBetween(t *testing.T) {
	t.Parallel()
	f := deploy(t, "small", nil)
	first, said := invoke(t, f, `{}`)
	if !first.Cold || said["calls"] != 1.0 || said["hasDeadline"] != true || said["left"].(float64) > 5 || said["name"] != "small" {
		t.Errorf("%+v %v", first, said)
	}
	if first.RSS == 0 {
		t.Error("no memory is told")
	}
	if e := f.idle[0]; !stopped(e.pid()) {
		t.Error("an idle environment is not stopped")
	}
	second, said := invoke(t, f, `{}`)
	if second.Cold || second.Environment != 1 || said["calls"] != 2.0 {
		t.Errorf("%+v %v", second, said)
	}
}

// stopped waits for a process to be stopped; a machine without /proc is believed.
func stopped(pid int) bool {
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(status), ") T ") {
			return true
		}
	}
	return false
}

func TestConcurrentInvocationsGetEnvironmentsOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := deploy(t, "small", func(c *Config) { c.Concurrency = 3 })
	var mu sync.Mutex
	seen, throttled := map[int]int{}, 0
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			r, err := f.Invoke(t.Context(), []byte(`{"do":"nap"}`))
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, ErrThrottled) {
				throttled++
			} else if err != nil {
				t.Error(err)
			} else {
				seen[r.Environment]++
			}
		})
	}
	wg.Wait()
	if len(seen) != 3 || throttled != 2 || f.Environments() != 3 {
		t.Errorf("environments %v, %d throttled", seen, throttled)
	}
}

func TestFailuresAreToldAsLambdaTellsThem(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind, payload, wantType, wantMessage string
		survives                             bool
	}{
		"an error":        {"small", `{"do":"error"}`, "errorString", "no", true},
		"a panic":         {"small", `{"do":"panic"}`, "string", "boom", false},
		"an exit":         {"small", `{"do":"exit"}`, TypeExit, "exit status 7", false},
		"a timeout":       {"small", `{"do":"sleep"}`, TypeTimeout, "timed out after 0.50 seconds", false},
		"an exit at init": {"exits", `{}`, TypeExit, "exit status 3", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := deploy(t, tc.kind, func(c *Config) { c.Timeout = 500 * time.Millisecond })
			_, err := f.Invoke(t.Context(), []byte(tc.payload))
			var said *FunctionError
			if !errors.As(err, &said) || said.Type != tc.wantType || !strings.Contains(said.Message, tc.wantMessage) {
				t.Fatalf("%v", err)
			}
			if alive := f.Environments() == 1; alive != tc.survives {
				t.Errorf("the environment is left: %v", alive)
			}
			if tc.kind == "small" {
				if r, _ := invoke(t, f, `{}`); r.Cold == tc.survives {
					t.Errorf("the next invocation: %+v", r)
				}
			}
		})
	}
}

func TestAProcessThatDiedWhileFrozenIsReplaced(t *testing.T) {
	t.Parallel()
	f := deploy(t, "small", nil)
	invoke(t, f, `{}`)
	e := f.idle[0]
	if err := e.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-e.exited
	if r, _ := invoke(t, f, `{}`); !r.Cold || r.Environment != 2 {
		t.Errorf("%+v", r)
	}
}

func TestSIGTERMComesWhereAnExtensionIsRegistered(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	polite := deploy(t, "sigterm", func(c *Config) { c.Log = &log })
	invoke(t, polite, `{}`)
	// Whether it also ends within Lambda's half second depends on how busy this machine is.
	if n := polite.Recycle(); n > 1 || !strings.Contains(log.String(), "told to end") {
		t.Errorf("%d ended by themselves, log %q", n, log.String())
	}
	other := deploy(t, "small", nil)
	invoke(t, other, `{}`)
	if n := other.Recycle(); n != 0 || other.Environments() != 0 {
		t.Errorf("%d ended by themselves, %d are left", n, other.Environments())
	}
}

func TestFrontMapsRequestsToEvents(t *testing.T) {
	t.Parallel()
	f := deploy(t, "small", nil)
	for name, tc := range map[string]struct {
		front            *Front
		contentType      string
		path, body, want string
	}{
		"text":       {&Front{}, "application/json; charset=utf-8", "/a%2Fb", `{}`, `false "{}" "/a%2Fb"`},
		"with stage": {&Front{Stage: "prod"}, "text/plain", "/a", `x`, `false "x" "/prod/a"`},
		"bytes":      {&Front{URL: true}, "application/octet-stream", "/", `x`, `true "eA==" "/"`},
		"forced":     {&Front{Base64: true}, "application/json", "/", `{}`, `true "e30=" "/"`},
	} {
		tc.front.Deploy(f)
		r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body))
		r.Header.Set("Content-Type", tc.contentType)
		w := httptest.NewRecorder()
		tc.front.ServeHTTP(w, r)
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %s", name, w.Code, w.Body)
		}
		if said := fmt.Sprintf("%v %q %q", got["base64"], got["body"], got["path"]); said != tc.want {
			t.Errorf("%s: the event had %s, want %s", name, said, tc.want)
		}
	}
}

func TestFrontAnswersForAFunctionThatDoesNot(t *testing.T) {
	t.Parallel()
	gone := deploy(t, "exits", nil)
	busy := deploy(t, "small", func(c *Config) { c.Concurrency = 1 })
	busy.all[&environment{exited: make(chan struct{})}] = true
	t.Cleanup(func() { clear(busy.all) })
	for name, tc := range map[string]struct {
		function *Function
		url      bool
		want     int
	}{
		"not deployed":   {nil, true, 404},
		"API, exit":      {gone, false, 500},
		"URL, exit":      {gone, true, 502},
		"API, throttled": {busy, false, 503},
		"URL, throttled": {busy, true, 429},
	} {
		w, front := httptest.NewRecorder(), &Front{URL: tc.url}
		if tc.function != nil {
			front.Deploy(tc.function)
		}
		front.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if body, _ := io.ReadAll(w.Body); w.Code != tc.want || !json.Valid(body) {
			t.Errorf("%s: %d %s", name, w.Code, body)
		}
	}
}
