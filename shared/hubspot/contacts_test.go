package hubspot

import (
	"testing"

	"hubsync/shared/casetest"
)

func TestJudgeContacts(t *testing.T) {
	t.Parallel()
	writes := []ContactWrite{
		{ExternalID: "k1", Email: "a@example.com", TraceID: "t1"}, {ExternalID: "K1", TraceID: "t2"}, {ExternalID: "k3", TraceID: "t3"},
	}
	o := func(id, trace, key string) string {
		text := `{"id":"` + id + `","new":true,"properties":{"external_contact_id":"` + key + `","age":7,"gone":null},"updatedAt":"2026-05-04T11:00:00Z"`
		if trace != "" {
			text += `,"objectWriteTraceId":"` + trace + `"`
		}
		return text + `}`
	}
	all := o("11", "t1", "k1") + "," + o("12", "t2", "K1") + "," + o("13", "t3", "k3")
	bad := func(category, context string) string { return refusal(category, context) }
	for name, test := range map[string]struct {
		status int
		body   string
		want   [3]Kind
	}{
		"all":                        {200, complete(all), [3]Kind{}},
		"in another order":           {200, complete(o("13", "t3", "k3") + "," + o("11", "t1", "k1") + "," + o("12", "t2", "K1")), [3]Kind{}},
		"without trace ids":          {200, complete(o("12", "", "K1") + "," + o("11", "", "k1") + "," + o("13", "", "k3")), [3]Kind{}},
		"complete, and empty":        {200, complete(""), [3]Kind{KindUnknown, KindUnknown, KindUnknown}},
		"a result without id":        {200, complete(o("", "t1", "k1") + "," + o("12", "t2", "K1") + "," + o("13", "t3", "k3")), [3]Kind{KindUnknown, "", ""}},
		"two results for one":        {200, complete(all + "," + o("14", "t1", "k1")), [3]Kind{KindUnknown, "", ""}},
		"207":                        {207, complete(o("11", "t1", "k1")+","+o("12", "t2", "K1"), bad("VALIDATION_ERROR", `"objectWriteTraceId":["t3"]`)), [3]Kind{"", "", KindInvalid}},
		"207 names one nowhere":      {207, complete(o("11", "t1", "k1"), bad("VALIDATION_ERROR", `"objectWriteTraceId":["t3"]`)), [3]Kind{"", KindUnknown, KindInvalid}},
		"200 with an error":          {200, complete(o("12", "t2", "K1")+","+o("13", "t3", "k3"), bad("CONFLICT", `"objectWriteTraceId":["t1"]`)), [3]Kind{KindConflict, "", ""}},
		"error by id":                {207, complete(o("12", "t2", "K1")+","+o("13", "t3", "k3"), bad("OBJECT_NOT_FOUND", `"ids":["k1"]`)), [3]Kind{KindNotFound, "", ""}},
		"trace decides over ids":     {207, complete(o("12", "t2", "K1")+","+o("13", "t3", "k3"), bad("VALIDATION_ERROR", `"ids":["k3"],"objectWriteTraceId":["t1"]`)), [3]Kind{KindInvalid, "", ""}},
		"done and refused":           {207, complete(all, bad("VALIDATION_ERROR", `"objectWriteTraceId":["t1"]`)), [3]Kind{KindUnknown, "", ""}},
		"error that names nobody":    {207, complete(o("11", "t1", "k1"), bad("VALIDATION_ERROR", ``)), [3]Kind{"", KindUnknown, KindUnknown}},
		"two refused by one error":   {207, complete(o("11", "t1", "k1"), bad("VALIDATION_ERROR", `"objectWriteTraceId":["t2","t3"]`)), [3]Kind{"", KindInvalid, KindInvalid}},
		"strange traces":             {200, complete(o("11", "x1", "k1") + "," + o("12", "x2", "K1") + "," + o("13", "x3", "k3")), [3]Kind{KindUnknown, KindUnknown, KindUnknown}},
		"record ids written as text": {200, complete(`{"id":11,"objectWriteTraceId":"t1"},` + o("12", "t2", "K1") + "," + o("13", "t3", "k3")), [3]Kind{}},
	} {
		casetest.Add()
		results, err := answering(t, test.status, test.body).UpsertContacts(t.Context(), writes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ids := []string{"11", "12", "13"}
		for i, r := range results {
			confirmed := test.want[i] == ""
			if kindOf(r.Err) != test.want[i] || r.Confirmed != confirmed || (confirmed && r.RecordID != ids[i]) || r.CorrelationID != testCorrelation {
				t.Errorf("%s: write %d is %+v, want %q", name, i, r, test.want[i])
			}
		}
	}
}

func TestConflictNamesTheOwner(t *testing.T) {
	t.Parallel()
	conflict := `{"category":"CONFLICT","message":"Contact already exists. Existing ID: 4711","context":{"objectWriteTraceId":["t1"]}}`
	writes := []ContactWrite{{ExternalID: "k1", TraceID: "t1"}, {ExternalID: "k2", TraceID: "t2"}}
	results, err := answering(t, 207, complete("", conflict)).UpsertContacts(t.Context(), writes)
	if err != nil || kindOf(results[0].Err) != KindConflict || results[0].Err.ExistingID != "4711" || kindOf(results[1].Err) != KindUnknown {
		t.Errorf("%+v %v", results, err)
	}
	_, err = answering(t, 409, conflict).UpsertContacts(t.Context(), writes[:1])
	if he := hubspotError(t, err, KindConflict); he.ExistingID != "4711" {
		t.Errorf("%+v", he)
	}
}

func TestContactsOnTheWire(t *testing.T) {
	t.Parallel()
	f := &fake{body: complete("")}
	c := newClient(t, f)
	properties := map[string]string{"news": "true"}
	_, _ = c.UpsertContacts(t.Context(), []ContactWrite{{ExternalID: "k1", Email: "a@example.com", TraceID: "t1"}, {ExternalID: "k2"}})
	_, _ = c.UpdateContacts(t.Context(), []ContactUpdate{{ID: "11", Properties: properties, TraceID: "t1"}, {ID: "k2", IDProperty: ContactKeyProperty}})
	_, _ = c.UpdateContact(t.Context(), ContactUpdate{ID: "a+b@example.com", IDProperty: "email", Properties: properties})
	_, _ = c.ReadContacts(t.Context(), []string{"k1"}, ContactKeyProperty, []string{"news", "email"})
	_, _ = c.GetContact(t.Context(), "a@example.com", "email", nil)
	if len(properties) != 1 {
		t.Errorf("the caller's properties became %v", properties)
	}
	base := "/crm/objects/2026-03/contacts"
	for i, want := range []request{
		{"POST", base + "/batch/upsert", `"id":"k1","idProperty":"external_contact_id","objectWriteTraceId":"t1"`, nil},
		{"POST", base + "/batch/update", `{"inputs":[{"id":"11","objectWriteTraceId":"t1","properties":{"news":"true"}},{"id":"k2","idProperty":"external_contact_id","properties":{}}]}`, nil},
		{"PATCH", base + "/a%2Bb%40example.com?idProperty=email", `{"properties":{"news":"true"}}`, nil},
		{"POST", base + "/batch/read", `{"inputs":[{"id":"k1"}],"properties":["email","external_contact_id","hs_additional_emails","hs_object_id","news"],"idProperty":"external_contact_id"}`, nil},
		{"GET", base + "/a%40example.com?idProperty=email&properties=email%2Chs_additional_emails%2Chs_object_id", ``, nil},
	} {
		casetest.Add()
		got := f.calls()[i]
		if got.method != want.method || got.uri != want.uri || !containsText(got.body, want.body) {
			t.Errorf("%s %s %s, want %s %s %s", got.method, got.uri, got.body, want.method, want.uri, want.body)
		}
	}
}

func TestUpdateContact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body      string
		confirmed bool
	}{
		"confirmed":   {`{"id":"11","properties":{}}`, true},
		"merged away": {`{"id":"99","properties":{}}`, true},
		"no id":       {`{"properties":{}}`, false},
		"null":        {`null`, false},
	} {
		casetest.Add()
		r, err := answering(t, 200, test.body).UpdateContact(t.Context(), ContactUpdate{ID: "11"})
		if err != nil || r.Confirmed != test.confirmed || (r.Err == nil) != test.confirmed {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
	_, err := answering(t, 404, refusal("OBJECT_NOT_FOUND", "")).UpdateContact(t.Context(), ContactUpdate{ID: "11"})
	hubspotError(t, err, KindNotFound)
}

func TestReadContacts(t *testing.T) {
	t.Parallel()
	o := func(id, email, more string) string {
		return `{"id":"` + id + `","properties":{"email":"` + email + `","hs_additional_emails":"` + more + `","external_contact_id":"k` + id + `"}}`
	}
	missing := refusal("OBJECT_NOT_FOUND", `"ids":["bo@example.com"]`)
	for name, test := range map[string]struct {
		body string
		ana  string // record id, or a kind
		bo   string // record id, "none", or a kind
	}{
		"both":                  {complete(o("12", "bo@example.com", "") + "," + o("11", "ana@example.com", "")), "11", "12"},
		"a secondary address":   {complete(o("12", "bo@example.com", "") + "," + o("11", "x@example.com", "y@example.com; ANA@example.com")), "11", "12"},
		"one record for both":   {complete(o("11", "ana@example.com", "bo@example.com")), "11", "11"},
		"missing":               {complete(o("11", "ana@example.com", ""), missing), "11", "none"},
		"missing in a sentence": {complete(o("11", "ana@example.com", ""), refusal("OBJECT_NOT_FOUND", "")), "11", "unknown"},
		"another error":         {complete(o("11", "ana@example.com", ""), refusal("INTERNAL_ERROR", `"ids":["BO@example.com"]`)), "11", "unavailable"},
		"named nowhere":         {complete(o("11", "ana@example.com", "")), "11", "unknown"},
		"empty":                 {complete(""), "unknown", "unknown"},
		"two owners":            {complete(o("11", "ana@example.com", "") + "," + o("12", "bo@example.com", "ana@example.com")), "unknown", "12"},
		"no id":                 {complete(o("", "ana@example.com", "") + "," + o("12", "bo@example.com", "")), "unknown", "12"},
	} {
		casetest.Add()
		got, err := answering(t, 207, test.body).ReadContacts(t.Context(), []string{"Ana@example.com", "bo@example.com"}, "email", nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a, b := readText(got["ana@example.com"]), readText(got["bo@example.com"]); a != test.ana || b != test.bo || len(got) != 2 {
			t.Errorf("%s: ana %s, bo %s, %d entries", name, a, b, len(got))
		}
	}
	// Keys of ours differ by case, and a merged record comes back under another id.
	got, err := answering(t, 200, complete(`{"id":"1","properties":{"external_contact_id":"a"}},{"id":"2","properties":{"external_contact_id":"A"}}`)).
		ReadContacts(t.Context(), []string{"A", "a"}, ContactKeyProperty, nil)
	if err != nil || got["a"].RecordID != "1" || got["A"].RecordID != "2" {
		t.Errorf("by key: %+v %v", got, err)
	}
	got, err = answering(t, 200, complete(`{"id":"99","properties":{}}`)).ReadContacts(t.Context(), []string{"11"}, "", nil)
	if err != nil || got["11"].RecordID != "99" {
		t.Errorf("merged: %+v %v", got, err)
	}
}

func readText(r ContactRead) string {
	switch {
	case r.Err != nil:
		return string(r.Err.Kind)
	case r.Found:
		return r.RecordID
	default:
		return "none"
	}
}

func TestGetContact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"found":         {200, `{"id":"11","properties":{"email":"a@example.com","n":null}}`, "11"},
		"not found":     {404, refusal("OBJECT_NOT_FOUND", ""), "none"},
		"no id":         {200, `{}`, "unknown"},
		"path is wrong": {404, `<html>`, "error"},
	} {
		casetest.Add()
		r, err := answering(t, test.status, test.body).GetContact(t.Context(), "a@example.com", "email", nil)
		got := readText(r)
		if err != nil {
			got = "error"
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
