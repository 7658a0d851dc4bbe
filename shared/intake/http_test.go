package intake

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hubsync/shared/casetest"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_0", "zoe@example.com", "newsletter", "subscribed", "")
	w.exec(`UPDATE contacts SET erasing_at = now() WHERE contact_key = 'usr_0'`)
	stored := w.counts()
	asJSON := []string{"Content-Type", "application/json"}
	good := append(slices.Clone(asJSON), keyHeader, "k-1")
	plain := bodyOf("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	exact := plain + strings.Repeat(" ", maxBody-len(plain))
	rows := []struct {
		name, method, target, content string
		headers                       []string
		status                        int
		code                          string // the last part of the problem's type
	}{
		// Paths and methods.
		{"root", "GET", "/", "", nil, 404, "unknown-path"},
		{"unknown", "GET", "/v1", "", nil, 404, "unknown-path"},
		{"other version", "POST", "/v2/brands/acme/subscriptions", plain, good, 404, "unknown-path"},
		{"upper case", "POST", "/V1/brands/acme/subscriptions", plain, good, 404, "unknown-path"},
		{"trailing slash", "POST", acmePath + "/", plain, good, 404, "unknown-path"},
		{"doubled slash", "POST", "/v1//brands/acme/subscriptions", plain, good, 404, "unknown-path"},
		{"leading doubled slash", "POST", "//v1/brands/acme/subscriptions", plain, good, 404, "unknown-path"},
		{"no brand", "POST", "/v1/brands//subscriptions", plain, good, 404, "unknown-path"},
		{"dots", "POST", "/v1/brands/x/../acme/subscriptions", plain, good, 404, "unknown-path"},
		{"encoded slash stays in its segment", "POST", "/v1/brands%2facme/subscriptions", plain, good, 404, "unknown-path"},
		{"encoded slash in the brand", "POST", "/v1/brands/ac%2fme/subscriptions", plain, good, 404, "unknown-brand"},
		{"decoded once only", "POST", "/v1/brands/acm%2565/subscriptions", plain, good, 404, "unknown-brand"},
		{"NUL in the brand", "POST", "/v1/brands/acme%00/subscriptions", plain, good, 400, "invalid-path"},
		{"line end in the brand", "POST", "/v1/brands/acme%0d%0a/subscriptions", plain, good, 400, "invalid-path"},
		{"brand not Unicode", "POST", "/v1/brands/%ff/subscriptions", plain, good, 400, "invalid-path"},
		{"GET a POST route", "GET", acmePath, "", nil, 405, "method-not-allowed"},
		{"PUT", "PUT", acmePath, plain, good, 405, "method-not-allowed"},
		{"OPTIONS", "OPTIONS", acmePath, "", nil, 405, "method-not-allowed"},
		{"POST a GET route", "POST", "/healthz", "", nil, 405, "method-not-allowed"},
		{"DELETE subscriptions", "DELETE", "/v1/brands/acme/contacts/usr_1/subscriptions", "", nil, 405, "method-not-allowed"},
		{"lower-case method", "post", acmePath, plain, good, 405, "method-not-allowed"},
		// Media types.
		{"no type", "POST", acmePath, plain, []string{keyHeader, "k-1"}, 415, "media-type"},
		{"form", "POST", acmePath, plain, []string{"Content-Type", "application/x-www-form-urlencoded", keyHeader, "k-1"}, 415, "media-type"},
		{"text", "POST", acmePath, plain, []string{"Content-Type", "text/json", keyHeader, "k-1"}, 415, "media-type"},
		{"suffix", "POST", acmePath, plain, []string{"Content-Type", "application/ld+json", keyHeader, "k-1"}, 415, "media-type"},
		{"Latin-1", "POST", acmePath, plain, []string{"Content-Type", "application/json; charset=iso-8859-1", keyHeader, "k-1"}, 415, "media-type"},
		{"broken parameter", "POST", acmePath, plain, []string{"Content-Type", "application/json; charset", keyHeader, "k-1"}, 415, "media-type"},
		{"two charsets", "POST", acmePath, plain, []string{"Content-Type", "application/json; charset=utf-8; charset=utf-16", keyHeader, "k-1"}, 415, "media-type"},
		{"two types", "POST", acmePath, plain, append(slices.Clone(good), "Content-Type", "text/plain"), 415, "media-type"},
		{"gzip", "POST", acmePath, plain, append(slices.Clone(good), "Content-Encoding", "gzip"), 415, "content-coding"},
		{"gzip after identity", "POST", acmePath, plain, append(slices.Clone(good), "Content-Encoding", "identity, gzip"), 415, "content-coding"},
		{"media type before size", "POST", acmePath, strings.Repeat("x", maxBody+1), []string{"Content-Type", "text/plain"}, 415, "media-type"},
		// Size, key, body.
		{"one byte too many", "POST", acmePath, exact + " ", good, 413, "too-large"},
		{"size before key", "POST", acmePath, exact + " ", asJSON, 413, "too-large"},
		{"no key", "POST", acmePath, plain, asJSON, 400, "invalid-request"},
		{"two keys", "POST", acmePath, plain, append(slices.Clone(good), keyHeader, "k-2"), 400, "invalid-request"},
		{"no body", "POST", acmePath, "", good, 400, "invalid-request"},
		{"bad address", "POST", acmePath, bodyOf("usr_1", "two@@example.com", "newsletter", "subscribed", ""), good, 400, "invalid-request"},
		{"bad body and unknown brand", "POST", "/v1/brands/nobody/subscriptions", "{}", good, 400, "invalid-request"},
		{"unknown brand", "POST", "/v1/brands/nobody/subscriptions", plain, good, 404, "unknown-brand"},
		{"a very long brand", "POST", "/v1/brands/" + strings.Repeat("b", 5000) + "/subscriptions", plain, good, 404, "unknown-brand"},
		{"unknown product", "POST", acmePath, bodyOf("usr_1", "ann@example.com", "nothing", "subscribed", ""), good, 404, "unknown-product"},
		{"another brand's product", "POST", "/v1/brands/other/subscriptions", bodyOf("usr_1", "ann@example.com", "events", "subscribed", ""), good, 404, "unknown-product"},
		{"erasing contact", "POST", acmePath, bodyOf("usr_0", "zoe@example.com", "newsletter", "unsubscribed", ""), good, 410, "contact-erased"},
		{"erasing contact, another address", "POST", acmePath, bodyOf("usr_0", "zoe2@example.com", "newsletter", "unsubscribed", ""), good, 410, "contact-erased"},
		// Reads.
		{"unknown request", "GET", "/v1/brands/acme/subscription-requests/0190a0a0-0000-7000-8000-000000000000", "", nil, 404, "unknown-request"},
		{"no UUID", "GET", "/v1/brands/acme/subscription-requests/1", "", nil, 404, "unknown-request"},
		{"UUID in braces", "GET", "/v1/brands/acme/subscription-requests/%7B0190a0a0-0000-7000-8000-000000000000%7D", "", nil, 404, "unknown-request"},
		{"request of an unknown brand", "GET", "/v1/brands/nobody/subscription-requests/0190a0a0-0000-7000-8000-000000000000", "", nil, 404, "unknown-request"},
		{"unknown contact", "GET", "/v1/brands/acme/contacts/nobody/subscriptions", "", nil, 404, "unknown-contact"},
		{"contact of an unknown brand", "GET", "/v1/brands/nobody/contacts/usr_0/subscriptions", "", nil, 404, "unknown-brand"},
		{"contact that is being erased", "GET", "/v1/brands/acme/contacts/usr_0/subscriptions", "", nil, 410, "contact-erased"},
	}
	for _, row := range rows {
		casetest.Add()
		t.Run(row.name, func(t *testing.T) {
			response := w.call(row.method, row.target, row.content, row.headers...)
			checkProblem(t, response, row.status, row.code)
		})
	}
	if now := w.counts(); now != stored {
		t.Errorf("refused requests changed the database: %s → %s", stored, now)
	}
	t.Logf("%d requests", len(rows))
}

