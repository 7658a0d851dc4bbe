package hubspot

import (
	"testing"
	"time"

	"hubsync/shared/casetest"
)

func wideText(email, kind, unit, state string) string {
	return `{"subscriberIdString":"` + email + `","wideStatusType":"` + kind + `","businessUnitId":` + unit + `,"status":"` + state + `","timestamp":"2026-05-04T11:00:00Z"}`
}

func TestReadUnsubscribedAll(t *testing.T) {
	t.Parallel()
	ana := wideText("ana@example.com", "PORTAL_WIDE", "null", "UNSUBSCRIBED")
	named := func(email, list string) string {
		return `{"subscriberIdString":"` + email + `","wideStatuses":[` + list + `]}`
	}
	for name, test := range map[string]struct {
		status int
		body   string
		ana    Kind
		bo     Kind
		n      int // statuses of ana
	}{
		"nobody ever did":              {200, complete(""), "", "", 0},
		"flat":                         {200, complete(ana + "," + wideText("ANA@example.com", "BUSINESS_UNIT_WIDE", "3", "UNSUBSCRIBED")), "", "", 2},
		"grouped":                      {200, complete(named("ana@example.com", ana) + "," + named("bo@example.com", "")), "", "", 1},
		"everyone is named but one":    {200, complete(named("bo@example.com", "")), KindUnknown, "", 0},
		"only those who did are named": {200, complete(named("ana@example.com", ana)), "", "", 1},
		"an error":                     {207, complete(ana, refusal("VALIDATION_ERROR", `"subscriberIdString":["bo@example.com"]`)), "", KindInvalid, 1},
		"an error that is not shown":   {200, `{"status":"COMPLETE","results":[` + ana + `],"numErrors":1}`, "", KindUnknown, 1},
		"not complete":                 {200, `{"status":"CANCELED","results":[` + ana + `]}`, "", KindUnknown, 1},
		"no envelope":                  {200, `{}`, KindUnknown, KindUnknown, 0},
		"null":                         {200, `null`, KindUnknown, KindUnknown, 0},
		"whose?":                       {200, complete(`{"wideStatusType":"PORTAL_WIDE","status":"UNSUBSCRIBED"}`), KindUnknown, KindUnknown, 0},
		"a state we do not know":       {200, complete(wideText("ana@example.com", "PORTAL_WIDE", "0", "GONE")), KindUnknown, "", 0},
		"named, and nothing said":      {200, complete(`{"subscriberIdString":"ana@example.com"}`), KindUnknown, "", 0},
	} {
		casetest.Add()
		got, err := answering(t, test.status, test.body).ReadUnsubscribedAll(t.Context(), []string{"ana@example.com", "Bo@example.com"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a, b := got["ana@example.com"], got["bo@example.com"]
		if kindOf(a.Err) != test.ana || kindOf(b.Err) != test.bo || len(a.Statuses) != test.n || len(b.Statuses) != 0 || len(got) != 2 {
			t.Errorf("%s: ana %+v, bo %+v, %d entries", name, a, b, len(got))
		}
	}
}

func TestReadUnsubscribedAllOne(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 11, 0, 0, 0, time.UTC)
	brand := WideStatus{BusinessUnitWide, 3, Unsubscribed, at}
	for name, test := range map[string]struct {
		body string
		want Kind
		seen []WideStatus
	}{
		"never":                      {complete(""), "", nil},
		"portal":                     {complete(wideText("a@example.com", "PORTAL_WIDE", "0", "UNSUBSCRIBED")), "", []WideStatus{{PortalWide, 0, Unsubscribed, at}}},
		"brand, id as text":          {complete(wideText("a@example.com", "BUSINESS_UNIT_WIDE", `"3"`, "UNSUBSCRIBED")), "", []WideStatus{brand}},
		"unknown type is everything": {complete(wideText("a@example.com", "GALAXY_WIDE", "3", "UNSUBSCRIBED")), "", []WideStatus{{"GALAXY_WIDE", 0, Unsubscribed, at}}},
		"unknown state":              {complete(wideText("a@example.com", "PORTAL_WIDE", "0", "?")), KindUnknown, nil},
		"not complete":               {`{"status":"PENDING"}`, KindUnknown, nil},
		"an error":                   {complete("", refusal("INTERNAL_ERROR", "")), KindUnavailable, nil},
	} {
		casetest.Add()
		got, err := answering(t, 200, test.body).ReadUnsubscribedAllOne(t.Context(), "a@example.com")
		if err != nil || kindOf(got.Err) != test.want || len(got.Statuses) != len(test.seen) {
			t.Errorf("%s: %+v %v", name, got, err)
			continue
		}
		for i, s := range got.Statuses {
			if s != test.seen[i] {
				t.Errorf("%s: %+v, want %+v", name, s, test.seen[i])
			}
		}
	}
}

func TestUnsubscribeAll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body string
		want Kind
	}{
		"wide status":       {complete(wideText("a@example.com", "PORTAL_WIDE", "0", "UNSUBSCRIBED")), ""},
		"statuses":          {complete(shown("a@example.com", "7", "UNSUBSCRIBED") + "," + shown("a@example.com", "8", "UNSUBSCRIBED")), ""},
		"without address":   {complete(`{"subscriptionId":7,"status":"UNSUBSCRIBED"}`), ""},
		"grouped":           {complete(`{"subscriberIdString":"a@example.com","statuses":[` + shown("a@example.com", "7", "UNSUBSCRIBED") + `]}`), ""},
		"nothing shown":     {complete(""), KindUnknown},
		"still subscribed":  {complete(shown("a@example.com", "7", "UNSUBSCRIBED") + "," + shown("a@example.com", "8", "SUBSCRIBED")), KindUnknown},
		"someone else":      {complete(wideText("b@example.com", "PORTAL_WIDE", "0", "UNSUBSCRIBED")), KindUnknown},
		"named and no more": {complete(`{"subscriberIdString":"a@example.com"}`), KindUnknown},
		"an error":          {complete("", refusal("VALIDATION_ERROR", "")), KindInvalid},
	} {
		casetest.Add()
		f := &fake{body: test.body}
		c := newClient(t, f)
		one, err := c.UnsubscribeAll(t.Context(), "A@example.com", 3)
		if err != nil || kindOf(one.Err) != test.want || one.Confirmed != (test.want == "") {
			t.Errorf("%s: %+v %v", name, one, err)
		}
		many, err := c.UnsubscribeAllMany(t.Context(), []string{"A@example.com", "c@example.com"}, 0)
		if err != nil || many["c@example.com"].Confirmed || many["c@example.com"].Err == nil {
			t.Errorf("%s, many: %+v %v", name, many, err)
		}
		if got, want := f.calls()[0].uri, "/communication-preferences/2026-03/statuses/A%40example.com/unsubscribe-all?businessUnitId=3&channel=EMAIL&verbose=true"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got, want := f.calls()[1].uri, "/communication-preferences/2026-03/statuses/batch/unsubscribe-all?channel=EMAIL&verbose=true"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
