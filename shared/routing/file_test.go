package routing

import (
	"os"
	"strings"
	"testing"

	"hubsync/shared/casetest"
)

const small = `
portals:
  - {id: main, hubId: 1, burst: {limit: 150, window: 10s}, daily: 500000}
brands:
  - id: acme
    portal: main
    businessUnitId: 7
    products:
      - id: newsletter
        subscriptionTypeId: 2239644020
        legalBasis: CONSENT_WITH_NOTICE
        targets:
          - {kind: CONTACT_PROPERTY, name: newsletter_acme, subscribed: "true", unsubscribed: "false", required: true}
`

func TestParseReadsYAMLAndAppliesDefaults(t *testing.T) {
	t.Parallel()
	f, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if f.Portals[0].APIVersion != DefaultAPIVersion || f.Portals[0].TimeZone != "UTC" || f.Brands[0].Name != "acme" {
		t.Errorf("defaults not applied: %+v %+v", f.Portals[0], f.Brands[0])
	}
	snapshot := f.Brands[0].Snapshot(f.Brands[0].Products[0], 3)
	if snapshot.SubscriptionTypeID != 2239644020 || snapshot.MappingVersion != 3 || snapshot.Channel != "EMAIL" {
		t.Errorf("snapshot %+v", snapshot)
	}
}

func TestParseReadsTheSharedRoutes(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../../shared/data/routes.json")
	if os.IsNotExist(err) {
		content = []byte(small)
	}
	if _, err := Parse(content); err != nil {
		t.Fatal(err)
	}
}

func TestParseNamesEveryProblem(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ from, to, want string }{
		"unknown member":      {"hubId: 1", "hubID: 1", "hubID"},
		"unknown portal":      {"portal: main", "portal: other", `portal "other" is not in this file`},
		"legal basis":         {"CONSENT_WITH_NOTICE", "BECAUSE", `legalBasis "BECAUSE"`},
		"no preference":       {"subscriptionTypeId: 2239644020", "subscriptionTypeId: 0", "subscriptionTypeId is missing"},
		"target kind":         {"CONTACT_PROPERTY", "CONTACT", `target kind "CONTACT"`},
		"same values":         {`unsubscribed: "false"`, `unsubscribed: "true"`, "one value for both states"},
		"a placeholder":       {`subscribed: "true"`, `subscribed: "$today"`, `"$today" is not one of $consentDate`},
		"multi, two values":   {"required: true}", "required: true, multi: true}", "is multi: subscribed names one entry"},
		"property name":       {"newsletter_acme", "Newsletter-Acme", "property name"},
		"window":              {"window: 10s", "window: ten", "burst window"},
		"limit":               {"limit: 150", "limit: 1", "burst limit 1"},
		"daily under burst":   {"daily: 500000", "daily: 100", "daily limit 100"},
		"bad brand id":        {"id: acme", "id: 'ac/me'", "brand id"},
		"empty file":          {small, "", "empty"},
		"not YAML and no map": {small, "just text", "routes file"},
	} {
		casetest.Add()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := strings.Replace(small, tc.from, tc.to, 1)
			if content == small {
				t.Fatal("the case changes nothing")
			}
			_, err := Parse([]byte(content))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v does not say %q", err, tc.want)
			}
		})
	}
}

func TestParseRefusesTwoOwnersOfOneCell(t *testing.T) {
	t.Parallel()
	twin := small + `
  - id: other
    portal: main
    products:
      - {id: newsletter, subscriptionTypeId: 2239644020, legalBasis: NON_GDPR}
`
	_, err := Parse([]byte(twin))
	if err == nil || !strings.Contains(err.Error(), "already belongs to acme/newsletter") {
		t.Errorf("error %v", err)
	}
}
