package sim

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sort"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"

	"hubsync/shared/qstash/qstashtest"
)

// examine looks at a world at rest: I1 to I8, and that it stays as it is.
func (w *world) examine() {
	// What changed inside HubSpot is found when its turn comes.
	if !w.audit("the first audit") {
		return
	}
	w.look()
	// Once more, and every message once more: nothing is left to do.
	writes, events := w.written(), w.query(selectEvents)
	if !w.audit("the second audit") || !w.redeliver() {
		return
	}
	if now := w.written(); now != writes {
		w.violate("I5", "at rest HubSpot was written %d times more", now-writes)
	}
	if now := w.query(selectEvents); now != events {
		w.violate("I8", "at rest %s events became %s", events, now)
	}
}

// look compares everything with what must be.
func (w *world) look() {
	w.decisions()
	w.compare()
	w.opened()
	w.targets()
	w.privacy()
	w.budgets()
	w.isolation()
}

const selectEvents = `SELECT count(*)::text || ' with ' || coalesce(sum(generation), 0) || ' generations' FROM hubspot_outbox_events`

// audit lets the audit period pass, and what was found be repaired.
func (w *world) audit(name string) bool {
	w.now = w.now.Add(25 * time.Hour)
	w.check.ran(w.now)
	w.trace("%s", name)
	return w.rest(name)
}

func (w *world) written() (n int) {
	for _, c := range w.ledger.calls {
		n += len(c.writes)
	}
	return n
}

// redeliver sends every message that there ever was once more.
func (w *world) redeliver() bool {
	w.trace("every message once more")
	for _, batch := range w.ledger.published {
		var items []struct {
			Body string `json:"body"`
		}
		w.must(json.Unmarshal([]byte(batch), &items, json.RejectUnknownMembers(false)))
		for _, i := range items {
			w.spawn("delivery", func() {
				r := httptest.NewRequest(http.MethodPost, workerURL, strings.NewReader(i.Body))
				signature, err := qstashtest.Sign(w.keys.Current, workerURL, []byte(i.Body), "again", w.now)
				w.must(err)
				r.Header.Set("Upstash-Signature", signature)
				answer, err := deliveries{w}.RoundTrip(r)
				if err != nil || answer.StatusCode != http.StatusOK {
					w.violate("I8", "an old message was not answered with 200")
				}
			})
		}
	}
	return w.rest("every message came once more")
}

// decisions: I1 and I8, what was accepted is there once and has ended.
func (w *world) decisions() {
	keys := 0
	for key, t := range w.ledger.tries {
		if t.receipt == "" {
			w.violate("I1", "%s has no receipt", key)
			continue
		}
		keys++
		// What died before a newer decision came stays dead, for the record.
		status := w.query(`
			SELECT coalesce(string_agg(CASE WHEN r.sync_status = 'dead' AND r.sequence < s.latest_sequence THEN 'superseded' ELSE r.sync_status END, ' '), 'lost')
			FROM subscription_requests r LEFT JOIN contact_subscription_state s
			  ON (s.contact_key, s.brand_id, s.product_id) = (r.contact_key, r.brand_id, r.product_id)
			WHERE r.idempotency_key = $1`, key)
		if status != "synced" && status != "superseded" {
			w.violate("I1", "%s is %s", key, status)
		}
	}
	if n := w.query(`SELECT count(*)::text FROM subscription_requests WHERE source IN ('api', 'import')`); n != fmt.Sprint(keys) {
		w.violate("I8", "%s requests are stored for %d keys", n, keys)
	}
}

// compare: I2, I3 and I5, HubSpot shows what must be.
func (w *world) compare() {
	musts := w.ledger.model()
	for _, c := range slices.SortedFunc(maps.Keys(musts), func(a, b cell) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		must := musts[c]
		p := placeOf(c.brand, c.product)
		shown, ok := w.hubspot.Status(p.portal, c.email, p.subscription)
		if !ok {
			shown.State = "nothing"
		}
		w.trace("%v is %s", c, shown.State)
		want := map[bool]string{true: "SUBSCRIBED", false: "UNSUBSCRIBED"}[must.subscribed]
		if shown.State == want || (must.open != "" && (shown.State == "SUBSCRIBED" || shown.State == "UNSUBSCRIBED")) {
			continue
		}
		if listed := w.query(`SELECT count(*)::text FROM drift_listings d JOIN contacts k ON k.contact_key = d.contact_key
			WHERE k.email_key = $1 AND d.brand_id = $2 AND d.product_id = $3 AND d.resolved_at IS NULL`, c.email, c.brand, c.product); listed != "0" {
			w.fired["listed difference"]++
			continue
		}
		w.violate("I2", "%v is %s in HubSpot and must be %s; %s", c, shown.State, want, w.history(c))
	}
}

// history tells what happened to a cell, for a person.
func (w *world) history(c cell) string {
	type line struct {
		step int
		text string
	}
	var lines []line
	for _, a := range w.ledger.accepted {
		if a.cell == c {
			lines = append(lines, line{a.step, fmt.Sprintf("%s %s accepted %s, consent %s", a.key, a.state, a.at.Format(clockFormat), a.consent().Format(clockFormat))})
		}
	}
	for _, a := range w.ledger.acts {
		if a.email == c.email && (a.cell == c || a.kind == "wide") {
			lines = append(lines, line{a.step, fmt.Sprintf("somebody: %s %d at %s %s", a.kind, a.unit, a.at.Format(clockFormat), a.erased)})
		}
	}
	for _, call := range w.ledger.calls {
		for _, write := range call.writes {
			if write.Email == c.email && write.SubscriptionID == placeOf(c.brand, c.product).subscription {
				lines = append(lines, line{call.step, fmt.Sprintf("HubSpot took %s (%s) at %s, heard %t", write.State, write.Reason, call.landed.Format(clockFormat), call.heard)})
			}
		}
	}
	sort.SliceStable(lines, func(i, j int) bool { return lines[i].step < lines[j].step })
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = fmt.Sprintf("%d: %s", l.step, l.text)
	}
	return strings.Join(texts, "; ")
}

