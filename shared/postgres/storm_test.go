package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/postgres/postgrestest"
	"hubsync/shared/routing"
)

const stormRoutes = `{"portals":[{"id":"main","hubId":1,"burst":{"limit":1000,"window":"10s"},"daily":500000}],
"brands":[{"id":"acme","portal":"main","products":[
 {"id":"a","subscriptionTypeId":5,"legalBasis":"NON_GDPR"},{"id":"b","subscriptionTypeId":6,"legalBasis":"NON_GDPR"}]}]}`

// storm is intake, relays, workers, sweeps and checks over the same few rows.
type storm struct {
	t      *testing.T
	db     *postgres.DB
	pool   *pgxpool.Pool
	rounds atomic.Int64
}

const (
	stormPeople  = 12
	stormRounds  = 1000
	stormWorkers = 4
)

func (s *storm) must(err error) {
	if err != nil && s.t.Context().Err() == nil {
		s.t.Error(err)
	}
}

func (s *storm) accept(i int) {
	email := fmt.Sprintf("p%d@example.com", rand.IntN(stormPeople))
	state := []outbox.DesiredState{outbox.Subscribed, outbox.Unsubscribed}[rand.IntN(2)]
	_, err := s.db.Accept(s.t.Context(), postgres.Decision{
		RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: "acme", ProductID: []string{"a", "b"}[rand.IntN(2)],
		ContactKey: email, Email: email, EmailKey: email, DesiredState: state, IdempotencyKey: fmt.Sprint(uuid.New(), i), RequestHash: "h", Source: "api", Lane: outbox.LaneLive,
	})
	s.must(err)
}

func (s *storm) optOutOfAll(i int) {
	email := fmt.Sprintf("p%d@example.com", rand.IntN(stormPeople))
	_, err := s.db.UnsubscribeAll(s.t.Context(), postgres.Decision{
		RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: []string{"acme", "*"}[rand.IntN(2)],
		ContactKey: email, Email: email, EmailKey: email, IdempotencyKey: fmt.Sprint(uuid.New(), i), RequestHash: "h", Source: "unsubscribe_all",
	})
	s.must(err)
}

func (s *storm) changeEmail() {
	key := fmt.Sprintf("p%d@example.com", rand.IntN(stormPeople))
	email := []string{key, "other-" + key}[rand.IntN(2)]
	_, err := s.db.ChangeEmail(s.t.Context(), "acme", key, email, email)
	s.must(err)
}

func (s *storm) relay() []uuid.UUID {
	token := uuid.New()
	routes := []postgres.Route{{PortalID: "main", Lane: outbox.LaneOptOut, Room: 50, Brands: []string{"acme"}}, {PortalID: "main", Lane: outbox.LaneLive, Room: 50, Brands: []string{"acme"}}}
	events, err := s.db.ClaimPublishable(s.t.Context(), routes, 40, token, time.Minute)
	s.must(err)
	ids := make([]uuid.UUID, len(events))
	marks := make([]postgres.Published, len(events))
	for i, e := range events {
		ids[i], marks[i] = e.ID, postgres.Published{EventID: e.ID, MessageID: "m"}
	}
	rand.Shuffle(len(marks), func(i, j int) { marks[i], marks[j] = marks[j], marks[i] })
	_, err = s.db.MarkPublished(s.t.Context(), token, marks, time.Minute)
	s.must(err)
	return ids
}

// work claims and settles some events, in any order; some workers are lost.
func (s *storm) work(ids []uuid.UUID) {
	claims, err := s.db.ClaimEvents(s.t.Context(), ids, postgres.ClaimOptions{Lease: 20 * time.Millisecond, Late: time.Minute, CheckDelay: 0, MaxAttempts: 1 << 30})
	s.must(err)
	var settlements []postgres.Settlement
	for _, c := range claims {
		if c.Verdict != postgres.VerdictClaimed || rand.IntN(10) == 0 {
			continue
		}
		outcome := []postgres.Outcome{postgres.OutcomeSynced, postgres.OutcomeSynced, postgres.OutcomeRetry, postgres.OutcomeDead}[rand.IntN(4)]
		at := time.Now()
		if c.DesiredState == outbox.Subscribed && rand.IntN(6) == 0 {
			outcome = postgres.OutcomeOptOut
		}
		settlements = append(settlements, postgres.Settlement{Claim: c, Outcome: outcome, Unknown: rand.IntN(5) == 0, Shown: "SUBSCRIBED",
			OptedOutAt: &at, InboundRequest: uuid.New(), InboundEvent: uuid.New()})
	}
	if rand.IntN(4) == 0 {
		time.Sleep(30 * time.Millisecond) // past the lease
	}
	_, err = s.db.SettleEvents(s.t.Context(), settlements, nil, postgres.SettleOptions{Late: time.Minute, Audit: time.Hour})
	s.must(err)
}

