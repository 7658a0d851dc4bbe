package intake

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"hubsync/shared/casetest"
)

func (w *world) optOutOfAll(path, key, content string) *httptest.ResponseRecorder {
	return w.call("POST", path, content, "Content-Type", "application/json", keyHeader, key)
}

const (
	acmeWide = "/v1/brands/acme/unsubscribe-all"
	allWide  = "/v1/unsubscribe-all"
	ann      = `{"contactKey":"usr_1","email":"ann@example.com"}`
)

func TestAnOptOutOfABrandTakesEveryProductOfItAndNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	w.decide("usr_1", "ann@example.com", "events", "unsubscribed", "")
	other := w.call("POST", "/v1/brands/other/subscriptions", bodyOf("usr_1", "ann@example.com", "newsletter", "subscribed", ""),
		"Content-Type", "application/json", keyHeader, "o")
	if other.Code != http.StatusAccepted {
		t.Fatal(other.Body)
	}
	response := w.optOutOfAll(acmeWide, "k", ann)
	receipt := w.receipt(response)
	if response.Code != http.StatusAccepted || receipt.RequestID == "" || response.Header().Get("Location") != receipt.StatusURL {
		t.Fatalf("%d %s", response.Code, response.Body)
	}
	if state := w.request(receipt.RequestID); state.Status != "pending" || state.DesiredState != "unsubscribed" || len(state.Events) != 1 {
		t.Errorf("the receipt's request: %+v", state)
	}
	states := `SELECT string_agg(brand_id || ' ' || product_id || ' ' || desired_state || ' ' || latest_sequence, ', ' ORDER BY brand_id, product_id) FROM contact_subscription_state`
	if got := one[string](w, states); got != "acme * unsubscribed 1, acme events unsubscribed 1, acme newsletter unsubscribed 2, other newsletter subscribed 1" {
		t.Errorf("subscriptions: %s", got)
	}
	if n := one[int](w, `SELECT count(*) FROM hubspot_outbox_events WHERE lane = 0 AND status = 'pending' AND brand_id = 'acme'`); n != 3 {
		t.Errorf("%d opt-outs wait, want 3", n)
	}
	// A subscription that does not exist yet is covered, until a later consent.
	w.exec(`INSERT INTO subscription_products VALUES ('late')`)
	w.exec(`INSERT INTO brand_subscription_routes SELECT brand_id, version, 'late', portal_id, channel, 99, legal_basis, snapshot, true FROM brand_subscription_routes WHERE brand_id = 'acme' AND product_id = 'events'`)
	if state := w.request(w.decide("usr_1", "ann@example.com", "late", "subscribed", "2026-02-02T12:00:00Z")); state.Status != "superseded" {
		t.Errorf("an older consent to a new product: %+v", state)
	}
	if state := w.request(w.decide("usr_1", "ann@example.com", "late", "subscribed", "")); state.Status != "pending" {
		t.Errorf("a newer consent to a new product: %+v", state)
	}
}

func TestAnOptOutOfEverythingIsOneRequestAndKnowsItsKeyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	first := w.optOutOfAll(allWide, "k", ann)
	again := w.optOutOfAll(allWide, "k", ann)
	if first.Code != http.StatusAccepted || again.Code != http.StatusOK || w.receipt(again).RequestID != w.receipt(first).RequestID || !w.receipt(again).Replayed {
		t.Errorf("%d %s, then %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	if other := w.optOutOfAll(allWide, "k", `{"contactKey":"usr_2","email":"bo@example.com"}`); other.Code != http.StatusUnprocessableEntity {
		t.Errorf("another body under the key: %d", other.Code)
	}
	// The key of a brand's opt-out is another one.
	if brand := w.optOutOfAll(acmeWide, "k", ann); brand.Code != http.StatusAccepted {
		t.Errorf("the same key for a brand: %d", brand.Code)
	}
	wide := `SELECT string_agg(payload ->> 'wide' || coalesce(payload ->> 'businessUnitId', ''), ' ' ORDER BY payload ->> 'wide') FROM hubspot_outbox_events WHERE payload ? 'wide'`
	if got := one[string](w, wide); got != "brand0 portal" {
		t.Errorf("wide opt-outs: %s", got)
	}
	if status := w.call("GET", strings.TrimPrefix(w.receipt(first).StatusURL, "https://api.example.com"), ""); status.Code != http.StatusOK {
		t.Errorf("its status: %d %s", status.Code, status.Body)
	}
	if n := one[int](w, `SELECT count(*) FROM subscription_requests WHERE id::text !~ '^........-....-7'`); n != 0 {
		t.Errorf("%d ids are no UUIDv7", n)
	}
}

// A stranger's opt-out is kept: it covers whatever is made for this person later.
func TestAStrangersOptOutIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if response := w.optOutOfAll(allWide, "k", `{"contactKey":"usr_9","email":"new@example.com","occurredAt":"2026-02-02T12:00:00Z"}`); response.Code != http.StatusAccepted {
		t.Fatal(response.Body)
	}
	if state := w.request(w.decide("usr_9", "new@example.com", "newsletter", "subscribed", "2026-02-02T11:00:00Z")); state.Status != "superseded" {
		t.Errorf("%+v", state)
	}
}

