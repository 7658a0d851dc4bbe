package hubspot

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hubsync/shared/casetest"
)

const (
	canaryLocal  = "ana.canary+tag"
	canaryDomain = "b\u00fccher.example.com"
	canaryACE    = "xn--bcher-kva.example.com"
	canary       = canaryLocal + "@" + canaryDomain
	canaryText   = "I agreed at the fair"
)

// encodings are the forms in which an address, a token or a text could slip into an
// error. Base64 is tried at each alignment.
func encodings(text string) []string {
	forms := []string{
		text, strings.ToUpper(text), url.QueryEscape(text), url.PathEscape(text), pathSegment(text), strings.ToLower(pathSegment(text)),
		strings.ReplaceAll(text, "@", "\\u0040"), hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text))),
	}
	for skip := range 3 {
		part := text[skip:]
		part = part[:len(part)-len(part)%3]
		forms = append(forms, base64.StdEncoding.EncodeToString([]byte(part)), base64.RawURLEncoding.EncodeToString([]byte(part)))
	}
	return forms
}

// secrets are all forms of all texts that must not show, in lower case.
var secrets = sync.OnceValue(func() []string {
	seen := map[string]bool{}
	for _, text := range []string{canary, canaryLocal + "@" + canaryACE, canaryLocal, canaryACE, canaryDomain, testToken, canaryText} {
		casetest.Add()
		for _, form := range encodings(text) {
			seen[strings.ToLower(form)] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
})

// assertClean looks for the secrets in everything that an error can be printed as.
func assertClean(t *testing.T, name string, err error) {
	t.Helper()
	var he *Error
	if !errors.As(err, &he) {
		t.Fatalf("%s: %T is no *Error", name, err)
	}
	type plain Error // without the method: every field is printed
	written, jsonErr := json.Marshal(he)
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	text := strings.ToLower(err.Error() + fmt.Sprintf("%+v %#v", plain(*he), plain(*he)) + string(written))
	for _, secret := range secrets() {
		if strings.Contains(text, secret) {
			t.Errorf("%s: %q stands in %s", name, secret, text)
		}
	}
}

// echo is an error body that repeats a text wherever there is room for one.
func echo(text string) string {
	body, err := json.Marshal(map[string]any{
		"status": "error", "message": "Invalid input " + text + ` [{"error":"` + text + `","name":"` + text + `"}] Existing ID: ` + text,
		"category": text, "subCategory": "x." + text, "correlationId": text, "policyName": text, "errorType": text, "code": text, "requestId": text,
		"context": map[string][]string{"ids": {text}, "id": {text}, "objectWriteTraceId": {text}, "email": {text}},
		"errors":  []map[string]any{{"message": text, "code": text, "in": text, "context": map[string][]string{"ids": {text}}}},
		"links":   map[string]string{"self": text},
	})
	if err != nil {
		panic(err)
	}
	return string(body)
}

func TestErrorsKeepNothingOfWhatHubSpotEchoes(t *testing.T) {
	t.Parallel()
	var forms []string
	for _, text := range []string{canary, canaryLocal + "@" + canaryACE, testToken} {
		casetest.Add()
		forms = append(forms, encodings(text)...)
	}
	for _, secret := range forms {
		header := http.Header{"X-Hubspot-Correlation-Id": {secret}, "Retry-After": {secret}, "X-Hubspot-Ratelimit-Interval-Milliseconds": {secret}}
		for _, status := range []int{302, 400, 409, 429, 500} {
			assertClean(t, "JSON", errorOfResponse(status, header, []byte(echo(secret)), testNow))
			assertClean(t, "text", errorOfResponse(status, header, []byte("<html>"+secret), testNow))
		}
	}
}

// Every method meets a HubSpot that echoes, under every status and inside a batch.
func TestMethodsKeepNothingOfWhatHubSpotEchoes(t *testing.T) {
	t.Parallel()
	for _, f := range []*fake{
		{status: 400, body: echo(canary)}, {status: 409, body: echo(pathSegment(canary))}, {status: 429, body: echo(testToken)},
		{status: 500, body: "<html>" + canary}, {status: 200, body: canary},
		{status: 207, body: complete("", echo(canary))}, {status: 200, body: complete("", echo(base64.StdEncoding.EncodeToString([]byte(canary))))},
	} {
		c := newClient(t, f)
		ctx := t.Context()
		check := func(name string, err error, he *Error) {
			t.Helper()
			if err == nil {
				if he == nil {
					t.Fatalf("%s, status %d: neither an error of the call nor of the input", name, f.status)
				}
				err = he
			}
			assertClean(t, name, err)
		}
		write := StatusWrite{Email: canary, SubscriptionID: 7, State: Subscribed, Explanation: canaryText}
		ws, err := c.WriteStatuses(ctx, []StatusWrite{write})
		check("WriteStatuses", err, append(ws, StatusResult{})[0].Err)
		w, err := c.WriteStatus(ctx, write)
		check("WriteStatus", err, w.Err)
		rs, err := c.ReadStatuses(ctx, []string{canary})
		check("ReadStatuses", err, rs[foldEmail(canary)].Err)
		r, err := c.ReadStatus(ctx, canary)
		check("ReadStatus", err, r.Err)
		as, err := c.ReadUnsubscribedAll(ctx, []string{canary})
		check("ReadUnsubscribedAll", err, as[foldEmail(canary)].Err)
		a, err := c.ReadUnsubscribedAllOne(ctx, canary)
		check("ReadUnsubscribedAllOne", err, a.Err)
		u, err := c.UnsubscribeAll(ctx, canary, 0)
		check("UnsubscribeAll", err, u.Err)
		us, err := c.UpsertContacts(ctx, []ContactWrite{{ExternalID: canary, Email: canary, TraceID: canary}})
		check("UpsertContacts", err, append(us, ContactResult{})[0].Err)
		up, err := c.UpdateContact(ctx, ContactUpdate{ID: canary, IDProperty: "email"})
		if f.status != http.StatusMultiStatus || err != nil || up.Err != nil {
			check("UpdateContact", err, up.Err)
		}
		cs, err := c.ReadContacts(ctx, []string{canary}, "email", nil)
		check("ReadContacts", err, cs[foldEmail(canary)].Err)
		g, err := c.GetContact(ctx, canary, "email", nil)
		check("GetContact", err, g.Err)
	}
}

// *url.Error prints the URL, and the path of a preference is an address.
func TestTransportErrorsKeepNoURL(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("cannot dial " + canary)
		},
		"timeout": func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		c := newClient(t, &fake{}, func(cfg *Config) {
			cfg.Timeout = 50 * time.Millisecond
			cfg.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: dial}}
		})
		_, err := c.ReadStatus(t.Context(), canary)
		assertClean(t, name, err)
		_, err = c.GetContact(t.Context(), canary, "email", nil)
		assertClean(t, name, err)
	}
	c := newClient(t, &fake{}, func(cfg *Config) {
		cfg.Token = func(context.Context) (string, error) { return "", errors.New("no secret " + testToken) }
	})
	_, err := c.ReadStatus(t.Context(), canary)
	assertClean(t, "token", err)
	c = newClient(t, &fake{}, func(cfg *Config) {
		cfg.Token = func(context.Context) (string, error) { return testToken + "\x00" + canary, nil }
	})
	_, err = c.ReadStatus(t.Context(), canary)
	assertClean(t, "token that no header takes", err)
}

