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
	for name, change := range map[string]change{
		"default stage": func(*world) {},
		"a stage":       func(w *world) { w.api.Stage = "prod" },
		"base64 bodies": func(w *world) { w.api.Base64, w.worker.Base64 = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if code, body := w.post(fmt.Sprint("s", i), fmt.Sprintf("p%d@example.com", i), "subscribed"); code != http.StatusAccepted {
						t.Errorf("%d %s", code, body)
					}
				})
			}
			wg.Wait()
			for i := range 10 {
				if code, body := w.post(fmt.Sprint("u", i), fmt.Sprintf("p%d@example.com", i), "unsubscribed"); code != http.StatusAccepted {
					t.Errorf("%d %s", code, body)
				}
			}
			if code, body := w.post("u0", "p0@example.com", "unsubscribed"); code != http.StatusOK || !strings.Contains(body, `"replayed":true`) {
				t.Errorf("a replay: %d %s", code, body)
			}
			w.settle()
			for i := range 20 {
				want := "SUBSCRIBED"
				if i < 10 {
					want = "UNSUBSCRIBED"
				}
				if got := w.status(fmt.Sprintf("p%d@example.com", i)); got != want {
					t.Errorf("contact %d: %s, want %s", i, got, want)
				}
			}
			if n := w.functions["intake"].Environments(); n < 2 {
				t.Errorf("20 callers at once met %d environment", n)
			}
			for name, f := range w.functions {
				if rss := f.MaxRSS(); rss > rssTarget {
					t.Errorf("%s holds %d MB after its work, must be at most 64", name, rss>>20)
				}
			}
			t.Logf("memory after work: intake %d MB, worker %d MB, relay %d MB", w.functions["intake"].MaxRSS()>>20, w.functions["worker"].MaxRSS()>>20, w.functions["relay"].MaxRSS()>>20)
			if strings.Contains(w.log.String(), "example.com") && strings.Contains(w.log.String(), "@") {
				t.Error("an address is in the log")
			}
		})
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