// A subscribe and an opt-out of all, at once and again and again: the later one by its
// consent holds, and nothing is made beside the opt-out that it does not cover.
func TestSubscribesRaceOptOutsOfAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const old = "2026-02-02T12:00:00Z"
	for round := range 30 {
		email, key := fmt.Sprintf("p%d@example.com", round), fmt.Sprintf("usr_%d", round)
		var all sync.WaitGroup
		for i, product := range []string{"newsletter", "events"} {
			all.Go(func() {
				r := w.post(fmt.Sprintf("s-%d-%d", round, i), bodyOf(key, email, product, "subscribed", old))
				if r.Code != http.StatusAccepted {
					t.Errorf("subscribe: %d %s", r.Code, r.Body)
				}
			})
		}
		all.Go(func() {
			path := []string{acmeWide, allWide}[round%2]
			if r := w.optOutOfAll(path, fmt.Sprintf("u-%d", round), fmt.Sprintf(`{"contactKey":%q,"email":%q}`, key, email)); r.Code != http.StatusAccepted {
				t.Errorf("opt out: %d %s", r.Code, r.Body)
			}
		})
		all.Wait()
	}
	if n := one[int](w, `SELECT count(*) FROM contact_subscription_state WHERE desired_state = 'subscribed'`); n != 0 {
		t.Errorf("%d subscriptions of an older consent were left", n)
	}
}

func TestWhatAnOptOutOfAllRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored := w.counts()
	for name, tc := range map[string]struct {
		path, key, content string
		status             int
		code               string
	}{
		"no key":               {acmeWide, "", ann, 400, "invalid-request"},
		"no address":           {acmeWide, "k", `{"contactKey":"usr_1"}`, 400, "invalid-request"},
		"no contact key":       {allWide, "k", `{"email":"ann@example.com"}`, 400, "invalid-request"},
		"a product":            {allWide, "k", `{"contactKey":"usr_1","email":"ann@example.com","productId":"newsletter"}`, 400, "invalid-request"},
		"a state":              {allWide, "k", `{"contactKey":"usr_1","email":"ann@example.com","desiredState":"subscribed"}`, 400, "invalid-request"},
		"an unknown brand":     {"/v1/brands/nobody/unsubscribe-all", "k", ann, 404, "unknown-brand"},
		"every brand as brand": {"/v1/brands/*/unsubscribe-all", "k", ann, 404, "unknown-brand"},
		"every product":        {acmePath, "k", bodyOf("usr_1", "ann@example.com", "*", "subscribed", ""), 404, "unknown-product"},
	} {
		casetest.Add()
		headers := []string{"Content-Type", "application/json"}
		if tc.key != "" {
			headers = append(headers, keyHeader, tc.key)
		}
		response := w.call("POST", tc.path, tc.content, headers...)
		if response.Code != tc.status || !strings.Contains(response.Body.String(), "urn:hubsync:problem:"+tc.code) {
			t.Errorf("%s: %d %s", name, response.Code, response.Body)
		}
	}
	if now := w.counts(); now != stored {
		t.Errorf("something was stored: %v, before %v", now, stored)
	}
}

func TestAnAddressIsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide("usr_1", "ann@example.com", "newsletter", "subscribed", "")
	w.decide("usr_1", "ann@example.com", "events", "unsubscribed", "")
	w.decide("usr_2", "bo@example.com", "events", "subscribed", "")
	put := func(contact, content string) *httptest.ResponseRecorder {
		return w.call("PUT", "/v1/brands/acme/contacts/"+contact+"/email", content, "Content-Type", "application/json")
	}
	for _, tc := range []struct {
		name, contact, content string
		status                 int
		says                   string
	}{
		{"another address", "usr_1", `{"email":"Ann.New@example.com"}`, 202, `"status":"changed","subscriptions":2`},
		{"again", "usr_1", `{"email":"ann.new@EXAMPLE.com"}`, 200, `"status":"unchanged","subscriptions":0`},
		{"somebody else's", "usr_1", `{"email":"bo@example.com"}`, 409, "address-taken"},
		{"a stranger's key", "usr_9", `{"email":"x@example.com"}`, 404, "unknown-contact"},
		{"no address", "usr_1", `{}`, 400, "is missing"},
		{"no valid address", "usr_1", `{"email":"x"}`, 400, "invalid-request"},
		{"more than an address", "usr_1", `{"email":"x@example.com","contactKey":"usr_1"}`, 400, "unknown_member"},
	} {
		casetest.Add()
		if r := put(tc.contact, tc.content); r.Code != tc.status || !strings.Contains(r.Body.String(), tc.says) {
			t.Errorf("%s: %d %s", tc.name, r.Code, r.Body)
		}
	}
	if r := w.call("PUT", "/v1/brands/nobody/contacts/usr_1/email", `{"email":"x@example.com"}`, "Content-Type", "application/json"); r.Code != http.StatusNotFound {
		t.Errorf("an unknown brand: %d", r.Code)
	}
	got := one[string](w, `SELECT email || ' ' || email_key || ' ' || array_to_string(previous_email_keys, ' ') FROM contacts WHERE contact_key = 'usr_1'`)
	if got != "ann.new@EXAMPLE.com ann.new@example.com ann@example.com" {
		t.Errorf("contact: %s", got)
	}
	if n := one[int](w, `SELECT count(*) FROM contact_conflicts WHERE kind = 'address_taken'`); n != 1 {
		t.Errorf("%d clashes are listed, want 1", n)
	}
}
