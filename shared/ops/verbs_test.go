package ops

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// seed writes one decision with its event, as intake and worker leave it.
type seed struct {
	contact, product, state, status, code string
	sequence                              int
	at                                    string // an interval back from now
	request, event                        string
}

func (w *world) seed(s seed) seed {
	w.t.Helper()
	if s.product == "" {
		s.product = "news"
	}
	if s.at == "" {
		s.at = "1 minute"
	}
	s.request, s.event = uuid.NewString(), uuid.NewString()
	completed := "NULL"
	if s.status == "dead" || s.status == "synced" || s.status == "superseded" {
		completed = "now() - $7::interval + interval '5 seconds'"
	}
	w.exec(`INSERT INTO contacts (contact_key, email, email_key) VALUES ($1::text, $1::text || '@example.com', $1::text || '@example.com') ON CONFLICT DO NOTHING`, s.contact)
	w.exec(`INSERT INTO contact_aliases (alias_key, contact_key) VALUES ($1::text, $1::text) ON CONFLICT DO NOTHING`, s.contact)
	w.exec(`INSERT INTO subscription_requests (id, brand_id, contact_key, product_id, desired_state, mapping_version, idempotency_key, request_hash,
		sync_status, sequence, consent_at, created_at, consent) VALUES ($1::uuid, 'acme', $2, $3, $4, 1, ($1::uuid)::text, 'h', 'pending', $5, now() - $6::interval, now() - $6::interval,
		'{"legalBasis":"CONSENT_WITH_NOTICE","explanation":"a canary text"}')`, s.request, s.contact, s.product, s.state, s.sequence, s.at)
	w.exec(`INSERT INTO hubspot_outbox_events (id, request_id, event_type, payload, status, portal_id, brand_id, lane, sequence, mapping_version, created_at,
		completed_at, last_error_code) SELECT $1::uuid, $2::uuid, 'subscription.desired-state.v1', coalesce((SELECT snapshot FROM brand_subscription_routes WHERE active LIMIT 1), '{}'), $3, 'main', 'acme',
		CASE $4::text WHEN 'unsubscribed' THEN 0 ELSE 1 END, $5::bigint, 1, now() - $7::interval, `+completed+`, nullif($6, '')`,
		s.event, s.request, s.status, s.state, s.sequence, s.code, s.at)
	w.exec(`INSERT INTO contact_subscription_state (contact_key, brand_id, product_id, portal_id, latest_sequence, latest_event_id, desired_state)
		VALUES ($1, 'acme', $2, 'main', $3, $4, $5) ON CONFLICT (contact_key, brand_id, product_id)
		DO UPDATE SET latest_sequence = excluded.latest_sequence, latest_event_id = excluded.latest_event_id, desired_state = excluded.desired_state`,
		s.contact, s.product, s.sequence, s.event, s.state)
	return s
}

func TestStatusCountsAndPredicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	s, err := w.Status(t.Context(), None{})
	if err != nil || !s.OK || len(s.Portals) != 1 || len(s.Portals[0].Lanes) != 0 || s.Portals[0].DrainSeconds != 0 {
		t.Fatalf("nothing there: %+v %v", s, err)
	}
	w.seed(seed{contact: "a", state: "subscribed", status: "pending", sequence: 1, at: "2 hours"})
	w.seed(seed{contact: "b", state: "subscribed", status: "process_retry", sequence: 1})
	w.seed(seed{contact: "c", state: "unsubscribed", status: "queued", sequence: 1})
	if s, err = w.Status(t.Context(), None{}); err != nil || !s.OK || s.Portals[0].DrainSeconds != -1 {
		t.Errorf("a backlog that does not move: %+v %v", s, err)
	}
	if l := s.Portals[0].Lanes; len(l) != 2 || l[0].Lane != "optout" || l[0].InFlight != 1 || l[1].Waiting != 2 || l[1].OldestSeconds < 7190 {
		t.Errorf("lanes %+v", l)
	}
	done := w.seed(seed{contact: "d", state: "subscribed", status: "synced", sequence: 1})
	for range 2 { // twice the same event, once too old
		id, _ := uuid.NewV7()
		w.exec(`INSERT INTO hubspot_operation_receipts (id, event_id, operation, desired_hash, outcome) VALUES ($1, $2, 'preference', 'h', 'confirmed')`, id.String(), done.event)
	}
	w.exec(`INSERT INTO hubspot_operation_receipts (id, event_id, operation, desired_hash, outcome) VALUES ('01900000-0000-7000-8000-000000000000', $1, 'preference', 'h', 'confirmed')`,
		w.seed(seed{contact: "e", state: "subscribed", status: "synced", sequence: 1}).event)
	if s, err = w.Status(t.Context(), None{}); err != nil || s.Portals[0].PerMinute != 0.2 || s.Portals[0].DrainSeconds != 900 {
		t.Errorf("1 confirmed in 5 minutes, 3 left: %+v %v", s.Portals, err)
	}

	w.seed(seed{contact: "f", state: "subscribed", status: "dead", sequence: 1, code: "hubspot_404"})
	old := w.seed(seed{contact: "g", state: "subscribed", status: "dead", sequence: 1, code: "hubspot_404"})
	w.seed(seed{contact: "g", state: "subscribed", status: "synced", sequence: 2})
	if s, err = w.Status(t.Context(), None{}); err != nil || s.OK || len(s.Dead) != 1 || s.Dead[0].Count != 1 || s.Dead[0].Code != "hubspot_404" {
		t.Errorf("one dead and one replaced since (%s): %+v %v", old.event, s.Dead, err)
	}
}

func TestPauseResumeAndBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	for name, in := range map[string]PauseArgs{
		"no reason": {Portal: "main"}, "nothing named": {Reason: "r"}, "no such portal": {Portal: "mian", Reason: "r"}, "no such brand": {Brand: "acne", Reason: "r"},
		"no such lane": {Portal: "main", Lane: "fast", Reason: "r"}, "a negative time": {Portal: "main", Seconds: -1, Reason: "r"},
		"a lane of opt-outs without them": {Portal: "main", Lane: "optout", Reason: "r"},
	} {
		if _, err := w.Pause(t.Context(), in); err == nil || !failed(err).Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, in := range []PauseArgs{
		{Portal: "main", Reason: "maintenance"}, {Portal: "main", Seconds: 60, Reason: "shorter: the longer one stays"},
		{Brand: "acme", Reason: "r"}, {Portal: "main", Brand: "acme", Lane: "bulk", Seconds: 60, Reason: "r"}, {Portal: "main", Lane: "optout", OptOuts: true, Reason: "r"},
	} {
		if _, err := w.Pause(t.Context(), in); err != nil {
			t.Errorf("%+v: %v", in, err)
		}
	}
	s, err := w.Status(t.Context(), None{})
	if err != nil || s.Portals[0].PausedUntil == nil || s.Portals[0].PausedUntil.Before(time.Now().AddDate(5, 0, 0)) || s.Portals[0].PauseReason != "operator: maintenance" || len(s.Pauses) != 3 {
		t.Errorf("%+v %v", s, err)
	}
	for _, in := range []ResumeArgs{{Portal: "main"}, {Brand: "acme"}, {Portal: "main", Brand: "acme", Lane: "bulk"}, {Portal: "main", Lane: "optout"}} {
		if r, err := w.Resume(t.Context(), in); err != nil || !r.Was {
			t.Errorf("%+v: %+v %v", in, r, err)
		}
		if r, err := w.Resume(t.Context(), in); err != nil || r.Was {
			t.Errorf("a second time %+v: %+v %v", in, r, err)
		}
	}
	for name, in := range map[string]BudgetArgs{
		"nothing": {Portal: "main"}, "too little": {Portal: "main", Burst: 9}, "negative": {Portal: "main", Daily: -1}, "daily below burst": {Portal: "main", Daily: 149},
		"no such portal": {Portal: "mian", Burst: 20},
	} {
		if _, err := w.SetBudget(t.Context(), in); err == nil || !failed(err).Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if set, err := w.SetBudget(t.Context(), BudgetArgs{Portal: "main", Burst: 20, Daily: 1000}); err != nil || set.BurstBefore != 150 || set.BurstAfter != 20 || set.DailyAfter != 1000 {
		t.Errorf("%+v %v", set, err)
	}
}

func TestReplaySelectsAndSpreads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	for i, s := range []seed{
		{contact: "a", code: "x", state: "subscribed", at: "10 days"}, {contact: "b", code: "x", state: "unsubscribed"}, {contact: "c", code: "x", state: "subscribed"},
		{contact: "d", code: "y", state: "subscribed"}, {contact: "e", code: "x", product: "gone", state: "subscribed"},
	} {
		s.status, s.sequence = "dead", i+1
		w.seed(s)
	}
	for name, tc := range map[string]struct {
		in   ReplayArgs
		want int
	}{
		"all":                  {ReplayArgs{}, 4}, // not the one whose product has no route
		"by code":              {ReplayArgs{Code: "x"}, 3},
		"by brand":             {ReplayArgs{Brand: "other"}, 0},
		"by mapping":           {ReplayArgs{MappingVersion: 2}, 0},
		"that died since":      {ReplayArgs{From: time.Now().Add(-time.Hour)}, 3},
		"that died before":     {ReplayArgs{To: time.Now().Add(-time.Hour)}, 1},
		"in a day long ago":    {ReplayArgs{From: time.Now().AddDate(0, 0, -11), To: time.Now().AddDate(0, 0, -9)}, 1},
		"no more than a limit": {ReplayArgs{Limit: 2}, 2},
	} {
		tc.in.DryRun = true
		if r, err := w.Replay(t.Context(), tc.in); err != nil || r.Events != tc.want || !r.DryRun {
			t.Errorf("%s: %+v %v, want %d", name, r, err, tc.want)
		}
	}
	for _, in := range []ReplayArgs{{Limit: -1}, {PerSecond: -1}, {PerSecond: 1e6}, {MappingVersion: -1}, {From: time.Now(), To: time.Now().Add(-time.Hour)}} {
		if _, err := w.Replay(t.Context(), in); err == nil || !failed(err).Usage {
			t.Errorf("%+v: %v", in, err)
		}
	}
	r, err := w.Replay(t.Context(), ReplayArgs{Code: "x", PerSecond: 0.1})
	if err != nil || r.Events != 3 || r.Seconds != 20 {
		t.Fatalf("%+v %v", r, err)
	}
	// Opt-outs first, ten seconds apart.
	var order string
	if err := w.pool.QueryRow(t.Context(), `SELECT string_agg(lane || ':' || round(extract(epoch FROM next_attempt_at - created_at) / 10), ' ' ORDER BY next_attempt_at)
		FROM hubspot_outbox_events WHERE revision = 2`).Scan(&order); err != nil || order != "0:0 2:1 2:2" {
		t.Errorf("%s %v", order, err)
	}
	if r, err = w.Replay(t.Context(), ReplayArgs{Code: "x"}); err != nil || r.Events != 0 {
		t.Errorf("a second time: %+v %v", r, err)
	}
}

func TestEventsAreFoundAndExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	dead := w.seed(seed{contact: "a", state: "subscribed", status: "dead", sequence: 1, code: "hubspot_400_property_doesnt_exist"})
	w.exec(`INSERT INTO contact_aliases (alias_key, contact_key) VALUES ('other-key', 'a')`)
	open := w.seed(seed{contact: "b", state: "unsubscribed", status: "pending", sequence: 1})
	for name, tc := range map[string]struct {
		in   EventsArgs
		want string
	}{
		"open": {EventsArgs{Status: "open"}, open.event}, "by an alias": {EventsArgs{ContactKey: "other-key"}, dead.event}, "by request": {EventsArgs{Request: open.request}, open.event},
		"by code": {EventsArgs{Code: "hubspot_400_property_doesnt_exist"}, dead.event}, "dead": {EventsArgs{Status: "dead", Brand: "acme", Portal: "main", Product: "news"}, dead.event},
	} {
		if e, err := w.Events(t.Context(), tc.in); err != nil || len(e.Events) != 1 || e.Events[0].ID != tc.want {
			t.Errorf("%s: %+v %v", name, e, err)
		}
	}
	if _, err := w.Events(t.Context(), EventsArgs{Status: "done"}); err == nil || !failed(err).Usage {
		t.Errorf("%v", err)
	}
	if _, err := w.ShowEvent(t.Context(), EventArgs{"person@example.com"}); err == nil || strings.Contains(err.Error(), "person") {
		t.Errorf("an address instead of an id: %v", err)
	}
	if _, err := w.ShowEvent(t.Context(), EventArgs{uuid.NewString()}); err == nil || failed(err).Usage {
		t.Errorf("%v", err)
	}
	explain := func(id, want string) {
		t.Helper()
		d, err := w.ShowEvent(t.Context(), EventArgs{id})
		text, _ := json.Marshal(d.Explanation)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("does not say %q: %s %v", want, text, err)
		}
	}
	explain(dead.event, "mend the mapping")
	explain(dead.request, "hubsync replay --code hubspot_400_property_doesnt_exist")
	explain(open.event, "opt-outs go first")
	w.exec(`UPDATE hubspot_portals SET paused_until = 'infinity', pause_reason = 'the token is refused'`)
	explain(open.event, "opt-outs go first") // the pause does not hold opt-outs
	w.exec(`UPDATE hubspot_portals SET pause_opt_outs = true`)
	explain(open.event, "portal main is paused: the token is refused")
	w.exec(`UPDATE hubspot_portals SET paused_until = NULL`)
	w.exec(`INSERT INTO pauses (brand_id, opt_outs, paused_until, reason) VALUES ('acme', true, now() + interval '1 hour', 'a campaign')`)
	explain(open.event, "brand acme is paused: a campaign")
	newer := w.seed(seed{contact: "a", state: "unsubscribed", status: "synced", sequence: 2})
	explain(dead.event, newer.event)
	for status, want := range map[string]string{"publishing": "a relay is publishing", "queued": "counts as lost", "processing": "a worker has it"} {
		w.exec(`UPDATE hubspot_outbox_events SET status = $2 WHERE id = $1`, open.event, status)
		w.exec(`DELETE FROM pauses`)
		explain(open.event, want)
	}
}

func TestEvidenceIsOrderedSealedAndHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(routes)
	first := w.seed(seed{contact: "a", state: "subscribed", status: "synced", sequence: 1, at: "2 minutes"})
	w.seed(seed{contact: "a", state: "unsubscribed", status: "pending", sequence: 2})
	w.exec(`UPDATE hubspot_outbox_events SET published_at = created_at + interval '1 second', qstash_message_id = 'msg_1' WHERE id = $1`, first.event)
	w.exec(`INSERT INTO hubspot_operation_receipts (id, event_id, operation, desired_hash, outcome, correlation_id, hubspot_at, confirmed_at)
		SELECT gen_random_uuid(), id, 'preference', 'h', '=HYPERLINK("x")', 'corr-1', now(), created_at + interval '2 seconds' FROM hubspot_outbox_events WHERE id = $1`, first.event)
	w.exec(`UPDATE contact_subscription_state SET hubspot_status = 'SUBSCRIBED', hubspot_seen_at = now()`)
	l, err := w.Evidence(t.Context(), EvidenceArgs{"a"})
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, e := range l.Entries {
		steps = append(steps, e.Step)
	}
	if got := strings.Join(steps, " "); got != "accepted published confirmed settled accepted seen" {
		t.Errorf("steps: %s", got)
	}
	text, _ := json.Marshal(l)
	if strings.Contains(string(text), "@example") || strings.Contains(string(text), "canary") || !strings.Contains(string(text), "corr-1") {
		t.Errorf("%s", text)
	}
	again := l
	again.Entries = append([]Entry{}, l.Entries...)
	if again.Entries[1].MessageID = "msg_2"; again.seal() != nil || again.SHA256 == l.SHA256 || len(l.SHA256) != 64 {
		t.Error("a change does not show in the hash")
	}
	var csv strings.Builder
	if err := l.WriteCSV(&csv); err != nil || !strings.Contains(csv.String(), `"'=HYPERLINK(""x"")"`) || strings.Count(csv.String(), "\r\n") != 7 {
		t.Errorf("%v\n%s", err, csv.String())
	}
	if _, err := w.Evidence(t.Context(), EvidenceArgs{"someone@example.com"}); err == nil || strings.Contains(err.Error(), "someone") {
		t.Errorf("%v", err)
	}
}

