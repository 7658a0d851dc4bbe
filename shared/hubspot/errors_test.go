package hubspot

import (
	"net/http"
	"testing"
	"time"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/casetest"
)

func TestErrorOfResponse(t *testing.T) {
	t.Parallel()
	interval := map[string]string{"X-HubSpot-RateLimit-Interval-Milliseconds": "10000"}
	after := func(s string) map[string]string { return map[string]string{"Retry-After": s} }
	for name, test := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   Error // Kind, Code and what else is set
	}{
		"token refused":        {401, nil, `{"category":"INVALID_AUTHENTICATION"}`, Error{Kind: KindUnauthorized, Code: "hubspot_401_invalid_authentication"}},
		"scope":                {403, nil, `{"category":"MISSING_SCOPES"}`, Error{Kind: KindForbidden, Code: "hubspot_403_missing_scopes"}},
		"firewall page":        {403, nil, `<html>blocked</html>`, Error{Kind: KindForbidden, Code: "hubspot_403"}},
		"no such path":         {404, nil, `<html>`, Error{Kind: KindNotFound, Code: "hubspot_404"}},
		"conflict":             {409, nil, `{"category":"CONFLICT","message":"Contact already exists. Existing ID: 4711"}`, Error{Kind: KindConflict, Code: "hubspot_409_conflict", ExistingID: "4711"}},
		"conflict inside":      {409, nil, `{"errors":[{"message":"Contact already exists. Existing ID: 12"}]}`, Error{Kind: KindConflict, Code: "hubspot_409", ExistingID: "12"}},
		"validation":           {400, nil, `{"category":"VALIDATION_ERROR"}`, Error{Kind: KindInvalid, Code: "hubspot_400_validation_error"}},
		"property":             {400, nil, `{"category":"VALIDATION_ERROR","message":"Property values were not valid: [{\"isValid\":false,\"error\":\"PROPERTY_DOESNT_EXIST\",\"name\":\"wants_news\"}]"}`, Error{Kind: KindInvalid, Code: "hubspot_400_property_doesnt_exist", Property: "wants_news"}},
		"code of an inner one": {400, nil, `{"category":"VALIDATION_ERROR","errors":[{"code":"INVALID_OPTION"}]}`, Error{Kind: KindInvalid, Code: "hubspot_400_invalid_option"}},
		"required property":    {400, nil, `{"message":"MISSING_REQUIRED_PROPERTY"}`, Error{Kind: KindInvalid, Code: "hubspot_400_missing_required_property"}},
		"sub-category":         {400, nil, `{"subCategory":"ContactValidationError.BAD_THING"}`, Error{Kind: KindInvalid, Code: "hubspot_400_bad_thing"}},
		"odd sub-category":     {400, nil, `{"category":"VALIDATION_ERROR","subCategory":{"a":1}}`, Error{Kind: KindInvalid, Code: "hubspot_400_validation_error"}},
		"odd shapes":           {400, nil, `{"category":"VALIDATION_ERROR","context":[1],"errors":["x",{"code":7}],"status":400}`, Error{Kind: KindInvalid, Code: "hubspot_400_validation_error"}},
		"context is no list":   {400, nil, `{"context":{"ids":"17","other":{"a":1}}}`, Error{Kind: KindInvalid, Code: "hubspot_400", IDs: []string{"17"}}},
		"URI too long":         {414, nil, ``, Error{Kind: KindInvalid, Code: "hubspot_414"}},
		"burst":                {429, interval, `{"errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}`, Error{Kind: KindRateLimited, Code: "hubspot_429_ten_secondly_rolling", RetryAfter: 10 * time.Second}},
		"burst says when":      {429, after("3"), `{"policyName":"SECONDLY"}`, Error{Kind: KindRateLimited, Code: "hubspot_429_secondly", RetryAfter: 3 * time.Second}},
		"burst says nothing":   {429, nil, `{"policyName":"SECONDLY"}`, Error{Kind: KindRateLimited, Code: "hubspot_429_secondly"}},
		"day":                  {429, interval, `{"policyName":"DAILY"}`, Error{Kind: KindDailyLimited, Code: "hubspot_429_daily"}},
		"limit under 500":      {500, interval, `{"category":"RATE_LIMITS"}`, Error{Kind: KindRateLimited, Code: "hubspot_500_rate_limits", RetryAfter: 10 * time.Second}},
		"day under 500":        {500, nil, `{"category":"RATE_LIMITS","policyName":"DAILY"}`, Error{Kind: KindDailyLimited, Code: "hubspot_500_daily"}},
		"locked":               {423, nil, ``, Error{Kind: KindLocked, Code: "hubspot_423", RetryAfter: 2 * time.Second}},
		"locked, too short":    {423, after("1"), ``, Error{Kind: KindLocked, Code: "hubspot_423", RetryAfter: 2 * time.Second}},
		"locked, long":         {423, after("9"), ``, Error{Kind: KindLocked, Code: "hubspot_423", RetryAfter: 9 * time.Second}},
		"migrating":            {477, after("99999999"), ``, Error{Kind: KindMigrating, Code: "hubspot_477", RetryAfter: 24 * time.Hour}},
		"internal":             {500, nil, `{"category":"INTERNAL_ERROR"}`, Error{Kind: KindUnavailable, Code: "hubspot_500_internal_error"}},
		"502":                  {502, nil, `<html>`, Error{Kind: KindUnavailable, Code: "hubspot_502"}},
		"503 says when":        {503, after("7"), ``, Error{Kind: KindUnavailable, Code: "hubspot_503", RetryAfter: 7 * time.Second}},
		"504":                  {504, nil, ``, Error{Kind: KindUnavailable, Code: "hubspot_504"}},
		"521":                  {521, nil, ``, Error{Kind: KindUnavailable, Code: "hubspot_521"}},
		"525":                  {525, nil, ``, Error{Kind: KindUnavailable, Code: "hubspot_525"}},
		"redirect":             {302, nil, ``, Error{Kind: KindUnavailable, Code: "hubspot_302"}},
	} {
		casetest.Add()
		header := http.Header{}
		header.Set("X-HubSpot-Correlation-Id", testCorrelation)
		for k, v := range test.header {
			header.Set(k, v)
		}
		got := errorOfResponse(test.status, header, []byte(test.body), testNow)
		w := test.want
		if got.Kind != w.Kind || got.Code != w.Code || got.RetryAfter != w.RetryAfter || got.ExistingID != w.ExistingID ||
			got.Property != w.Property || len(got.IDs) != len(w.IDs) || got.Status != test.status || got.CorrelationID != testCorrelation {
			t.Errorf("%s: %+v, want %+v", name, got, w)
		}
	}
}

