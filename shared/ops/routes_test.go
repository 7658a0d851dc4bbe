package ops

import (
	"strings"
	"testing"

	"hubsync/shared/hubspot/hubspottest"
)

// Every way in which a mapping may not fit its account, and the finding that says so.
func TestRoutesValidateNamesEveryMismatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const property = `{kind: CONTACT_PROPERTY, name: news_acme, subscribed: "true", unsubscribed: "false", required: true}`
	for name, tc := range map[string]struct{ from, to, want string }{
		"unknown subscription type":  {"2239644020", "999", "subscription type 999 does not exist"},
		"inactive subscription type": {"2239644020", "51", "subscription type 51 is not active"},
		"type of another brand":      {"2239644020", "50", "belongs to business unit 8, the brand says 7"},
		"unknown brand":              {"portal: main\n    businessUnitId: 7", "portal: main\n    businessUnitId: 9", "brand (business unit) 9 does not exist"},
		"unknown target brand":       {"BRAND_ASSIGNMENT, businessUnitId: 7", "BRAND_ASSIGNMENT, businessUnitId: 9", "target brand (business unit) 9"},
		"dynamic list":               {`"604"`, `"605"`, "list 605 is DYNAMIC"},
		"missing list":               {`"604"`, `"606"`, "list 606 does not exist"},
		"missing property":           {"name: news_acme", "name: other", "property other does not exist"},
		"read-only property":         {property, `{kind: CONTACT_PROPERTY, name: score, subscribed: "1", unsubscribed: "0", required: true}`, "score is read-only"},
		"not an option":              {`subscribed: "true"`, `subscribed: "yes"`, `value "yes" is none of its options`},
		"not a boolean":              {property, `{kind: CONTACT_PROPERTY, name: agreed, subscribed: "1", unsubscribed: "0", required: true}`, "is neither true nor false"},
		"not a number":               {property, `{kind: CONTACT_PROPERTY, name: score, subscribed: "a", unsubscribed: "0", required: true}`, "is no number"},
		"a day for a choice":         {property, `{kind: CONTACT_PROPERTY, name: news_acme, subscribed: $consentDate, unsubscribed: "false", required: true}`, "is a day, the property's type is enumeration"},
		"a time for a day":           {"$consentDate", "$consentTime", "is a time, the property's type is date"},
		"not a date":                 {"$consentDate", "soon", "is no date"},
		"not midnight":               {"$consentDate", `"1700000000000"`, "is not midnight in UTC"},
		"multi on a single choice":   {property, `{kind: CONTACT_PROPERTY, name: news_acme, subscribed: "true", multi: true, required: true}`, "takes one value (enumeration), but multi"},
		"several values overwritten": {"subscribed: news, multi: true", `subscribed: news, unsubscribed: ""`, "takes several values, and this one overwrites them"},
		"another account":            {"hubId: 12345", "hubId: 1", "the token belongs to account 12345, the file says 1"},
		"another time zone":          {"Europe/Berlin", "UTC", "midnight of Europe/Berlin"},
		"not a file":                 {"portals:", "portal:", "routes file"},
		"no preference":              {"subscriptionTypeId: 2239644020", "subscriptionTypeId: 0", "subscriptionTypeId is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := w.RoutesValidate(t.Context(), RoutesFile{replaced(t, routes, tc.from, tc.to)})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(problems(v.Findings), tc.want) {
				t.Errorf("findings do not say %q:\n%s", tc.want, problems(v.Findings))
			}
			if v.OK == strings.Contains(problems(v.Findings), "error ") {
				t.Errorf("ok is %v:\n%s", v.OK, problems(v.Findings))
			}
			for _, f := range v.Findings {
				if f.Fix == "" {
					t.Errorf("no fix for %q", f.Problem)
				}
			}
		})
	}
	v, err := w.RoutesValidate(t.Context(), RoutesFile{routes})
	if err != nil || !v.OK || hasErrors(v.Findings) {
		t.Errorf("a file that fits: %v\n%s", err, problems(v.Findings))
	}
}

