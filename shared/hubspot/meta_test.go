package hubspot

import (
	"reflect"
	"strings"
	"testing"

	"hubsync/shared/casetest"
)

func containsText(text, part string) bool { return strings.Contains(text, part) }

func TestMembers(t *testing.T) {
	t.Parallel()
	f := &fake{body: `{"recordsIdsAdded":["1"],"recordIdsRemoved":[2],"recordIdsMissing":["3"]}`}
	got, err := newClient(t, f).AddAndRemoveMembers(t.Context(), "a/b", []string{"1", "3"}, []string{"2"})
	want := MembershipResult{[]string{"1"}, []string{"2"}, []string{"3"}, testCorrelation}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	call := f.calls()[0]
	if call.method != "PUT" || call.uri != "/crm/lists/2026-03/a%2Fb/memberships/add-and-remove" || call.body != `{"recordIdsToAdd":["1","3"],"recordIdsToRemove":["2"]}` {
		t.Errorf("%+v", call)
	}
	got, err = answering(t, 200, `{"recordIdsAdded":["1"],"recordIdsRemoved":[]}`).AddAndRemoveMembers(t.Context(), "1", []string{"1"}, nil)
	if err != nil || len(got.Added) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	_, err = answering(t, 200, `{}`).AddAndRemoveMembers(t.Context(), "1", []string{"1"}, nil)
	hubspotError(t, err, KindUnknown)
	_, err = answering(t, 400, refusal("VALIDATION_ERROR", "")).AddAndRemoveMembers(t.Context(), "1", nil, []string{"1"})
	hubspotError(t, err, KindInvalid)
}

func TestMetaReads(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	definitions, err := answering(t, 200, `{"results":[{"id":"3000000000","name":"News","isActive":true,"businessUnitId":null},{"id":8,"businessUnitId":"4"}]}`).Definitions(ctx)
	if err != nil || !reflect.DeepEqual(definitions, []Definition{{3000000000, "News", 0, true}, {8, "", 4, false}}) {
		t.Errorf("definitions %+v %v", definitions, err)
	}
	properties, err := answering(t, 200, `{"results":[{"name":"plan","type":"enumeration","fieldType":"select","hasUniqueValue":true,"options":[{"value":"a"},{"value":7}],"modificationMetadata":{"readOnlyValue":true}}]}`).Properties(ctx)
	if err != nil || !reflect.DeepEqual(properties, []Property{{"plan", "enumeration", "select", true, true, []string{"a", "7"}}}) {
		t.Errorf("properties %+v %v", properties, err)
	}
	list, err := answering(t, 200, `{"list":{"listId":9,"name":"VIP","objectTypeId":"0-1","processingType":"MANUAL"}}`).List(ctx, "9")
	if err != nil || list != (List{"9", "VIP", "0-1", "MANUAL"}) {
		t.Errorf("list %+v %v", list, err)
	}
	f := &fake{body: `{"lists":[{"listId":"9","processingType":"DYNAMIC"}]}`}
	lists, err := newClient(t, f).Lists(ctx, []string{"9", "10"})
	if err != nil || len(lists) != 1 || lists["9"].ProcessingType != "DYNAMIC" || f.calls()[0].uri != "/crm/lists/2026-03?listIds=9&listIds=10" {
		t.Errorf("lists %+v %v", lists, err)
	}
	account, err := answering(t, 200, `{"portalId":62515,"timeZone":"Europe/Berlin","accountType":"STANDARD"}`).AccountInfo(ctx)
	if err != nil || account != (Account{62515, "Europe/Berlin", "STANDARD"}) {
		t.Errorf("account %+v %v", account, err)
	}
}

// An empty answer to a check must not pass for "nothing is there".
func TestMetaReadsNeedTheirList(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `null`, `{"results":null,"lists":null}`} {
		casetest.Add()
		c := answering(t, 200, body)
		_, e1 := c.Definitions(t.Context())
		_, e2 := c.Properties(t.Context())
		_, e3 := c.List(t.Context(), "9")
		_, e4 := c.Lists(t.Context(), []string{"9"})
		_, e5 := c.AccountInfo(t.Context())
		for _, err := range []error{e1, e2, e3, e4, e5} {
			hubspotError(t, err, KindUnknown)
		}
	}
}
