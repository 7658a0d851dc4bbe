package hubspot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hubsync/shared/casetest"
)

var oneWrite = StatusWrite{Email: "ana@example.com", SubscriptionID: 7, State: Unsubscribed}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	token := func(context.Context) (string, error) { return testToken, nil }
	for name, cfg := range map[string]Config{
		"no token":      {Clock: testClock},
		"no clock":      {Token: token},
		"relative URL":  {Clock: testClock, Token: token, BaseURL: "/crm"},
		"no host":       {Clock: testClock, Token: token, BaseURL: "https://"},
		"other scheme":  {Clock: testClock, Token: token, BaseURL: "ftp://api.example.com"},
		"URL with user": {Clock: testClock, Token: token, BaseURL: "https://u:p@api.example.com"},
		"with query":    {Clock: testClock, Token: token, BaseURL: "https://api.example.com?x=1"},
		"version":       {Clock: testClock, Token: token, Version: "v5"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(Config{Clock: testClock, Token: token}); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

func TestPathsOfVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][]string{
		Version202603: {"/communication-preferences/2026-03/statuses/batch/write", "/crm/objects/2026-03/contacts/batch/upsert", "/crm/lists/2026-03/9/memberships/add-and-remove"},
		Version202609: {"/communication-preferences/2026-09/statuses/batch/write", "/crm/objects/2026-09/contacts/batch/upsert", "/crm/lists/2026-09/9/memberships/add-and-remove"},
		VersionV4:     {"/communication-preferences/v4/statuses/batch/write", "/crm/v3/objects/contacts/batch/upsert", "/crm/v3/lists/9/memberships/add-and-remove"},
	} {
		casetest.Add()
		f := &fake{body: `{}`}
		c := newClient(t, f, func(cfg *Config) { cfg.Version = version })
		_, _ = c.WriteStatuses(t.Context(), []StatusWrite{oneWrite})
		_, _ = c.UpsertContacts(t.Context(), []ContactWrite{{ExternalID: "k"}})
		_, _ = c.AddAndRemoveMembers(t.Context(), "9", []string{"1"}, nil)
		for i, r := range f.calls() {
			if r.uri != want[i] {
				t.Errorf("%s: %s, want %s", version, r.uri, want[i])
			}
		}
	}
}

func TestAddressesInPathsAreEncodedWhole(t *testing.T) {
	t.Parallel()
	for email, want := range map[string]string{
		"a+b@example.com":       "a%2Bb%40example.com",
		"o'neil@example.com":    "o%27neil%40example.com",
		"50%off@example.com":    "50%25off%40example.com",
		"a/b?c#d@example.com":   "a%2Fb%3Fc%23d%40example.com",
		"j\u00fcrg@example.com": "j%C3%BCrg%40example.com",
		"..":                    "%2E%2E",
	} {
		casetest.Add()
		f := &fake{body: complete("")}
		c := newClient(t, f)
		if _, err := c.ReadStatus(t.Context(), email); err != nil {
			t.Fatal(err)
		}
		if got := f.calls()[0].uri; got != "/communication-preferences/2026-03/statuses/"+want+"?channel=EMAIL" {
			t.Errorf("%q went out as %s", email, got)
		}
	}
}

// A method that fails makes one call, whatever the answer: callers reserve for one.
func TestOneMethodIsOneCall(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 301, 307, 400, 401, 403, 404, 408, 409, 423, 429, 477, 500, 502, 503, 504} {
		f := &fake{status: status, body: `{"status":"error"}`, header: map[string]string{"Location": "/elsewhere", "Retry-After": "1"}}
		c := newClient(t, f)
		ctx := t.Context()
		emails, ids := []string{"a@example.com"}, []string{"1"}
		methods := []func() error{
			func() error { _, err := c.WriteStatuses(ctx, []StatusWrite{oneWrite}); return err },
			func() error { _, err := c.WriteStatus(ctx, oneWrite); return err },
			func() error { _, err := c.ReadStatuses(ctx, emails); return err },
			func() error { _, err := c.ReadStatus(ctx, emails[0]); return err },
			func() error { _, err := c.ReadUnsubscribedAll(ctx, emails); return err },
			func() error { _, err := c.ReadUnsubscribedAllOne(ctx, emails[0]); return err },
			func() error { _, err := c.UnsubscribeAll(ctx, emails[0], 0); return err },
			func() error { _, err := c.UnsubscribeAllMany(ctx, emails, 0); return err },
			func() error { _, err := c.Definitions(ctx); return err },
			func() error { _, err := c.UpsertContacts(ctx, []ContactWrite{{ExternalID: "k"}}); return err },
			func() error { _, err := c.UpdateContacts(ctx, []ContactUpdate{{ID: "1"}}); return err },
			func() error { _, err := c.UpdateContact(ctx, ContactUpdate{ID: "1"}); return err },
			func() error { _, err := c.ReadContacts(ctx, ids, "", nil); return err },
			func() error { _, err := c.GetContact(ctx, "1", "", nil); return err },
			func() error { _, err := c.AddAndRemoveMembers(ctx, "1", ids, nil); return err },
			func() error { _, err := c.List(ctx, "1"); return err },
			func() error { _, err := c.Lists(ctx, ids); return err },
			func() error { _, err := c.Properties(ctx); return err },
			func() error { _, err := c.AccountInfo(ctx); return err },
		}
		for i, method := range methods {
			before := len(f.calls())
			err := method()
			if n := len(f.calls()) - before; n != 1 {
				t.Errorf("status %d, method %d: %d calls", status, i, n)
			}
			var he *Error
			if status != http.StatusOK && !errors.As(err, &he) {
				t.Errorf("status %d, method %d: error %v", status, i, err)
			}
		}
		for _, r := range f.calls() {
			if got := r.header.Get("Authorization"); got != "Bearer "+testToken {
				t.Errorf("%s without the token", r.uri)
			}
		}
	}
}