func TestRoutesValidateOfTheContactKey(t *testing.T) {
	t.Parallel()
	for want, property := range map[string]hubspottest.Property{
		"external_contact_id does not exist":                 {Name: "other", Type: "string"},
		"external_contact_id is not unique":                  {Name: "external_contact_id", Type: "string"},
		"external_contact_id has type number":                {Name: "external_contact_id", Type: "number", HasUniqueValue: true},
		"HubSpot refuses to show lists (hubspot_403_fault)":  {},
		"HubSpot refuses to show properties (hubspot_403_fa": {},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := mainPortal(t)
			if property.Name != "" {
				p.Properties[0] = property
			}
			w := newWorld(t, p)
			if strings.Contains(want, "lists") {
				w.hubspot.SetFaults(hubspottest.Fault{Route: "lists", Probability: 1, Status: 403})
			} else if property.Name == "" {
				w.hubspot.SetFaults(hubspottest.Fault{Route: "properties", Probability: 1, Status: 403})
			}
			v, err := w.RoutesValidate(t.Context(), RoutesFile{routes})
			if err != nil || v.OK || !strings.Contains(problems(v.Findings), want) {
				t.Errorf("%v, findings do not say %q:\n%s", err, want, problems(v.Findings))
			}
		})
	}
}

func TestRoutesPlanApplyHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if applied := w.apply(routes); applied.Versions["acme"] != 1 {
		t.Errorf("%+v", applied)
	}
	plan, err := w.RoutesPlan(ctx, RoutesFile{routes})
	if err != nil || len(plan.Changes) != 0 {
		t.Errorf("the same file: %+v %v", plan, err)
	}

	second := replaced(t, routes, `subscribed: "true", unsubscribed: "false"`, `subscribed: "false", unsubscribed: "true"`)
	second = replaced(t, second, "limit: 150", "limit: 100")
	second = replaced(t, second, "CONSENT_WITH_NOTICE", "NON_GDPR")
	if plan, err = w.RoutesPlan(ctx, RoutesFile{second}); err != nil || plan.Versions["acme"] != 2 || len(plan.Changes) != 4 {
		t.Errorf("%+v %v", plan, err)
	}
	// An invalid file changes nothing.
	refused, err := w.RoutesApply(ctx, RoutesFile{replaced(t, second, "2239644020", "999")})
	if err != nil || refused.OK || len(refused.Findings) == 0 {
		t.Errorf("%+v %v", refused, err)
	}
	if applied := w.apply(second); applied.Versions["acme"] != 2 {
		t.Errorf("%+v", applied)
	}
	h, err := w.RoutesHistory(ctx, HistoryArgs{Brand: "acme"})
	if err != nil || len(h.Versions) != 2 || h.Versions[0].Version != 2 || h.Versions[0].Status != "active" || h.Versions[1].Status != "retired" {
		t.Errorf("%+v %v", h, err)
	}
}

// A file does not take what a brand outside of it owns, and says what leaving a product
// out means.
func TestRoutesPlanLooksAtWhatStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	w.exec(`INSERT INTO contact_subscription_state (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state)
		VALUES ('c', 'acme', 'news', 'main', 1, gen_random_uuid(), 'subscribed')`)
	other := replaced(t, routes, "id: acme", "id: other")
	plan, err := w.RoutesPlan(t.Context(), RoutesFile{other})
	if err != nil || !strings.Contains(problems(plan.Findings), "property news_acme belongs to acme/news, which is active and not in this file") || len(plan.Kept) != 1 {
		t.Errorf("%v %+v", err, plan)
	}
	if applied, err := w.RoutesApply(t.Context(), RoutesFile{other}); err != nil || applied.OK {
		t.Errorf("%+v %v", applied, err)
	}
	renamed := replaced(t, routes, "id: news\n", "id: letters\n")
	if plan, err = w.RoutesPlan(t.Context(), RoutesFile{renamed}); err != nil || !strings.Contains(problems(plan.Findings), "1 subscriptions exist") {
		t.Errorf("%v %+v", err, plan)
	}
}
