package hubspot_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
)

// These tests hold the client against the simulator, which was written apart from it.

const token = "sim-token"

func simulate(t *testing.T, p hubspottest.Portal) (*hubspottest.Server, *hubspot.Client) {
	t.Helper()
	return simulateVersion(t, p, hubspot.Version202603)
}

func simulateVersion(t *testing.T, p hubspottest.Portal, version string) (*hubspottest.Server, *hubspot.Client) {
	t.Helper()
	p.ID, p.HubID, p.Token = "p1", 62515, token
	p.Definitions = []hubspottest.Definition{{ID: 7, Name: "News"}, {ID: 3000000000, Name: "Offers", BusinessUnitID: 3}}
	p.BusinessUnits = []int64{3}
	p.Properties = []hubspottest.Property{{Name: hubspot.ContactKeyProperty, Type: "string", HasUniqueValue: true}, {Name: "news", Type: "bool"}}
	p.Lists = []hubspottest.List{{ID: "9", ProcessingType: "MANUAL"}, {ID: "10", ProcessingType: "DYNAMIC"}}
	sim := hubspottest.New(hubspottest.Options{Portals: []hubspottest.Portal{p}, Seed: 3})
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	client, err := hubspot.New(hubspot.Config{
		Portal: "p1", BaseURL: server.URL, Version: version, Clock: time.Now, HTTPClient: server.Client(), Timeout: 2 * time.Second,
		Token: func(context.Context) (string, error) { return token, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return sim, client
}

func emailOf(i int) string { return fmt.Sprintf("Person+%d@example.com", i) }

func TestSimulatorFullBatchInEveryVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{hubspot.Version202603, hubspot.Version202609, hubspot.VersionV4} {
		sim, c := simulateVersion(t, hubspottest.Portal{}, version)
		writes := make([]hubspot.StatusWrite, hubspot.MaxInputs)
		emails := make([]string, len(writes))
		contacts := make([]hubspot.ContactWrite, len(writes))
		for i := range writes {
			emails[i] = emailOf(i)
			writes[i] = hubspot.StatusWrite{Email: emails[i], SubscriptionID: 3000000000, State: hubspot.Subscribed, Explanation: "mark"}
			contacts[i] = hubspot.ContactWrite{ExternalID: fmt.Sprint("key-", i), Email: emails[i], TraceID: fmt.Sprint("trace-", i)}
		}
		written, err := c.WriteStatuses(t.Context(), writes)
		if err != nil {
			t.Fatal(err)
		}
		made, err := c.UpsertContacts(t.Context(), contacts)
		if err != nil {
			t.Fatal(err)
		}
		read, err := c.ReadStatuses(t.Context(), emails)
		if err != nil {
			t.Fatal(err)
		}
		for i := range writes {
			w, m, r := written[i], made[i], read[strings.ToLower(emails[i])]
			if !w.Confirmed || w.Status.Email != strings.ToLower(emails[i]) || w.Status.BusinessUnitID != 3 || w.Status.At.IsZero() {
				t.Errorf("%s: write %d: %+v", version, i, w)
			}
			if view, ok := sim.Contact("p1", emails[i]); !m.Confirmed || !m.New || !ok || view.ID != m.RecordID {
				t.Errorf("%s: contact %d: %+v", version, i, m)
			}
			if r.Err != nil || len(r.Statuses) != 2 {
				t.Errorf("%s: read %d: %+v", version, i, r)
			}
		}
		if n := sim.CallCount("p1"); n != 3 {
			t.Errorf("%s: %d calls, want 3", version, n)
		}
	}
}

func TestSimulatorPartialPreferences(t *testing.T) {
	t.Parallel()
	_, c := simulate(t, hubspottest.Portal{})
	results, err := c.WriteStatuses(t.Context(), []hubspot.StatusWrite{
		{Email: "a@example.com", SubscriptionID: 7, State: hubspot.Unsubscribed},
		{Email: "a@example.com", SubscriptionID: 99, State: hubspot.Unsubscribed},
		{Email: "not-an-address", SubscriptionID: 7, State: hubspot.Unsubscribed},
	})
	if err != nil || !results[0].Confirmed || results[1].Err.Kind != hubspot.KindInvalid || results[2].Err.Kind != hubspot.KindInvalid {
		t.Errorf("%+v %v", results, err)
	}
	read, err := c.ReadStatuses(t.Context(), []string{"a@example.com", "not-an-address"})
	if err != nil || read["a@example.com"].Err != nil || read["not-an-address"].Err.Kind != hubspot.KindInvalid {
		t.Errorf("%+v %v", read, err)
	}
	if _, err := c.WriteStatus(t.Context(), hubspot.StatusWrite{Email: "a@example.com", SubscriptionID: 99, State: hubspot.Subscribed}); err == nil {
		t.Error("an unknown subscription was accepted")
	}
}

func TestSimulatorReasonsAndEcho(t *testing.T) {
	t.Parallel()
	sim, c := simulate(t, hubspottest.Portal{})
	write := func(s hubspot.State) hubspot.Status {
		r, err := c.WriteStatus(t.Context(), hubspot.StatusWrite{Email: "O'Neil+50%@example.com", SubscriptionID: 7, State: s, Explanation: "mark"})
		if err != nil || !r.Confirmed {
			t.Fatalf("%+v %v", r, err)
		}
		return r.Status
	}
	for i, want := range []hubspot.Reason{hubspot.ReasonChanged, hubspot.ReasonNoChange, hubspot.ReasonChanged, hubspot.ReasonResubscribe} {
		state := []hubspot.State{hubspot.Subscribed, hubspot.Subscribed, hubspot.Unsubscribed, hubspot.Subscribed}[i]
		if got := write(state); got.Reason != want || got.Explanation != "mark" {
			t.Errorf("write %d: %+v, want %s", i, got, want)
		}
	}
	if view, ok := sim.Status("p1", "o'neil+50%@example.com", 7); !ok || view.State != "SUBSCRIBED" {
		t.Errorf("the simulator shows %+v", view)
	}
	read, err := c.ReadStatus(t.Context(), "O'Neil+50%@example.com")
	if err != nil || read.Err != nil || read.Statuses[0].Email != "o'neil+50%@example.com" {
		t.Errorf("%+v %v", read, err)
	}
}

func TestSimulatorWideOptOuts(t *testing.T) {
	t.Parallel()
	sim, c := simulate(t, hubspottest.Portal{})
	at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	sim.OptOutOfAll("p1", "a@example.com", 0, at)
	sim.OptOutOfAll("p1", "a@example.com", 3, at)
	many, err := c.ReadUnsubscribedAll(t.Context(), []string{"A@example.com", "b@example.com"})
	if err != nil || len(many["a@example.com"].Statuses) != 2 || many["b@example.com"].Err != nil || len(many["b@example.com"].Statuses) != 0 {
		t.Errorf("%+v %v", many, err)
	}
	one, err := c.ReadUnsubscribedAllOne(t.Context(), "a@example.com")
	if err != nil || len(one.Statuses) != 2 || one.Statuses[0].State != hubspot.Unsubscribed || !one.Statuses[0].At.Equal(at) {
		t.Errorf("%+v %v", one, err)
	}
	done, err := c.UnsubscribeAll(t.Context(), "b@example.com", 3)
	if err != nil || !done.Confirmed {
		t.Errorf("%+v %v", done, err)
	}
}

func TestSimulatorPlanWithoutBatches(t *testing.T) {
	t.Parallel()
	_, c := simulate(t, hubspottest.Portal{Plan: hubspottest.Professional})
	_, err := c.WriteStatuses(t.Context(), []hubspot.StatusWrite{{Email: "a@example.com", SubscriptionID: 7, State: hubspot.Subscribed}})
	wantKind(t, err, hubspot.KindForbidden)
	r, err := c.WriteStatus(t.Context(), hubspot.StatusWrite{Email: "a@example.com", SubscriptionID: 7, State: hubspot.Subscribed})
	if err != nil || !r.Confirmed {
		t.Errorf("%+v %v", r, err)
	}
}

func wantKind(t *testing.T, err error, kind hubspot.Kind) *hubspot.Error {
	t.Helper()
	var he *hubspot.Error
	if !errors.As(err, &he) || he.Kind != kind {
		t.Fatalf("%v, want %s", err, kind)
	}
	return he
}

func TestSimulatorContacts(t *testing.T) {
	t.Parallel()
	sim, c := simulate(t, hubspottest.Portal{})
	if err := sim.LoadState(strings.NewReader(`{"contacts":[{"email":"old@example.com","additionalEmails":["second@example.com"]}]}`)); err != nil {
		t.Fatal(err)
	}
	old, _ := sim.Contact("p1", "old@example.com")
	results, err := c.UpsertContacts(t.Context(), []hubspot.ContactWrite{
		{ExternalID: "k1", Email: "New@example.com", Properties: map[string]string{"news": "true"}, TraceID: "t1"},
		{ExternalID: "k2", Email: "second@example.com", TraceID: "t2"},
		{ExternalID: "k3", Email: "third@example.com", Properties: map[string]string{"nonsense": "1"}, TraceID: "t3"},
	})
	if err != nil || !results[0].Confirmed {
		t.Fatalf("%+v %v", results, err)
	}
	if he := results[1].Err; he.Kind != hubspot.KindConflict || he.ExistingID != old.ID {
		t.Errorf("%+v", he)
	}
	if he := results[2].Err; he.Kind != hubspot.KindInvalid || he.Code != "hubspot_400_property_doesnt_exist" || he.Property != "nonsense" {
		t.Errorf("%+v", he)
	}
	updates, err := c.UpdateContacts(t.Context(), []hubspot.ContactUpdate{
		{ID: old.ID, Properties: map[string]string{hubspot.ContactKeyProperty: "k2"}, TraceID: "t1"},
		{ID: "404404", Properties: map[string]string{"news": "true"}, TraceID: "t2"},
	})
	if err != nil || !updates[0].Confirmed || updates[1].Err.Kind != hubspot.KindNotFound {
		t.Errorf("%+v %v", updates, err)
	}
	reads, err := c.ReadContacts(t.Context(), []string{"SECOND@example.com", "new@example.com", "none@example.com"}, "email", []string{"news"})
	if err != nil || reads["second@example.com"].RecordID != old.ID || reads["new@example.com"].Properties["news"] != "true" ||
		reads["none@example.com"].Found || reads["none@example.com"].Err != nil {
		t.Errorf("%+v %v", reads, err)
	}
	if r, err := c.UpdateContact(t.Context(), hubspot.ContactUpdate{ID: "new@example.com", IDProperty: "email", Properties: map[string]string{"news": ""}}); err != nil || !r.Confirmed {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := c.GetContact(t.Context(), "k1", hubspot.ContactKeyProperty, nil); err != nil || !r.Found || r.Properties["email"] != "new@example.com" {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := c.GetContact(t.Context(), "k9", hubspot.ContactKeyProperty, nil); err != nil || r.Found || r.Err != nil {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := c.AddAndRemoveMembers(t.Context(), "9", []string{old.ID, "404404"}, nil); err != nil || len(r.Added) != 1 || len(r.Missing) != 1 {
		t.Errorf("%+v %v", r, err)
	}
	_, err = c.AddAndRemoveMembers(t.Context(), "10", []string{old.ID}, nil)
	wantKind(t, err, hubspot.KindInvalid)
}

func TestSimulatorMeta(t *testing.T) {
	t.Parallel()
	_, c := simulate(t, hubspottest.Portal{})
	definitions, err := c.Definitions(t.Context())
	if err != nil || len(definitions) != 2 || definitions[1] != (hubspot.Definition{ID: 3000000000, Name: "Offers", BusinessUnitID: 3, Active: true}) {
		t.Errorf("%+v %v", definitions, err)
	}
	unique := false
	properties, err := c.Properties(t.Context())
	for _, p := range properties {
		unique = unique || (p.Name == hubspot.ContactKeyProperty && p.HasUniqueValue)
	}
	if err != nil || !unique {
		t.Errorf("%+v %v", properties, err)
	}
	if l, err := c.List(t.Context(), "9"); err != nil || l.ProcessingType != "MANUAL" || l.ObjectTypeID != "0-1" {
		t.Errorf("%+v %v", l, err)
	}
	_, err = c.List(t.Context(), "77")
	wantKind(t, err, hubspot.KindNotFound)
	if a, err := c.AccountInfo(t.Context()); err != nil || a.PortalID != 62515 || a.TimeZone != "UTC" {
		t.Errorf("%+v %v", a, err)
	}
}

func TestSimulatorLimitsAndToken(t *testing.T) {
	t.Parallel()
	sim, c := simulate(t, hubspottest.Portal{BurstLimit: 1})
	if _, err := c.AccountInfo(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := c.AccountInfo(t.Context())
	if he := wantKind(t, err, hubspot.KindRateLimited); he.Policy != "TEN_SECONDLY_ROLLING" || he.RetryAfter != 10*time.Second {
		t.Errorf("%+v", he)
	}
	sim.SetLimits("p1", 100, 1)
	_, err = c.AccountInfo(t.Context())
	wantKind(t, err, hubspot.KindDailyLimited)
	sim.SetToken("p1", "rotated")
	_, err = c.AccountInfo(t.Context())
	wantKind(t, err, hubspot.KindUnauthorized)
}

// A write whose reply is lost has taken effect; one that the simulator refused has not.
func TestSimulatorFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault   hubspottest.Fault
		kind    hubspot.Kind // of the call, or of the write
		written bool
	}{
		"reply lost":       {hubspottest.Fault{LoseReply: true}, hubspot.KindUnknown, true},
		"answer truncated": {hubspottest.Fault{Truncate: true}, hubspot.KindUnknown, true},
		"answer slow":      {hubspottest.Fault{SlowMs: 2500}, hubspot.KindUnknown, true},
		"HTML instead":     {hubspottest.Fault{Replace: "<html>"}, hubspot.KindUnknown, true},
		"empty results":    {hubspottest.Fault{Replace: `{"status":"COMPLETE","results":[]}`}, hubspot.KindUnknown, true},
		"lands late":       {hubspottest.Fault{LandLateMs: 100}, hubspot.KindUnknown, true},
		"bad gateway":      {hubspottest.Fault{Status: 502, Body: "<html>"}, hubspot.KindUnavailable, false},
		"locked":           {hubspottest.Fault{Status: 423}, hubspot.KindLocked, false},
		"migrating":        {hubspottest.Fault{Status: 477, Header: map[string]string{"Retry-After": "60"}}, hubspot.KindMigrating, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, c := simulate(t, hubspottest.Portal{})
			test.fault.Probability = 1
			sim.SetFaults(test.fault)
			results, err := c.WriteStatuses(t.Context(), []hubspot.StatusWrite{{Email: "a@example.com", SubscriptionID: 7, State: hubspot.Unsubscribed}})
			if err == nil {
				err = results[0].Err
			}
			wantKind(t, err, test.kind)
			written := false
			for deadline := time.Now().Add(5 * time.Second); !written && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				if _, written = sim.Status("p1", "a@example.com", 7); !test.written {
					break
				}
			}
			if written != test.written {
				t.Errorf("written %v, want %v", written, test.written)
			}
		})
	}
}