// opened: I3, no SUBSCRIBED was sent over an opt-out that its own process had read.
func (w *world) opened() {
	for _, o := range w.ledger.overtook {
		consent, known := w.consentOf(o.event)
		switch {
		case !known:
			w.violate("I3", "a SUBSCRIBED carries no marker of ours")
		case o.act.at.Before(consent.Truncate(time.Millisecond)): // it may be lifted
		case o.read < 0:
			w.violate("I3", "a SUBSCRIBED was sent without a look, over %s", o.act.kind)
		case o.act.step < o.read:
			w.violate("I3", "a SUBSCRIBED of consent %s was sent although its process had read the %s of %s", consent.Format(clockFormat), o.act.kind, o.act.at.Format(clockFormat))
		default:
			w.fired["opt-out overtaken inside HubSpot's window"]++
		}
	}
}

func (w *world) consentOf(event string) (time.Time, bool) {
	if event == "" {
		return time.Time{}, false
	}
	key := w.query(`SELECT r.idempotency_key FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id WHERE e.id = $1::uuid`, event)
	for _, a := range w.ledger.accepted {
		if a.key == key {
			return a.consent(), true
		}
	}
	return time.Time{}, false
}

// privacy: I7, the canary is in nothing that others read.
func (w *world) privacy() {
	for what, text := range map[string]string{
		"the log": w.log.String(), "a message": strings.Join(w.ledger.published, "\n"),
		"an error":  w.query(`SELECT coalesce(string_agg(concat_ws(' ', last_error_code, last_error_summary, payload::text), ' '), '') FROM hubspot_outbox_events`),
		"a run":     w.query(`SELECT coalesce(string_agg(coalesce(problem, ''), ' '), '') FROM reconcile_runs`),
		"a receipt": w.query(`SELECT coalesce(string_agg(concat_ws(' ', operation, desired_hash, outcome, correlation_id), ' '), '') FROM hubspot_operation_receipts`),
	} {
		if strings.Contains(strings.ToLower(text), "canary") {
			w.violate("I7", "an address is in %s", what)
		}
	}
}

// budgets: I4, no ten seconds saw more calls than the limit. A call that was frozen on its
// way landed later than its reservation said.
func (w *world) budgets() {
	limits := map[string]int{"main": burstLimit, "other": 40}
	for portal, limit := range limits {
		var times []time.Time
		for _, c := range w.ledger.calls {
			if c.portal == portal && c.landed.Sub(c.began) <= time.Second {
				times = append(times, c.landed)
			}
		}
		slices.SortFunc(times, time.Time.Compare)
		from := 0
		for to := range times {
			for times[to].Sub(times[from]) >= 10*time.Second {
				from++
			}
			if n := to - from + 1; n > limit {
				w.violate("I4", "%d calls reached portal %s within 10 s, its limit is %d", n, portal, limit)
				break
			}
		}
	}
}

// targets: I5 holds for what is required beside the preference too.
func (w *world) targets() {
	for c, must := range w.ledger.model() {
		p := placeOf(c.brand, c.product)
		contact, exists := w.hubspot.Contact(p.portal, c.email)
		shown, _ := w.hubspot.Status(p.portal, c.email, p.subscription)
		if must.open != "" || (shown.State == "SUBSCRIBED") != must.subscribed {
			continue // what must be is open, or compare has said it
		}
		switch value := contact.Properties["news"]; {
		case must.subscribed && p.product != "plain" && p.product != "digest" && !exists:
			w.violate("I5", "%v is subscribed and no contact", c)
		case p.product == "news" && must.subscribed && value != "true" && value != "yes":
			w.violate("I5", "%v is subscribed and its property is %q", c, value)
		case p.product == "news" && !must.subscribed && value != "" && value != "false":
			w.violate("I5", "%v is unsubscribed and its property is %q", c, value)
		case p.product == "tips" && must.subscribed && !strings.Contains(contact.Properties["hs_all_assigned_business_unit_ids"], "9"):
			w.violate("I5", "%v is subscribed and not assigned to its brand", c)
		}
	}
}

// patience is how long a decision may take that has nothing to do with the trouble: the
// budget of a Redis that just began is closed for eleven seconds, and then shared.
const patience = 2 * time.Minute

const selectSlow = `
SELECT coalesce(string_agg(r.idempotency_key || ' ' || coalesce(e.completed_at - e.created_at, interval '1 year') || ' ' || e.status, ', '), '')
FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id JOIN contacts c ON c.contact_key = r.contact_key
WHERE e.revision = 1 AND e.created_at < $3::timestamptz AND e.sequence IS NOT NULL
  AND CASE WHEN $1 = 'poison' THEN c.email_key <> $2 ELSE e.portal_id <> $2 END
  AND (e.status = 'dead' OR e.completed_at - e.created_at > $4::interval)`

// isolation: I6, where only one address or one portal was in trouble nobody else waited
// for it or died of it.
func (w *world) isolation() {
	f := w.plan.alone
	if f == nil || !f.fired {
		return
	}
	whose := f.portal
	if f.kind == "poison" {
		whose = f.email
	}
	if slow := w.query(selectSlow, f.kind, whose, start.Add(w.plan.quiet), patience); slow != "" {
		w.violate("I6", "%s of somebody else: %s", f.kind, slow)
	}
	w.fired["isolated trouble"]++
}