func TestWhatNeverLeftIsNotSent(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	_ = listener.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context
		change func(*Config)
		code   string
	}{
		"nobody listens":       {t.Context(), func(c *Config) { c.BaseURL = closed }, "hubspot_no_answer_not_sent"},
		"context over":         {cancelled, func(*Config) {}, "hubspot_timeout_not_sent"},
		"no TLS there":         {t.Context(), func(c *Config) { c.BaseURL = strings.Replace(c.BaseURL, "http:", "https:", 1) }, "hubspot_no_answer_not_sent"},
		"token with a newline": {t.Context(), func(c *Config) { c.Token = func(context.Context) (string, error) { return "a\nb", nil } }, "hubspot_no_answer_not_sent"},
		"empty token":          {t.Context(), func(c *Config) { c.Token = func(context.Context) (string, error) { return " \n", nil } }, "hubspot_token_unavailable"},
		"no token":             {t.Context(), func(c *Config) { c.Token = func(context.Context) (string, error) { return "", errors.New("away") } }, "hubspot_token_unavailable"},
	} {
		casetest.Add()
		f := &fake{body: complete("")}
		_, err := newClient(t, f, test.change).WriteStatus(test.ctx, oneWrite)
		he := hubspotError(t, err, KindNotSent)
		if he.Code != test.code || he.OutcomeUnknown() || !he.Retryable() || len(f.calls()) != 0 {
			t.Errorf("%s: %v, %d calls", name, he, len(f.calls()))
		}
	}
}

// afterBody answers when the request was read: only then does a server notice that its
// caller has gone.
func afterBody(answer func(http.ResponseWriter, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			answer(w, r)
		}
	})
}

func TestWhatMayHaveArrivedIsUnknown(t *testing.T) {
	t.Parallel()
	hijack := func(w http.ResponseWriter, text string) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte(text))
		_ = conn.Close()
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		code   string
	}{
		"no answer in time": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "hubspot_timeout"},
		"connection closed": {func(w http.ResponseWriter, _ *http.Request) { hijack(w, "") }, "hubspot_no_answer"},
		"no HTTP":           {func(w http.ResponseWriter, _ *http.Request) { hijack(w, "hello\r\n\r\n") }, "hubspot_no_answer"},
		"body ends early": {func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, head+"Content-Length: 1000\r\n\r\n"+complete(publicWrite))
		}, "hubspot_answer_truncated"},
		"body stops": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(complete(publicWrite)))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "hubspot_answer_truncated"},
		"body too large": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(complete(publicWrite)))
			space := []byte(strings.Repeat(" ", 1<<20))
			for range maxBody/len(space) + 1 {
				_, _ = w.Write(space)
			}
		}, "hubspot_answer_truncated"},
		"HTML":          {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>ok</html>") }, "hubspot_answer_unreadable"},
		"nothing":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "hubspot_answer_unreadable"},
		"two values":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, complete(publicWrite)+"{}") }, "hubspot_answer_unreadable"},
		"half of it":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, complete(publicWrite)[:40]) }, "hubspot_answer_unreadable"},
		"another shape": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `["COMPLETE"]`) }, "hubspot_answer_unreadable"},
		"broken gzip": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "x")
		}, "hubspot_answer_truncated"},
		"redirect":       {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/"); w.WriteHeader(307) }, "hubspot_307"},
		"bad gateway":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502); fmt.Fprint(w, "<html>") }, "hubspot_502"},
		"request expiry": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(408) }, "hubspot_408"},
	} {
		casetest.Add()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, afterBody(test.answer), func(cfg *Config) { cfg.Timeout = 300 * time.Millisecond })
			_, err := c.WriteStatus(t.Context(), oneWrite)
			var he *Error
			if !errors.As(err, &he) || !he.OutcomeUnknown() || !he.Retryable() || he.Code != test.code {
				t.Errorf("%v, want %s with an unknown outcome", err, test.code)
			}
		})
	}
}

