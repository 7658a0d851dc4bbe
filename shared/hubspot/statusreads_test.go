package hubspot

import (
	"slices"
	"testing"
	"time"

	"hubsync/shared/casetest"
)

func TestReadStatuses(t *testing.T) {
	t.Parallel()
	a7, b7 := shown("ana@example.com", "7", "UNSUBSCRIBED"), shown("bo@example.com", "7", "SUBSCRIBED")
	for name, test := range map[string]struct {
		status int
		body   string
		ana    Kind
		bo     Kind
		seen   []State // of ana
	}{
		"flat":                    {200, complete(b7 + "," + a7 + "," + shown("ana@example.com", "8", "NOT_SPECIFIED")), "", "", []State{Unsubscribed, NotSpecified}},
		"grouped":                 {200, complete(`{"subscriberIdString":"ANA@example.com","statuses":[` + a7 + `,{"subscriptionId":8,"status":"SUBSCRIBED"}]},{"subscriberIdString":"bo@example.com","statuses":[]}`), "", "", []State{Unsubscribed, Subscribed}},
		"one missing":             {200, complete(a7), "", KindUnknown, []State{Unsubscribed}},
		"207 with an error":       {207, complete(a7, refusal("VALIDATION_ERROR", `"subscriberIdString":["bo@example.com"]`)), "", KindInvalid, []State{Unsubscribed}},
		"named both ways":         {207, complete(a7+","+b7, refusal("INTERNAL_ERROR", `"subscriberIdString":["bo@example.com"]`)), "", KindUnavailable, []State{Unsubscribed}},
		"empty":                   {200, complete(""), KindUnknown, KindUnknown, nil},
		"not complete":            {200, `{"status":"PROCESSING","results":[` + a7 + `,` + b7 + `]}`, KindUnknown, KindUnknown, nil},
		"canceled":                {200, `{"status":"CANCELED","results":[` + a7 + `,` + b7 + `]}`, KindUnknown, KindUnknown, nil},
		"named, and nothing said": {200, complete(`{"subscriberIdString":"ana@example.com"},` + b7), KindUnknown, "", nil},
		"a status of nothing":     {200, complete(`{"subscriberIdString":"ana@example.com","status":"SUBSCRIBED"},` + b7), KindUnknown, "", nil},
		"null list":               {200, complete(`{"subscriberIdString":"ana@example.com","statuses":null},` + b7), KindUnknown, "", nil},
		"a state we do not know":  {200, complete(shown("ana@example.com", "7", "OPTED_OUT") + "," + b7), KindUnknown, "", nil},
		"no state":                {200, complete(shown("ana@example.com", "7", "") + "," + a7 + "," + b7), KindUnknown, "", nil},
		"unknown after known":     {200, complete(a7 + "," + shown("ana@example.com", "8", "x") + "," + shown("ana@example.com", "9", "SUBSCRIBED") + "," + b7), KindUnknown, "", nil},
		"a stranger":              {200, complete(a7 + "," + b7 + "," + shown("eve@example.com", "7", "SUBSCRIBED")), "", "", []State{Unsubscribed}},
	} {
		casetest.Add()
		got, err := answering(t, test.status, test.body).ReadStatuses(t.Context(), []string{"Ana@example.com", "bo@example.com"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ana, bo := got["ana@example.com"], got["bo@example.com"]
		var states []State
		for _, s := range ana.Statuses {
			states = append(states, s.State)
			if s.Email != "ana@example.com" {
				t.Errorf("%s: status of %s", name, s.Email)
			}
		}
		if kindOf(ana.Err) != test.ana || kindOf(bo.Err) != test.bo || !slices.Equal(states, test.seen) || len(got) != 2 {
			t.Errorf("%s: ana %+v, bo %+v, %d entries", name, ana, bo, len(got))
		}
	}
}

func TestReadStatus(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body string
		want Kind
		n    int
	}{
		"shown":           {complete(shown("ana@example.com", "7", "SUBSCRIBED") + `,{"subscriptionId":"8","status":"UNSUBSCRIBED","timestamp":1777895998123}`), "", 2},
		"nothing set":     {complete(""), "", 0},
		"another person":  {complete(shown("bo@example.com", "7", "SUBSCRIBED")), KindUnknown, 0},
		"not complete":    {`{"status":"PENDING","results":[]}`, KindUnknown, 0},
		"no envelope":     {`{}`, KindUnknown, 0},
		"an error":        {complete("", refusal("VALIDATION_ERROR", "")), KindInvalid, 0},
		"an unseen error": {`{"status":"COMPLETE","results":[],"numErrors":1}`, KindUnknown, 0},
		"unknown state":   {complete(shown("ana@example.com", "7", "PAUSED")), KindUnknown, 0},
	} {
		casetest.Add()
		got, err := answering(t, 200, test.body).ReadStatus(t.Context(), "ana@example.com")
		if err != nil || kindOf(got.Err) != test.want || len(got.Statuses) != test.n {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		if test.n == 2 && !got.Statuses[1].At.Equal(time.Date(2026, 5, 4, 11, 59, 58, 123e6, time.UTC)) {
			t.Errorf("%s: at %v", name, got.Statuses[1].At)
		}
	}
}