// checkProblem checks an answer that is a problem document.
func checkProblem(t *testing.T, response *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	if response.Code != status {
		t.Fatalf("status %d, want %d: %s", response.Code, status, response.Body)
	}
	if got := response.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	p := decodeAnswer[problem](t, response)
	if p.Type != "urn:hubsync:problem:"+code || p.Status != status || p.Title == "" {
		t.Errorf("problem %+v, want code %s", p, code)
	}
	if response.Header().Get("Location") != "" {
		t.Error("a refusal has a Location")
	}
	switch allow := response.Header().Get("Allow"); {
	case (status == 405) != (allow != ""):
		t.Errorf("Allow %q with %d", allow, status)
	case (status == 400 && code == "invalid-request") != (len(p.Errors) > 0):
		t.Errorf("%d with %d field errors", status, len(p.Errors))
	}
}

// counts sums up what is stored.
func (w *world) counts() string {
	w.t.Helper()
	return one[string](w, `SELECT concat_ws(' ', (SELECT count(*) FROM contacts), (SELECT count(*) FROM contact_aliases),
		(SELECT count(*) FROM subscription_requests), (SELECT count(*) FROM hubspot_outbox_events),
		(SELECT sum(latest_sequence) FROM contact_subscription_state))`)
}

func TestAcceptedForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plain := bodyOf("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	for i, headers := range [][]string{
		{"Content-Type", "application/json"},
		{"Content-Type", "Application/JSON"},
		{"Content-Type", "application/json;charset=UTF-8"},
		{"Content-Type", `application/json; charset="utf-8"; profile=x`},
		{"Content-Type", "application/json", "Content-Encoding", "identity"},
		{"Content-Type", "application/json", "Accept", "text/html", "X-Other", "1"},
	} {
		casetest.Add()
		response := w.call("POST", "/v1/br%61nds/acme/subscriptions", plain, append(headers, keyHeader, strconv.Itoa(i))...)
		if response.Code != http.StatusAccepted {
			t.Errorf("%q: %d %s", headers, response.Code, response.Body)
		}
	}
	exact := plain + strings.Repeat("\n", maxBody-len(plain))
	if response := w.post("exact", exact); response.Code != http.StatusAccepted {
		t.Errorf("a body of 64 KiB: %d %s", response.Code, response.Body)
	}
}

func TestReceiptReplayAndReuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	content := bodyOf("usr_1", "Ann@Example.com", "newsletter", "subscribed", "2026-02-01T09:30:00Z")
	first := w.post(`"key one"`, content)
	receipt := w.receipt(first)
	want := "https://api.example.com/v1/brands/acme/subscription-requests/" + receipt.RequestID
	if first.Code != 202 || receipt.Status != "accepted" || receipt.Replayed || receipt.StatusURL != want || first.Header().Get("Location") != want {
		t.Fatalf("%d %s, Location %q", first.Code, first.Body, first.Header().Get("Location"))
	}
	if state := w.request(receipt.RequestID); state.Status != "pending" || state.Sequence != 1 || state.DesiredState != "subscribed" ||
		len(state.Events) != 1 || state.Events[0].Status != "pending" || state.Events[0].NextAttemptAt == nil || state.OccurredAt == nil {
		t.Errorf("state %+v", state)
	}
	same := bodyOf("usr_1", " ann@EXAMPLE.com", "newsletter", "subscribed", "2026-02-01T10:30:00+01:00")
	second := w.post(`"key one"`, same)
	replay := w.receipt(second)
	receipt.Replayed = true
	if second.Code != 200 || replay != receipt {
		t.Errorf("replay: %d %s", second.Code, second.Body)
	}
	before := w.counts()
	other := bodyOf("usr_1", "ann@example.com", "newsletter", "unsubscribed", "2026-02-01T09:30:00Z")
	checkProblem(t, w.post(`"key one"`, other), 422, "key-reused")
	if after := w.counts(); after != before {
		t.Errorf("%s → %s", before, after)
	}
	// The scope of a key is brand and product, and a refused request does not burn its key.
	for _, content := range []string{bodyOf("usr_1", "ann@example.com", "events", "subscribed", ""), bodyOf("usr_2", "bo@example.com", "events", "maybe", "")} {
		casetest.Add()
		if response := w.post(`"key one"`, content); response.Code == 422 {
			t.Errorf("%s: %d", content, response.Code)
		}
	}
	checkProblem(t, w.post("burnt?", bodyOf("usr_3", "@", "newsletter", "subscribed", "")), 400, "invalid-request")
	if response := w.post("burnt?", bodyOf("usr_3", "cy@example.com", "newsletter", "subscribed", "")); response.Code != 202 {
		t.Errorf("a refused request burnt its key: %d", response.Code)
	}
}

func TestEveryBadFieldIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	response := w.call("POST", acmePath, `{"contactKey":7,"email":"x","productId":"","desiredState":"maybe","occurredAt":"soon","extra":1,"consent":{"legalBasis":"x","a/b":2}}`,
		"Content-Type", "application/json")
	checkProblem(t, response, 400, "invalid-request")
	pointers := map[string]string{}
	for _, e := range decodeAnswer[problem](t, response).Errors {
		pointers[e.Field] = e.Pointer
	}
	for field, pointer := range map[string]string{
		keyHeader: "", "contactKey": "/contactKey", "email": "/email", "productId": "/productId", "desiredState": "/desiredState",
		"occurredAt": "/occurredAt", "extra": "/extra", "consent.legalBasis": "/consent/legalBasis", "consent.a~1b": "/consent/a~1b",
	} {
		if got, named := pointers[field]; !named || got != pointer {
			t.Errorf("%s: pointer %q, named %t", field, got, named)
		}
	}
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, `"%d%s":1,`, i, strings.Repeat("x", 110))
	}
	response = w.post("k", "{"+strings.TrimSuffix(many.String(), ",")+"}")
	if p := decodeAnswer[problem](t, response); response.Code != 400 || len(p.Errors) != maxFieldErrors || response.Body.Len() > maxBody {
		t.Errorf("%d, %d errors, %d bytes", response.Code, len(p.Errors), response.Body.Len())
	}
}

func TestSubscriptionsOfAContact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr/1 ü", "ann@example.com", "newsletter", "subscribed", "")
	w.decide("usr_2", "ANN@example.com", "events", "unsubscribed", "")
	w.exec(`UPDATE contact_subscription_state SET applied_sequence = 1, applied_state = desired_state WHERE product_id = 'events'`)
	for _, key := range []string{"usr%2F1%20%C3%BC", "usr_2"} {
		response := w.call("GET", "/v1/brands/acme/contacts/"+key+"/subscriptions", "")
		answer := decodeAnswer[[]struct {
			ProductID, DesiredState, AppliedState string
			Sequence, AppliedSequence             int64
			Converged                             bool
		}](t, response)
		if response.Code != 200 || len(answer) != 2 || answer[0].ProductID != "events" || answer[0].DesiredState != "unsubscribed" ||
			!answer[0].Converged || answer[1].Converged || answer[1].Sequence != 1 {
			t.Errorf("%s: %d %s", key, response.Code, response.Body)
		}
		if strings.Contains(response.Body.String(), "example") {
			t.Error("the answer holds an address")
		}
	}
	if response := w.call("GET", "/v1/brands/other/contacts/usr_2/subscriptions", ""); response.Code != 200 || strings.TrimSpace(response.Body.String()) != "[]" {
		t.Errorf("another brand: %d %s", response.Code, response.Body)
	}
	id := w.decide("usr_2", "ann@example.com", "events", "unsubscribed", "")
	if response := w.call("GET", "/v1/brands/other/subscription-requests/"+id, ""); response.Code != 404 {
		t.Errorf("a request under another brand: %d", response.Code)
	}
	if response := w.call("GET", "/v1/brands/acme/subscription-requests/"+strings.ToUpper(id), ""); response.Code != 200 {
		t.Errorf("upper-case id: %d", response.Code)
	}
}

// Over a socket: what a client library would tidy up on its way.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	plain := bodyOf("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	head := func(line string) string {
		return line + " HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nContent-Type: application/json\r\nIdempotency-Key: raw\r\n"
	}
	sized := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(plain), plain)
	chunked := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(plain), plain)
	huge := "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", maxBody+1, strings.Repeat(" ", maxBody+1))
	for _, row := range []struct {
		name, raw string
		status    int
	}{
		{"dots", head("POST /v1/brands/acme/../acme/subscriptions") + sized, 404},
		{"doubled slash", head("POST //v1/brands/acme/subscriptions") + sized, 404},
		{"trailing slash", head("POST /v1/brands/acme/subscriptions/") + sized, 404},
		{"broken escape", head("POST /v1/brands/ac%zzme/subscriptions") + sized, 400},
		{"half an escape", head("POST /v1/brands/acme%2/subscriptions") + sized, 400},
		{"chunked", head("POST /v1/brands/acme/subscriptions") + chunked, 202},
		{"chunked and too large", head("POST /v1/brands/acme/subscriptions") + huge, 413},
		{"announced too large", head("POST /v1/brands/acme/subscriptions") + "Content-Length: 9999999\r\n\r\n", 413},
		{"absolute form", head("POST http://example.com/v1/brands/acme/subscriptions") + sized, 200},
		{"query", head("POST /v1/brands/acme/subscriptions?x=%zz") + sized, 200},
		{"two keys", head("POST /v1/brands/acme/subscriptions") + "idempotency-key: raw\r\n" + sized, 400},
		{"broken off", head("POST /v1/brands/acme/subscriptions") + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"con\r\nzz\r\n", 400},
	} {
		casetest.Add()
		t.Run(row.name, func(t *testing.T) {
			connection, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := connection.Write([]byte(row.raw)); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(connection), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != row.status {
				t.Errorf("status %d, want %d", response.StatusCode, row.status)
			}
		})
	}
}

