package hubspot

import (
	"strings"
	"testing"
	"time"

	"hubsync/shared/casetest"
)

// publicWrite confirms oneWrite.
const publicWrite = `{"subscriberIdString":"ana@example.com","subscriptionId":7,"status":"UNSUBSCRIBED","timestamp":"2026-05-04T11:59:58.123Z","setStatusSuccessReason":"REQUESTED_CHANGE_OCCURRED"}`

func shown(email, id, state string) string {
	return `{"subscriberIdString":"` + email + `","subscriptionId":` + id + `,"status":"` + state + `"}`
}

func refusal(category, context string) string {
	return `{"status":"error","category":"` + category + `","message":"no","context":{` + context + `}}`
}

func TestJudgeWrites(t *testing.T) {
	t.Parallel()
	writes := []StatusWrite{
		{Email: "Ana@Example.com", SubscriptionID: 7, State: Unsubscribed},
		{Email: "ana@example.com", SubscriptionID: 3000000000, State: Subscribed},
		{Email: "bo@example.com", SubscriptionID: 7, State: Subscribed},
	}
	a7, a3, b7 := shown("ana@example.com", "7", "UNSUBSCRIBED"), shown("ana@example.com", "3000000000", "SUBSCRIBED"), shown("bo@example.com", "7", "SUBSCRIBED")
	for name, test := range map[string]struct {
		body string
		want [3]Kind // empty: confirmed
	}{
		"all":                       {complete(a7 + "," + a3 + "," + b7), [3]Kind{}},
		"in another order":          {complete(b7 + "," + a3 + "," + a7), [3]Kind{}},
		"ids as text":               {complete(shown("ana@example.com", `"7"`, "UNSUBSCRIBED") + "," + shown("ana@example.com", `"3000000000"`, "SUBSCRIBED") + "," + b7), [3]Kind{}},
		"nothing named":             {complete(""), [3]Kind{KindUnknown, KindUnknown, KindUnknown}},
		"empty object":              {`{}`, [3]Kind{KindUnknown, KindUnknown, KindUnknown}},
		"null":                      {`null`, [3]Kind{KindUnknown, KindUnknown, KindUnknown}},
		"pending":                   {`{"status":"PENDING","results":[]}`, [3]Kind{KindUnknown, KindUnknown, KindUnknown}},
		"one missing":               {complete(a7 + "," + b7), [3]Kind{"", KindUnknown, ""}},
		"strangers":                 {complete(shown("eve@example.com", "7", "UNSUBSCRIBED")), [3]Kind{KindUnknown, KindUnknown, KindUnknown}},
		"whose?":                    {complete(`{"subscriptionId":7,"status":"UNSUBSCRIBED"},` + a3 + "," + b7), [3]Kind{KindUnknown, "", ""}},
		"refused, shown as it was":  {complete(shown("ana@example.com", "7", "SUBSCRIBED")+","+a3+","+b7, refusal("VALIDATION_ERROR", `"email":["ana@example.com"],"subscriptionId":["7"]`)), [3]Kind{KindUnknown, "", ""}},
		"another state":             {complete(shown("ana@example.com", "7", "SUBSCRIBED") + "," + a3 + "," + b7), [3]Kind{KindUnknown, "", ""}},
		"no state":                  {complete(shown("ana@example.com", "7", "") + "," + a3 + "," + b7), [3]Kind{KindUnknown, "", ""}},
		"both states":               {complete(shown("ana@example.com", "7", "SUBSCRIBED") + "," + a7 + "," + a3 + "," + b7), [3]Kind{KindUnknown, "", ""}},
		"200 with an error":         {complete(a7+","+a3, refusal("VALIDATION_ERROR", `"subscriberIdString":["bo@example.com"],"subscriptionId":["7"]`)), [3]Kind{"", "", KindInvalid}},
		"error by address":          {complete(a7+","+a3, refusal("VALIDATION_ERROR", `"email":["BO@example.com"]`)), [3]Kind{"", "", KindInvalid}},
		"error as one text":         {complete(a7+","+a3, refusal("VALIDATION_ERROR", `"email":"bo@example.com"`)), [3]Kind{"", "", KindInvalid}},
		"the other is confirmed":    {complete(a7+","+b7, refusal("VALIDATION_ERROR", `"email":["ana@example.com"]`)), [3]Kind{"", KindInvalid, ""}},
		"which of two":              {complete(b7, refusal("VALIDATION_ERROR", `"email":["ana@example.com"]`)), [3]Kind{KindUnknown, KindUnknown, ""}},
		"of two, by subscription":   {complete(b7, refusal("VALIDATION_ERROR", `"email":["ana@example.com"],"subscriptionId":[7]`)), [3]Kind{KindInvalid, KindUnknown, ""}},
		"error names nobody":        {complete(a7, refusal("VALIDATION_ERROR", ``)), [3]Kind{"", KindUnknown, KindUnknown}},
		"error of an unknown kind":  {complete(a7+","+a3, refusal("NEW_THING", `"email":["bo@example.com"]`)), [3]Kind{"", "", KindUnknown}},
		"odd members do not matter": {complete(strings.Replace(a7, `"status"`, `"timestamp":{"a":1},"source":[],"businessUnitId":null,"status"`, 1)+","+a3+","+b7, `"text"`, `null`, `7`), [3]Kind{}},
	} {
		casetest.Add()
		results, err := answering(t, 200, test.body).WriteStatuses(t.Context(), writes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, r := range results {
			if kindOf(r.Err) != test.want[i] || r.Confirmed != (r.Err == nil) || r.CorrelationID != testCorrelation {
				t.Errorf("%s: write %d is %+v (%v), want %q", name, i, r, r.Err, test.want[i])
			}
		}
	}
}

func TestWriteStatus(t *testing.T) {
	t.Parallel()
	nameless := `{"subscriptionId":"7","status":"UNSUBSCRIBED"}`
	for name, test := range map[string]struct {
		body string
		want Kind
	}{
		"confirmed":          {complete(publicWrite), ""},
		"without an address": {complete(nameless), ""},
		"another person":     {complete(shown("bo@example.com", "7", "UNSUBSCRIBED")), KindUnknown},
		"another type":       {complete(shown("ana@example.com", "8", "UNSUBSCRIBED")), KindUnknown},
		"another state":      {complete(shown("ana@example.com", "7", "SUBSCRIBED")), KindUnknown},
		"empty":              {complete(""), KindUnknown},
		"error":              {complete("", refusal("VALIDATION_ERROR", "")), KindInvalid},
		"no envelope":        {publicWrite, KindUnknown},
	} {
		casetest.Add()
		r, err := answering(t, 200, test.body).WriteStatus(t.Context(), oneWrite)
		if err != nil || kindOf(r.Err) != test.want || r.Confirmed != (test.want == "") {
			t.Errorf("%s: %+v %v %v, want %q", name, r, r.Err, err, test.want)
		}
	}
	r, _ := answering(t, 200, complete(publicWrite)).WriteStatus(t.Context(), oneWrite)
	if want := time.Date(2026, 5, 4, 11, 59, 58, 123e6, time.UTC); !r.Status.At.Equal(want) || r.Status.Reason != ReasonChanged {
		t.Errorf("status %+v", r.Status)
	}
}

func TestWritesOnTheWire(t *testing.T) {
	t.Parallel()
	f := &fake{body: complete("")}
	c := newClient(t, f)
	w := StatusWrite{Email: "a@example.com", SubscriptionID: 9007199254740993, State: Subscribed, LegalBasis: "NON_GDPR", Explanation: "e"}
	_, _ = c.WriteStatuses(t.Context(), []StatusWrite{w})
	_, _ = c.WriteStatus(t.Context(), w)
	rest := `"channel":"EMAIL","statusState":"SUBSCRIBED","subscriptionId":9007199254740993,"legalBasis":"NON_GDPR","legalBasisExplanation":"e"}`
	for i, want := range []string{`{"inputs":[{"subscriberIdString":"a@example.com",` + rest + `]}`, `{` + rest} {
		casetest.Add()
		if got := f.calls()[i].body; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	}
}

// What HubSpot would refuse as a whole costs no call.
func TestBadBatchesAreNotSent(t *testing.T) {
	t.Parallel()
	f := &fake{body: complete("")}
	c := newClient(t, f)
	ctx := t.Context()
	many := make([]StatusWrite, MaxInputs+1)
	emails := make([]string, MaxInputs+1)
	contacts := make([]ContactWrite, MaxInputs+1)
	for i := range many {
		emails[i] = strings.Repeat("a", i+1) + "@example.com"
		many[i] = StatusWrite{Email: emails[i], SubscriptionID: 7, State: Subscribed}
		contacts[i] = ContactWrite{ExternalID: emails[i]}
	}
	writes := func(w ...StatusWrite) error { _, err := c.WriteStatuses(ctx, w); return err }
	upserts := func(w ...ContactWrite) error { _, err := c.UpsertContacts(ctx, w); return err }
	updates := func(u ...ContactUpdate) error { _, err := c.UpdateContacts(ctx, u); return err }
	for name, err := range map[string]error{
		"no writes":       writes(),
		"101 writes":      writes(many...),
		"same cell":       writes(oneWrite, StatusWrite{Email: "ANA@example.com", SubscriptionID: 7, State: Subscribed}),
		"no address":      writes(StatusWrite{SubscriptionID: 7, State: Subscribed}),
		"no subscription": writes(StatusWrite{Email: "a@example.com", State: Subscribed}),
		"no state":        writes(StatusWrite{Email: "a@example.com", SubscriptionID: 7}),
		"single, no address": func() error {
			_, err := c.WriteStatus(ctx, StatusWrite{SubscriptionID: 7, State: Subscribed})
			return err
		}(),
		"101 reads":     func() error { _, err := c.ReadStatuses(ctx, emails); return err }(),
		"same address":  func() error { _, err := c.ReadStatuses(ctx, []string{"a@example.com", "A@example.com"}); return err }(),
		"empty address": func() error { _, err := c.ReadStatuses(ctx, []string{""}); return err }(),
		"empty path":    func() error { _, err := c.ReadStatus(ctx, ""); return err }(),
		"wide, same address": func() error {
			_, err := c.ReadUnsubscribedAll(ctx, []string{"a@example.com", "A@example.com"})
			return err
		}(),
		"wide, empty path":  func() error { _, err := c.ReadUnsubscribedAllOne(ctx, ""); return err }(),
		"wide write, empty": func() error { _, err := c.UnsubscribeAll(ctx, "", 0); return err }(),
		"wide write, none":  func() error { _, err := c.UnsubscribeAllMany(ctx, nil, 0); return err }(),
		"no upserts":        upserts(),
		"101 upserts":       upserts(contacts...),
		"same key":          upserts(ContactWrite{ExternalID: "k", TraceID: "1"}, ContactWrite{ExternalID: "k", TraceID: "2"}),
		"same trace":        upserts(ContactWrite{ExternalID: "k", TraceID: "1"}, ContactWrite{ExternalID: "l", TraceID: "1"}),
		"no key":            upserts(ContactWrite{Email: "a@example.com"}),
		"update by address": updates(ContactUpdate{ID: "a@example.com", IDProperty: "email"}),
		"update of nobody":  updates(ContactUpdate{}),
		"same record":       updates(ContactUpdate{ID: "1", TraceID: "1"}, ContactUpdate{ID: "1", TraceID: "2"}),
		"single update":     func() error { _, err := c.UpdateContact(ctx, ContactUpdate{}); return err }(),
		"read of nobody":    func() error { _, err := c.ReadContacts(ctx, []string{""}, "", nil); return err }(),
		"read twice": func() error {
			_, err := c.ReadContacts(ctx, []string{"A@example.com", "a@example.com"}, "email", nil)
			return err
		}(),
		"get of nobody":        func() error { _, err := c.GetContact(ctx, "", "", nil); return err }(),
		"list without id":      func() error { _, err := c.AddAndRemoveMembers(ctx, "", []string{"1"}, nil); return err }(),
		"list without records": func() error { _, err := c.AddAndRemoveMembers(ctx, "1", nil, nil); return err }(),
		"list of no id":        func() error { _, err := c.List(ctx, ""); return err }(),
		"no lists":             func() error { _, err := c.Lists(ctx, nil); return err }(),
		"text that is no JSON": upserts(ContactWrite{ExternalID: "k", Properties: map[string]string{"a": "\xff"}}),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		hubspotError(t, err, KindInvalid)
	}
	if n := len(f.calls()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}