// What operators need is kept.
func TestErrorsKeepWhatIsSafe(t *testing.T) {
	t.Parallel()
	body := `{"message":"Property values were not valid: [{\"isValid\":false,\"message\":\"ana@example.com\",\"error\":\"INVALID_EMAIL\",\"name\":\"email\"}]",` +
		`"category":"VALIDATION_ERROR","correlationId":"` + testCorrelation + `","context":{"objectWriteTraceId":["` + testCorrelation + `"],"ids":["4711","ana@example.com"]}}`
	e := errorOfResponse(400, http.Header{}, []byte(body), testNow)
	if e.Code != "hubspot_400_invalid_email" || e.Category != "VALIDATION_ERROR" || e.CorrelationID != testCorrelation || e.Property != "email" ||
		len(e.TraceIDs) != 1 || len(e.IDs) != 1 || e.IDs[0] != "4711" {
		t.Errorf("%+v", e)
	}
	if want := "HubSpot answered 400, category VALIDATION_ERROR, invalid_email, property email"; e.Summary != want {
		t.Errorf("summary %q, want %q", e.Summary, want)
	}
}

func TestFoldEmail(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Ana@Example.COM": "ana@example.com", "\u212aim@example.com": "\u212aim@example.com", "\u0130@example.com": "\u0130@example.com", "\u00c4@e.com": "\u00c4@e.com",
	} {
		casetest.Add()
		if got := foldEmail(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func FuzzPathSegment(f *testing.F) {
	for _, seed := range []string{"", "a+b@example.com", "..", "%2F", "a/b?c#d", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		segment := pathSegment(text)
		back, err := url.PathUnescape(segment)
		if err != nil || back != text || strings.ContainsAny(segment, "/?#@+' ") || segment == "." || segment == ".." {
			t.Errorf("%q became %q, and back %q (%v)", text, segment, back, err)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add(complete(publicWrite))
	f.Add(complete("", echo(canary)))
	f.Add(`{"status":"COMPLETE","results":[null,{}],"numErrors":"x","errors":{"a":1}}`)
	f.Fuzz(func(t *testing.T, body string) {
		c := &Client{}
		a := answer{status: 200, body: []byte(body)}
		writes, err := c.judgeWrites(a, []StatusWrite{oneWrite, {Email: "bo@example.com", SubscriptionID: 8, State: Subscribed}})
		for _, r := range writes {
			if r.Confirmed != (r.Err == nil) || (r.Confirmed && !strings.Contains(strings.ToLower(body), "subscribed")) {
				t.Errorf("%q: %+v", body, r)
			}
		}
		contacts, _ := c.judgeContacts(a, []contactInput{{ID: "1"}, {ID: "k", IDProperty: ContactKeyProperty, TraceID: "t"}})
		for _, r := range contacts {
			if r.Confirmed != (r.Err == nil) || (r.Confirmed && r.RecordID == "") {
				t.Errorf("%q: %+v", body, r)
			}
		}
		if err == nil && len(writes) != 2 {
			t.Errorf("%q: %d results", body, len(writes))
		}
	})
}