func (s *storm) check() {
	due, err := s.db.ClaimChecks(s.t.Context(), "main", rand.IntN(2) == 0, 20, 0)
	s.must(err)
	shown := make([]string, len(due))
	for i := range shown {
		shown[i] = "SUBSCRIBED"
	}
	if len(due) > 0 {
		_, err = s.db.Correct(s.t.Context(), due[0], fmt.Sprint(rand.IntN(100)), uuid.New())
		s.must(err)
		_, err = s.db.AcceptInbound(s.t.Context(), due[len(due)-1], time.Now(), uuid.New(), uuid.New())
		s.must(err)
	}
	s.must(s.db.NoteEqual(s.t.Context(), due, shown, 0, time.Minute))
}

// One lock order everywhere: contact → subscription by key → event by id. With another
// one in any of these statements PostgreSQL kills transactions as deadlocks.
func TestAThousandRoundsOverTheSameRowsWithoutADeadlock(t *testing.T) {
	t.Parallel()
	s := &storm{t: t, pool: postgrestest.New(t)}
	s.db = postgres.New(s.pool)
	file, err := routing.Parse([]byte(stormRoutes))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.ApplyRoutes(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * stormPeople {
		s.accept(i)
	}
	var wg sync.WaitGroup
	for range stormWorkers {
		wg.Go(func() {
			for s.rounds.Add(1) <= stormRounds {
				ids := s.relay()
				s.accept(0)
				switch rand.IntN(40) {
				case 0:
					s.optOutOfAll(0)
				case 1:
					s.changeEmail()
				}
				s.work(append(ids, s.others()...))
			}
		})
	}
	done := make(chan struct{})
	var side sync.WaitGroup
	for _, f := range []func(){s.check, func() { _, err := s.db.SweepStuck(t.Context(), 50); s.must(err) }} {
		side.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					f()
				}
			}
		})
	}
	wg.Wait()
	close(done)
	side.Wait()
	s.judge()
}

// others returns some events that are not settled, so that messages repeat and overlap.
func (s *storm) others() []uuid.UUID {
	rows, err := s.pool.Query(s.t.Context(), `SELECT id::text FROM hubspot_outbox_events WHERE completed_at IS NULL ORDER BY random() LIMIT 10`)
	s.must(err)
	var ids []uuid.UUID
	for rows.Next() {
		var text string
		s.must(rows.Scan(&text))
		ids = append(ids, uuid.MustParse(text))
	}
	return ids
}

func (s *storm) judge() {
	t := s.t
	var deadlocks int
	for _, q := range []struct {
		what, sql string
		into      *int
	}{
		{"deadlocks", `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`, &deadlocks},
		{"subscriptions with a gap in their sequences", `SELECT count(*) FROM (SELECT s.latest_sequence, count(DISTINCT e.sequence) n FROM contact_subscription_state s
			JOIN subscription_requests r USING (contact_key, brand_id, product_id) JOIN hubspot_outbox_events e ON e.request_id = r.id WHERE e.sequence IS NOT NULL
			GROUP BY s.contact_key, s.brand_id, s.product_id, s.latest_sequence) x WHERE n <> latest_sequence`, nil},
		{"events without a deadline or an end", `SELECT count(*) FROM hubspot_outbox_events WHERE next_attempt_at IS NULL`, nil},
		{"subscriptions applied beyond their latest decision", `SELECT count(*) FROM contact_subscription_state WHERE applied_sequence > latest_sequence`, nil},
		{"latest events that are not the newest", `SELECT count(*) FROM contact_subscription_state s JOIN hubspot_outbox_events e ON e.id = s.latest_event_id WHERE e.sequence <> s.latest_sequence`, nil},
	} {
		n := q.into
		if n == nil {
			n = new(int)
		}
		if err := s.pool.QueryRow(context.Background(), q.sql).Scan(n); err != nil {
			t.Fatal(q.what, err)
		}
		if *n != 0 {
			t.Errorf("%d %s", *n, q.what)
		}
	}
}
