package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

func TestDecisionsArriveThroughTheRealBinaries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, form := range map[string]struct {
		stage  string
		base64 bool
	}{
		"default": {"", false}, "stage": {"prod", false}, "base64": {"", true},
	} {
		w.api.Stage, w.api.Base64, w.worker.Base64 = form.stage, form.base64, form.base64
		w.sendAndCheck(name, 20)
	}
	for name, f := range w.functions {
		if rss := f.MaxRSS(); rss > rssTarget {
			t.Errorf("%s holds %d MB after its work, must be at most 64", name, rss>>20)
		}
	}
	t.Logf("memory after work: intake %d MB, worker %d MB, relay %d MB", w.functions["intake"].MaxRSS()>>20, w.functions["worker"].MaxRSS()>>20, w.functions["relay"].MaxRSS()>>20)
	if n := w.functions["intake"].Environments(); n < 2 {
		t.Errorf("20 callers at once met %d environment", n)
	}
	if strings.Contains(w.log.String(), "@example.com") || strings.Contains(w.log.String(), "%40example.com") {
		t.Error("an address is in the log")
	}
}

// sendAndCheck subscribes n contacts at once, unsubscribes half of them, and looks at
// HubSpot.
func (w *world) sendAndCheck(name string, n int) {
	t := w.t
	t.Helper()
	email := func(i int) string { return fmt.Sprintf("%s%d@example.com", name, i) }
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if code, body := w.post(fmt.Sprint(name, "s", i), email(i), "subscribed"); code != http.StatusAccepted {
				t.Errorf("%s: %d %s", name, code, body)
			}
		})
	}
	wg.Wait()
	for i := range n / 2 {
		if code, body := w.post(fmt.Sprint(name, "u", i), email(i), "unsubscribed"); code != http.StatusAccepted {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, body := w.post(name+"u0", email(0), "unsubscribed"); code != http.StatusOK || !strings.Contains(body, `"replayed":true`) {
		t.Errorf("%s: a replay: %d %s", name, code, body)
	}
	w.settle()
	for i := range n {
		want := "SUBSCRIBED"
		if i < n/2 {
			want = "UNSUBSCRIBED"
		}
		if got := w.status(email(i)); got != want {
			t.Errorf("%s: contact %d: %s, want %s", name, i, got, want)
		}
	}
}

func TestReconcileRunsByScheduleAndOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.tick("reconcile"); !strings.Contains(string(r.Payload), `"sweep":{"checked":0`) {
		t.Errorf("by schedule: %s", r.Payload)
	}
	w.api.Deploy(w.functions["reconcile"])
	for header, want := range map[string]int{"Bearer " + cronSecret: 200, "Bearer other": 401, "": 401} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.apiURL+"/internal/reconcile", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		if code, body := w.do(r); code != want {
			t.Errorf("%q: %d %s", header, code, body)
		}
	}
}
