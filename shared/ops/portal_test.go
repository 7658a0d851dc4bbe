package ops

import (
	"strings"
	"testing"

	"hubsync/shared/hubspot/hubspottest"
)

func (w *world) check(in PortalArgs) PortalReport {
	w.t.Helper()
	checks, err := w.PortalCheck(w.t.Context(), in)
	if err != nil || len(checks.Portals) != 1 {
		w.t.Fatalf("%+v %v", checks, err)
	}
	if checks.OK == hasErrors(checks.Portals[0].Findings) {
		w.t.Errorf("ok is %v: %s", checks.OK, problems(checks.Portals[0].Findings))
	}
	return checks.Portals[0]
}

func TestPortalCheckOfAGoodAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	r := w.check(PortalArgs{})
	if r.HubID != 12345 || r.TimeZone != "Europe/Berlin" || r.Batch != yes || r.Marker != unknown || len(r.Findings) != 0 || len(r.Scopes) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestPortalCheckSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*hubspottest.Portal)
		after  func(*world)
		want   string
	}{
		"a scope is missing": {change: func(p *hubspottest.Portal) { p.Scopes = p.Scopes[1:] }, want: "the token lacks the scope crm.lists.read"},
		"a token that tells no scopes, and that is no fault": {change: func(p *hubspottest.Portal) { p.Scopes = nil }, want: ""},
		"the token is refused":                               {after: func(w *world) { w.hubspot.SetToken("main", "new") }, want: "error portal main: hubspot: read account"},
		"no token":                                           {after: func(w *world) { delete(w.env, "HUBSPOT_TOKEN_MAIN"); w.reopen() }, want: "HUBSPOT_TOKEN_MAIN"},
		"single preferences only":                            {change: func(p *hubspottest.Portal) { p.Plan = hubspottest.Professional }, want: "batch preferences are refused"},
		"a type went away":                                   {after: func(w *world) { w.exec(`UPDATE brand_subscription_routes SET subscription_type_id = 77`) }, want: "subscription type 77 does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := mainPortal(t)
			if tc.change != nil {
				tc.change(&p)
			}
			w := newWorld(t, p)
			w.apply(routes)
			if tc.after != nil {
				tc.after(w)
			}
			got := problems(w.check(PortalArgs{Portal: "main"}).Findings)
			if !strings.Contains(got, tc.want) || (tc.want == "" && got != "") {
				t.Errorf("findings do not say %q:\n%s", tc.want, got)
			}
		})
	}
}

func TestPortalCheckCreatesTheProperty(t *testing.T) {
	t.Parallel()
	p := mainPortal(t)
	p.Properties = p.Properties[1:]
	w := newWorld(t, p)
	w.exec(`INSERT INTO hubspot_portals (id, hub_id, burst_limit, daily_limit, time_zone) VALUES ('main', 12345, 150, 500000, 'Europe/Berlin')`)
	if got := problems(w.check(PortalArgs{}).Findings); !strings.Contains(got, "external_contact_id does not exist") {
		t.Errorf("findings: %s", got)
	}
	if r := w.check(PortalArgs{Create: true}); !r.Created || len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
	if r := w.check(PortalArgs{Create: true}); r.Created || len(r.Findings) != 0 {
		t.Errorf("a second time: %+v", r)
	}
}

func TestPortalCheckRefusesItsArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, in := range []PortalArgs{{Portal: "nowhere"}, {Sample: 101}, {Sample: -1}} {
		if _, err := w.PortalCheck(t.Context(), in); err == nil || !failed(err).Usage {
			t.Errorf("%+v: %v", in, err)
		}
	}
}