// A context that ends while the request waits for its answer is no proof that nothing
// left; one that ends while it waits for a connection is.
func TestCancelledBeforeAndAfterTheConnection(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	c := newClient(t, afterBody(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := c.WriteStatus(ctx, oneWrite)
	hubspotError(t, err, KindUnknown)

	slow := newClient(t, &fake{}, func(cfg *Config) {
		cfg.Timeout = 50 * time.Millisecond
		cfg.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}}
	})
	_, err = slow.WriteStatus(t.Context(), oneWrite)
	hubspotError(t, err, KindNotSent)
}

// A kept connection that dies takes a write with it: it is not sent again.
func TestWriteIsNotRepeatedOnADeadConnection(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			fmt.Fprint(w, complete(publicWrite))
			return
		}
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	}))
	if r, err := c.WriteStatus(t.Context(), oneWrite); err != nil || !r.Confirmed {
		t.Fatalf("first: %v %v", r, err)
	}
	_, err := c.WriteStatus(t.Context(), oneWrite)
	hubspotError(t, err, KindUnknown)
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

func TestLimitsAreReported(t *testing.T) {
	t.Parallel()
	full := map[string]string{
		"X-HubSpot-RateLimit-Max": "190", "X-HubSpot-RateLimit-Remaining": "3", "X-HubSpot-RateLimit-Interval-Milliseconds": "10000",
		"X-HubSpot-RateLimit-Daily": "1000000", "X-HubSpot-RateLimit-Daily-Remaining": "999",
	}
	known := RateInfo{Known: true, Max: 190, Remaining: 3, Interval: 10 * time.Second, DailyKnown: true, DailyMax: 1000000, DailyRemaining: 999, At: testNow}
	with := func(change func(*RateInfo)) RateInfo { r := known; change(&r); return r }
	for name, test := range map[string]struct {
		fake *fake
		want RateInfo
	}{
		"success":    {&fake{header: full, body: complete(publicWrite)}, with(func(r *RateInfo) { r.Status = 200 })},
		"unreadable": {&fake{header: full, body: "x"}, with(func(r *RateInfo) { r.Status = 200 })},
		"no headers": {&fake{body: complete("")}, RateInfo{Status: 200, At: testNow}},
		"nonsense": {&fake{header: map[string]string{"X-HubSpot-RateLimit-Max": "many", "X-HubSpot-RateLimit-Remaining": "-1",
			"X-HubSpot-RateLimit-Interval-Milliseconds": "999999999999999"}, body: complete("")}, RateInfo{Status: 200, At: testNow}},
		"negative": {&fake{header: map[string]string{"X-HubSpot-RateLimit-Max": "190", "X-HubSpot-RateLimit-Remaining": "-1"}, body: complete("")},
			RateInfo{Status: 200, At: testNow}},
		"burst": {&fake{status: 429, header: full, body: `{"errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}`},
			with(func(r *RateInfo) { r.Status, r.Policy, r.RetryAfter = 429, "TEN_SECONDLY_ROLLING", 10*time.Second })},
		"day": {&fake{status: 429, header: full, body: `{"errorType":"RATE_LIMIT","policyName":"DAILY"}`},
			with(func(r *RateInfo) { r.Status, r.Policy = 429, "DAILY" })},
		"unnamed":   {&fake{status: 429, body: `<html>`}, RateInfo{Status: 429, Policy: "UNNAMED", At: testNow}},
		"under 500": {&fake{status: 500, body: `{"category":"RATE_LIMITS"}`}, RateInfo{Status: 500, Policy: "UNNAMED", At: testNow}},
	} {
		casetest.Add()
		var got []RateInfo
		c := newClient(t, test.fake, func(cfg *Config) { cfg.OnResponse = func(r RateInfo) { got = append(got, r) } })
		_, _ = c.WriteStatus(t.Context(), oneWrite)
		if len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// staleConn is a kept connection on which nothing can be written any more.
type staleConn struct {
	net.Conn
	stale *atomic.Bool
}

func (c staleConn) Write(b []byte) (int, error) {
	if c.stale.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// A frozen Lambda wakes up with dead connections: net/http asks for another one if the
// first took nothing. If there is none, a write was not sent; of a read, which net/http
// may have repeated, that is not claimed.
func TestStaleConnectionAndNoOther(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		do   func(context.Context, *Client) error
		kind Kind
	}{
		{func(ctx context.Context, c *Client) error { _, err := c.WriteStatus(ctx, oneWrite); return err }, KindNotSent},
		{func(ctx context.Context, c *Client) error { _, err := c.ReadStatus(ctx, "ana@example.com"); return err }, KindUnknown},
	} {
		casetest.Add()
		var stale atomic.Bool
		c := newClient(t, &fake{body: complete(publicWrite)}, func(cfg *Config) {
			cfg.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if stale.Load() {
					return nil, errors.New("no way")
				}
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return staleConn{conn, &stale}, err
			}}}
		})
		if err := test.do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		stale.Store(true)
		hubspotError(t, test.do(t.Context(), c), test.kind)
	}
}
