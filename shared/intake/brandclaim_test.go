package intake

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hubsync/shared/casetest"
)

// A token speaks for the brands of its claim. The handler has no database: what the gate
// lets through would need one.
func TestTokenSpeaksForItsBrandsOnly(t *testing.T) {
	t.Parallel()
	claim := ""
	h := New(Config{Brands: func(*http.Request) string { return claim }})
	for _, c := range []struct {
		claim, path string
		allowed     bool
	}{
		{"acme", "/v1/brands/acme/subscriptions", true},
		{"[acme nordic]", "/v1/brands/nordic/subscriptions", true},
		{"acme,nordic", "/v1/brands/nordic/subscriptions", true},
		{"*", "/v1/brands/acme/subscriptions", true},
		{"acme", "/v1/brands/acme%2Fx/subscriptions", false},
		{"acme", "/v1/br%61nds/nordic/subscriptions", false},
		{"acme", "/v%31/brands/nordic/subscriptions", false},
		{"acme", "/v1/brands/ACME/subscriptions", false},
		{"acme", "/v1/brands/acm/subscriptions", false},
		{"acme", "/v1/brands/nordic/subscriptions", false},
		{"acme", "/v1/brands/*/subscriptions", false},
		{"acme", "/v1/brands/[acme/subscriptions", false},
		{"acme", "/v1/brands/acme%20nordic/subscriptions", false},
		{"acme nordic", "/v1/brands/acme%20nordic/subscriptions", false},
		{"", "/v1/brands/acme/subscriptions", false},
		{"[]", "/v1/brands/acme/subscriptions", false},
		{" ", "/v1/brands/%20/subscriptions", false},
	} {
		casetest.Add()
		claim = c.claim
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(`{}`))
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		var p struct{ Type string }
		_ = json.Unmarshal(rec.Body.Bytes(), &p)
		// An allowed one goes on to be judged: its body is not valid.
		if want := map[bool]int{true: 400, false: 403}[c.allowed]; rec.Code != want || (!c.allowed && p.Type != "urn:hubsync:problem:brand-not-allowed") {
			t.Errorf("claim %q, %s: %d %s, want %d", c.claim, c.path, rec.Code, p.Type, want)
		}
	}
}

func TestWhatConcernsEveryBrandNeedsEveryBrand(t *testing.T) {
	t.Parallel()
	if mayActFor("acme", "/v1/unsubscribe-all", nil) || !mayActFor("*", "/v1/unsubscribe-all", nil) || !mayActFor("", "/healthz", nil) {
		t.Error("the claim of one brand covers all, or that of all does not, or health needs one")
	}
}