func TestTraceparentIsCarriedIfValid(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, row := range []struct {
		headers []string
		want    string
	}{
		{[]string{good}, good},
		{nil, ""},
		{[]string{good, good}, ""},
		{[]string{strings.ToUpper(good)}, ""},
		{[]string{strings.Replace(good, "00-", "ff-", 1)}, ""},
		{[]string{strings.Replace(good, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1)}, ""},
		{[]string{strings.Replace(good, "b7ad6b7169203331", strings.Repeat("0", 16), 1)}, ""},
		{[]string{good + "-x"}, ""},
		{[]string{good[:54]}, ""},
		{[]string{strings.Replace(good, "-01", "_01", 1)}, ""},
		{[]string{"ann@example.com" + good[15:]}, ""},
	} {
		casetest.Add()
		if got := traceparent(row.headers); got != row.want {
			t.Errorf("%q: %q", row.headers, got)
		}
	}
	w := newWorld(t)
	for key, header := range map[string]string{"with": good, "without": "nonsense"} {
		response := w.call("POST", acmePath, bodyOf("usr_1", "ann@example.com", "newsletter", "subscribed", ""),
			"Content-Type", "application/json", keyHeader, key, "Traceparent", header)
		stored := one[string](w, `SELECT coalesce(traceparent, '') FROM hubspot_outbox_events WHERE request_id = $1::uuid`, w.receipt(response).RequestID)
		if (stored == good) != (key == "with") {
			t.Errorf("%s: stored %q", key, stored)
		}
	}
}

// I7: whatever a caller sends, in whatever place, stays out of the log.
func TestLogHoldsNothingOfTheCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	content := `{"contactKey":"canary-key","email":"canary@example.com","productId":"newsletter","desiredState":"subscribed","consent":{"explanation":"canary text"}}`
	id := w.receipt(w.post("canary-idem", content)).RequestID
	w.post("canary-idem", strings.Replace(content, "canary text", "canary other", 1))
	w.post("canary-2", strings.Replace(content, "newsletter", "canary", 1))
	w.post("canary-3", strings.Replace(content, `"email"`, `"canary@example.com":1,"email"`, 1))
	w.post("canary-4", strings.Replace(content, "canary@", "canary@@", 1))
	w.call("POST", "/v1/brands/canary@example.com/subscriptions", content, "Content-Type", "application/json", keyHeader, "k")
	w.call("CANARY", "/canary%40example.com", "canary")
	w.call("canary", "/v1/brands/canary/contacts/canary-key/subscriptions", "")
	w.call("GET", "/v1/brands/acme/contacts/canary-key/subscriptions", "")
	w.call("GET", "/v1/brands/canary/subscription-requests/"+id, "")
	w.call("GET", "/v1/brands/acme/subscription-requests/canary", "")
	log := w.log.String()
	if lines := strings.Count(log, "\n"); lines != 11 {
		t.Errorf("%d lines for 11 requests", lines)
	}
	if strings.Contains(log, "anary") || strings.Contains(log, "example") {
		t.Errorf("the log holds a caller's text:\n%s", log)
	}
	for _, wanted := range []string{`"requestId":"` + id, `"brand":"acme"`, `"product":"newsletter"`, `"outcome":"accepted"`, `"outcome":"key-reused"`,
		`"route":"/v1/brands/{brandId}/subscriptions"`, `"route":"unmatched"`, `"duration":`} {
		if !strings.Contains(log, wanted) {
			t.Errorf("the log lacks %s", wanted)
		}
	}
}