func TestInputError(t *testing.T) {
	t.Parallel()
	c := answering(t, 200, "")
	a := answer{operation: "write", status: 207, correlation: testCorrelation}
	for text, want := range map[string]struct {
		kind Kind
		code string
	}{
		`{"category":"OBJECT_NOT_FOUND"}`:      {KindNotFound, "hubspot_404_object_not_found"},
		`{"category":"CONFLICT"}`:              {KindConflict, "hubspot_409_conflict"},
		`{"category":"OBJECT_ALREADY_EXISTS"}`: {KindConflict, "hubspot_409_object_already_exists"},
		`{"category":"VALIDATION_ERROR","message":"Contact already exists. Existing ID: 5"}`: {KindConflict, "hubspot_409_validation_error"},
		`{"category":"VALIDATION_ERROR"}`:          {KindInvalid, "hubspot_400_validation_error"},
		`{"message":"INVALID_EMAIL"}`:              {KindInvalid, "hubspot_400_invalid_email"},
		`{"category":"MISSING_REQUIRED_PROPERTY"}`: {KindInvalid, "hubspot_400_missing_required_property"},
		`{"category":"MISSING_SCOPES"}`:            {KindForbidden, "hubspot_403_missing_scopes"},
		`{"category":"RATE_LIMITS"}`:               {KindRateLimited, "hubspot_429_rate_limits"},
		`{"category":"INTERNAL_ERROR"}`:            {KindUnavailable, "hubspot_500_internal_error"},
		// Nothing here blames the input: it must not end as dead at once.
		`{"category":"SOMETHING_NEW"}`: {KindUnknown, "hubspot_207_something_new"},
		`{}`:                           {KindUnknown, "hubspot_207"},
	} {
		casetest.Add()
		var b errorBody
		if err := json.Unmarshal([]byte(text), &b, lenient); err != nil {
			t.Fatal(err)
		}
		got := c.inputError(a, b)
		if got.Kind != want.kind || got.Code != want.code || got.Portal != "p1" || got.CorrelationID != testCorrelation {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestRetryableAndUnknown(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind][2]bool{ // retryable, outcome unknown
		KindUnauthorized: {false, false}, KindForbidden: {false, false}, KindNotFound: {false, false},
		KindConflict: {false, false}, KindInvalid: {false, false}, KindRateLimited: {true, false}, KindDailyLimited: {true, false},
		KindLocked: {true, false}, KindMigrating: {true, false}, KindUnavailable: {true, true}, KindUnknown: {true, true}, KindNotSent: {true, false},
	} {
		e := Error{Kind: kind}
		if e.Retryable() != want[0] || e.OutcomeUnknown() != want[1] {
			t.Errorf("%s: retryable %v, unknown %v", kind, e.Retryable(), e.OutcomeUnknown())
		}
	}
}

func TestErrorNamesOperationAndPortal(t *testing.T) {
	t.Parallel()
	_, err := answering(t, 503, "").Definitions(t.Context())
	if got, want := err.Error(), "hubspot: read definitions: portal p1: HubSpot answered 503 (hubspot_503)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