func TestHarmlessCells(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]string{
		"": "", "plain": "plain", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "\tx": "'\tx", "\rx": "'\rx", "a=1": "a=1", "＝1": "'＝1",
	} {
		if got := harmless(cell); got != want {
			t.Errorf("%q becomes %q, want %q", cell, got, want)
		}
	}
}

func TestDriftAndConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := uuid.NewString()
	w.exec(`INSERT INTO reconcile_runs (id, kind, held_at, scheduled) VALUES ($1, 'check', now(), 900)`, run)
	w.exec(`INSERT INTO drift_listings (contact_key, brand_id, product_id, difference) VALUES ('a', 'acme', 'news', 'preference: SUBSCRIBED')`)
	w.exec(`INSERT INTO contact_conflicts (contact_key, kind, detail) VALUES ('a', 'shared_key', 'b')`)
	d, err := w.DriftReport(t.Context(), DriftArgs{})
	if err != nil || len(d.Listed) != 1 || len(d.HeldRuns) != 1 || d.HeldRuns[0].ID != run || d.HeldRuns[0].Scheduled != 900 {
		t.Errorf("%+v %v", d, err)
	}
	if s, err := w.Status(t.Context(), None{}); err != nil || s.OK || s.Attention.Drift != 1 || s.Attention.Conflicts != 1 || len(s.HeldRuns) != 1 {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := w.DriftApprove(t.Context(), ApproveArgs{run}); err != nil {
		t.Error(err)
	}
	for _, id := range []string{run, "7", uuid.NewString()} {
		if _, err := w.DriftApprove(t.Context(), ApproveArgs{id}); err == nil || !failed(err).Usage {
			t.Errorf("%s: %v", id, err)
		}
	}
	if c, err := w.Conflicts(t.Context(), ConflictsArgs{}); err != nil || len(c.Conflicts) != 1 || c.Conflicts[0].Detail != "b" {
		t.Errorf("%+v %v", c, err)
	}
	if r, err := w.ConflictsResolve(t.Context(), ResolveArgs{"a", "shared_key"}); err != nil || r.Resolved != 1 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := w.ConflictsResolve(t.Context(), ResolveArgs{"a", "shared_key"}); err == nil {
		t.Error("resolved twice")
	}
}

// What changes something is written down before it runs, with who did it; a routes file
// stands there by its hash.
func TestServeWritesTheAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	serve := func(verb, args string) Response {
		return w.Serve(t.Context(), Request{Verb: verb, Args: []byte(args), By: "somebody"})
	}
	content, _ := json.Marshal(RoutesFile{routes})
	if r := serve("routes.apply", string(content)); r.Error != "" {
		t.Fatal(r.Error)
	}
	serve("status", `{}`)
	if r := serve("budget.set", `{"portal":"main","burst":9}`); !r.Usage {
		t.Errorf("%+v", r)
	}
	for _, bad := range [][2]string{{"drop", "{}"}, {"budget.set", `{"portal":"main","brust":20}`}, {"budget.set", `7`}} {
		if r := serve(bad[0], bad[1]); !r.Usage || r.Error == "" {
			t.Errorf("%v: %+v", bad, r)
		}
	}
	log, err := w.Audit(t.Context(), AuditArgs{})
	if err != nil || len(log.Actions) != 4 {
		t.Fatalf("%+v %v", log, err)
	}
	apply := log.Actions[3]
	if apply.Verb != "routes.apply" || apply.Actor != "somebody" || apply.FinishedAt == nil || !strings.Contains(apply.Args, "sha256:") || strings.Contains(apply.Args, "acme") {
		t.Errorf("%+v", apply)
	}
	if refused := log.Actions[2]; refused.Problem == "" {
		t.Errorf("%+v", refused)
	}
	// Without a database a verb says so, and one that needs none works.
	bare := New(Config{})
	if r := bare.Serve(t.Context(), Request{Verb: "pause", Args: []byte(`{"portal":"main","reason":"r"}`)}); !strings.Contains(r.Error, "DATABASE_URL") {
		t.Errorf("%+v", r)
	}
	if r := bare.Serve(t.Context(), Request{Verb: "doctor"}); r.Error != "" {
		t.Errorf("%+v", r)
	}
}
