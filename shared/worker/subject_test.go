package worker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hubsync/shared/casetest"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/worker"
)

// TestOwnFunctionURLIsTheSubject is of the worker whose URL is not configured: it takes
// the host that Lambda names, in the form of its own function URL only.
func TestOwnFunctionURLIsTheSubject(t *testing.T) {
	t.Parallel()
	const own = "abcdefghijklmnop2345.lambda-url.eu-central-1.on.aws"
	w := newWorld(t, func(_ *hubspottest.Portal, c *worker.Config) { c.Subject, c.Region = "", "eu-central-1" })
	for _, c := range []struct {
		name, host, path, sub string
		want                  int
	}{
		{"as the relay publishes", own, "/hubspot", "https://" + own + "/hubspot", 489},
		{"failure callback", own, "/hubspot/failed", "https://" + own + "/hubspot/failed", 489},
		{"callback signed as a message", own, "/hubspot/failed", "https://" + own + "/hubspot", 401},
		{"message signed as a callback", own, "/hubspot", "https://" + own + "/hubspot/failed", 401},
		{"without the path", own, "/hubspot", "https://" + own, 401},
		{"with a slash at the end", own, "/hubspot", "https://" + own + "/hubspot/", 401},
		{"another stack's worker", own, "/hubspot", "https://abcdefghijklmnop9999.lambda-url.eu-central-1.on.aws/hubspot", 401},
		{"another region", "abcdefghijklmnop2345.lambda-url.us-east-1.on.aws", "/hubspot", "https://abcdefghijklmnop2345.lambda-url.us-east-1.on.aws/hubspot", 401},
		{"a host of one's own", "worker.example.com", "/hubspot", "https://worker.example.com/hubspot", 401},
		{"a suffix", own + ".example.com", "/hubspot", "https://" + own + ".example.com/hubspot", 401},
		{"a prefix", "x." + own, "/hubspot", "https://x." + own + "/hubspot", 401},
		{"a port", own + ":443", "/hubspot", "https://" + own + ":443/hubspot", 401},
		{"no host", "", "/hubspot", "https:///hubspot", 401},
		{"no subject", "worker.example.com", "/hubspot", "", 401},
		{"no subject, callback", "worker.example.com", "/hubspot/failed", "/failed", 401},
		{"another path", own, "/hubspots", "https://" + own + "/hubspots", 404},
		{"doubled slash", own, "/hubspot//failed", "https://" + own + "/hubspot//failed", 404},
	} {
		casetest.Add()
		token, err := qstashtest.Sign(qstashtest.DefaultCurrentKey, c.sub, []byte("{}"), "1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader("{}"))
		r.Host = c.host
		r.Header.Set("Upstash-Signature", token)
		rec := httptest.NewRecorder()
		w.handler.ServeHTTP(rec, r)
		if rec.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, rec.Code, rec.Body, c.want)
		}
	}
}

// TestPathOfTheWorkersURLIsServed is of a configured URL with a path, whether or not what
// stands before the worker cuts it off.
func TestPathOfTheWorkersURLIsServed(t *testing.T) {
	t.Parallel()
	const named = "https://sync.example.com/in/hubspot"
	w := newWorld(t, func(_ *hubspottest.Portal, c *worker.Config) { c.Subject = named })
	for path, want := range map[string]int{"/in/hubspot": 489, "/": 489, "/in/hubspot/failed": 489, "/failed": 489, "/in": 404, "/hubspot": 404} {
		casetest.Add()
		sub := named
		if strings.HasSuffix(path, "/failed") {
			sub += "/failed"
		}
		if rec := w.post(path, "{}", sub); rec.Code != want {
			t.Errorf("%s: %d, want %d", path, rec.Code, want)
		}
	}
}
