package importer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hubsync/shared/intake"
	"hubsync/shared/postgres"
)

// before is what both databases hold before the rows come: wide opt-outs, a contact that
// is being erased, one that was.
var before = []string{
	`INSERT INTO contacts (contact_key, email, email_key, opted_out_at) VALUES ('key1', 'p1@example.com', 'p1@example.com', '2026-03-01')`,
	`INSERT INTO contacts (contact_key, email, email_key) VALUES ('key2', 'p2@example.com', 'p2@example.com')`,
	`INSERT INTO contact_brand_opt_outs VALUES ('key2', 'acme', '2026-03-01')`,
	`INSERT INTO contacts (contact_key, email, email_key, erasing_at) VALUES ('key3', 'p3@example.com', 'p3@example.com', '2026-03-01')`,
	`INSERT INTO contacts (contact_key, erased_at) VALUES ('key4', '2026-03-01')`,
	`INSERT INTO contact_aliases (alias_key, contact_key) SELECT contact_key, contact_key FROM contacts`,
}

// rendered is everything that decisions leave behind, with events and requests named by
// their key, and moments of now called now.
var rendered = []string{
	`SELECT concat_ws('|', 'contact', contact_key, email, email_key, previous_email_keys, opted_out_at) FROM contacts ORDER BY 1`,
	`SELECT concat_ws('|', 'alias', alias_key, contact_key) FROM contact_aliases ORDER BY 1`,
	`SELECT concat_ws('|', 'conflict', contact_key, kind, detail, seen_count) FROM contact_conflicts ORDER BY 1`,
	`SELECT concat_ws('|', 'request', idempotency_key, brand_id, product_id, contact_key, desired_state, coalesce(sequence::text, 'none'),
	        sync_status, status_reason, source, mapping_version, request_hash, occurred_at, consent,
	        CASE WHEN consent_at > now() - interval '1 hour' THEN 'now' ELSE consent_at::text END) FROM subscription_requests ORDER BY 1`,
	`SELECT concat_ws('|', 'event', r.idempotency_key, r.brand_id, r.product_id, e.revision, e.event_type, e.status, e.lane, coalesce(e.sequence::text, 'none'),
	        e.portal_id, e.brand_id, e.mapping_version, e.payload, e.completed_at IS NULL,
	        (SELECT o.revision || q.idempotency_key FROM hubspot_outbox_events o JOIN subscription_requests q ON q.id = o.request_id WHERE o.id = e.superseded_by))
	 FROM hubspot_outbox_events e JOIN subscription_requests r ON r.id = e.request_id ORDER BY 1`,
	`SELECT concat_ws('|', 'subscription', s.contact_key, s.brand_id, s.product_id, s.portal_id, s.latest_sequence, s.desired_state, e.revision, r.idempotency_key,
	        CASE WHEN s.opted_out_at > now() - interval '1 hour' THEN 'now' ELSE s.opted_out_at::text END)
	 FROM contact_subscription_state s JOIN hubspot_outbox_events e ON e.id = s.latest_event_id JOIN subscription_requests r ON r.id = e.request_id ORDER BY 1`,
}

func (w *world) rendered() []string {
	var all []string
	for _, query := range rendered {
		all = append(all, w.texts(query)...)
	}
	return all
}

// randomFile mixes few people, keys and dates, so that every rule meets every other.
// tidy gives every person one key: then most rows take the short way.
func randomFile(r *rand.Rand, rows int, tidy bool) string {
	var text strings.Builder
	text.WriteString("idempotencyKey,brandId," + goodHeader)
	people := 8
	if tidy {
		people = 120
	}
	for i := range rows {
		person, key := r.IntN(people), r.IntN(8)
		if tidy {
			key = person
		}
		idempotencyKey := fmt.Sprintf("row-%d", i)
		if r.IntN(12) == 0 {
			idempotencyKey = fmt.Sprintf("row-%d", r.IntN(i+1))
		}
		brand := []string{"acme", "acme", "acme", "other", "none"}[r.IntN(5)]
		product := []string{"newsletter", "newsletter", "events"}[r.IntN(3)]
		state, at := "unsubscribed", []string{"", "2026-02-01", "2026-03-01", "2026-04-01T10:00:00Z", "2199-01-01"}[r.IntN(5)]
		if r.IntN(3) > 0 {
			state, at = "subscribed", []string{"2026-01-15", "2026-03-01", "2026-03-02", "2026-05-01T00:00:00+02:00", "2199-01-01"}[r.IntN(5)]
		}
		fmt.Fprintf(&text, "%s,%s,key%d,P%d@example.com,%s,%s,%s\n", idempotencyKey, brand, key, person, product, state, at)
	}
	return text.String()
}

// oneByOne stores a file's rows through Accept, as if each had come over HTTP, and
// returns their outcomes.
func (w *world) oneByOne(path string) []string {
	w.t.Helper()
	o := Options{Path: path, NewID: newID}
	file, err := openSource(o)
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.close()
	r := run{Options: o, file: file}
	if err := file.seek(postgres.Import{}); err != nil {
		w.t.Fatal(err)
	}
	var outcomes []string
	for number := int64(1); ; number++ {
		rec, more, err := file.next()
		if err != nil {
			w.t.Fatal(err)
		}
		if !more {
			return outcomes
		}
		row := r.complete(rec.row, number)
		outcomes = append(outcomes, w.accept(&row))
	}
}

func (w *world) accept(row *intake.Row) string {
	w.t.Helper()
	d, problems := row.Decision(newID)
	if len(problems) > 0 {
		return "refused"
	}
	receipt, err := w.db.Accept(w.t.Context(), d)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, refused := refusals[receipt.Outcome]; refused || receipt.Outcome == postgres.DecisionReplayed && receipt.RequestHash != d.RequestHash {
		return "refused"
	}
	return string(receipt.Outcome)
}

// TestImportDecidesAsIntake: a file leaves behind exactly what its rows would have left
// one by one, however it is cut into chunks.
func TestImportDecidesAsIntake(t *testing.T) {
	t.Parallel()
	const rows = 300
	for seed, tidy := range []bool{false, true, false, true} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(seed), 9))
			ours, theirs := newWorld(t), newWorld(t)
			for _, statement := range before {
				ours.texts(statement)
				theirs.texts(statement)
			}
			path := ours.file("f.csv", randomFile(random, rows, tidy))
			want := theirs.oneByOne(path)
			report, results, err := ours.run(Options{Path: path, ChunkRows: 1 + random.IntN(80)})
			if err != nil {
				t.Fatal(err)
			}
			ours.mustAddUp(report, results)
			var got []string
			for _, line := range results {
				got = append(got, strings.Split(line, ",")[2])
			}
			if !slices.Equal(got, want) {
				t.Errorf("outcomes\ngot  %q\nwant %q", got, want)
			}
			mustRenderAlike(t, ours.rendered(), theirs.rendered())
		})
	}
}

func mustRenderAlike(t *testing.T, got, want []string) {
	t.Helper()
	shown := 0
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w && shown < 5 {
			t.Errorf("\ngot  %s\nwant %s", g, w)
			shown++
		}
	}
}
