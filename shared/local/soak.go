package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"hubsync/shared/outbox"
	"hubsync/shared/postgres"
	"hubsync/shared/routing"
)

// SoakOptions say how much a soak sends.
type SoakOptions struct {
	World         Options // Routes is made by the soak
	Decisions     int
	Subscriptions int
	Clients       int // that send side by side
	// Bulk imports Decisions subscribes while HubSpot is paused, then measures how fast
	// they drain, and how long an opt-out takes meanwhile.
	Bulk bool
	// Audit drains the backlog first, then sends live decisions in turns with and without
	// an audit of everything beside them.
	Audit bool
	Seed  uint64
}

// soakBrands is how many brands share the account.
const soakBrands = 40

// soakRoutes is one account with forty brands of one product each.
func soakRoutes() (*routing.File, error) {
	f := routing.File{Portals: []routing.Portal{{ID: "main", HubID: 1, Burst: routing.Burst{Limit: 150, Window: "10s"}, Daily: 5_000_000}}}
	for i := range soakBrands {
		brand := fmt.Sprintf("brand_%02d", i)
		f.Brands = append(f.Brands, routing.Brand{ID: brand, Portal: "main", BusinessUnitID: int64(100 + i), Products: []routing.Product{{
			ID: "news", SubscriptionTypeID: int64(1000 + i), LegalBasis: "CONSENT_WITH_NOTICE",
			Targets: []routing.Target{{Kind: routing.ContactProperty, Name: "news_" + brand, Subscribed: "true", Unsubscribed: "false", Required: true}},
		}}})
	}
	content, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	return routing.Parse(content)
}

// Soak runs a load through a world and judges the simulator's ledger. The world is the
// caller's to stop, also after an error, unless it is nil.
func Soak(ctx context.Context, o SoakOptions, progress io.Writer) (*SoakReport, *World, error) {
	routes, err := soakRoutes()
	if err != nil {
		return nil, nil, err
	}
	o.World.Routes = routes
	say(progress, "starting PostgreSQL, Redis, QStash, HubSpot and hubsync on this machine …\n")
	w, err := Start(ctx, o.World)
	if err != nil {
		return nil, nil, err
	}
	s := &soak{SoakOptions: o, world: w, progress: progress}
	report, err := s.run(ctx)
	return report, w, err
}

// soak is a run.
type soak struct {
	SoakOptions
	world    *World
	progress io.Writer
	refused  atomic.Int64
}

func (s *soak) run(ctx context.Context) (*SoakReport, error) {
	started := time.Now()
	load := s.live
	if s.Bulk || s.Audit {
		load = s.backlog
	}
	if err := load(ctx); err != nil {
		return nil, err
	}
	fed := time.Now()
	var probes []probe
	if s.Bulk || s.Audit {
		if err := s.world.DB.ResumePortal(ctx, "main"); err != nil {
			return nil, err
		}
		fed = time.Now()
		stop := s.probe(ctx, "probe", "unsubscribed")
		err := s.drained(ctx)
		if probes = stop(); err != nil {
			return nil, err
		}
	}
	if err := s.world.Quiet(ctx); err != nil {
		return nil, err
	}
	var audit *AuditReport
	if s.Audit {
		var err error
		if audit, err = s.audits(ctx); err != nil {
			return nil, err
		}
	}
	r := &SoakReport{
		Decisions: s.Decisions, Refused: int(s.refused.Load()), Audit: audit,
		FeedSeconds: fed.Sub(started).Seconds(), DrainSeconds: time.Since(fed).Seconds() - quietFor.Seconds(),
	}
	return r, r.judge(ctx, s, fed, probes)
}

// person names a contact; its subscription belongs to one brand.
func (s *soak) person(i int) (brand, email string) {
	return fmt.Sprintf("brand_%02d", i%soakBrands), fmt.Sprintf("p%06d@example.com", i)
}

// side runs f for 0 … n-1 with Clients goroutines, and stops at the first error.
func (s *soak) side(ctx context.Context, n int, f func(ctx context.Context, random *rand.Rand, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for c := range s.Clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(s.Seed, uint64(c)))
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, random, i); err != nil {
					cancel(err)
				}
				if i%1000 == 0 {
					say(s.progress, "\r%d of %d decisions sent   ", i, n)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// live sends decisions through HTTP, to random subscriptions.
func (s *soak) live(ctx context.Context) error {
	return s.side(ctx, s.Decisions, func(ctx context.Context, random *rand.Rand, i int) error {
		brand, email := s.person(random.IntN(s.Subscriptions))
		state := "subscribed"
		if random.IntN(3) == 0 {
			state = "unsubscribed"
		}
		return s.post(ctx, fmt.Sprintf("soak-%d", i), brand, email, state)
	})
}

// backlog accepts subscribes as an import does, while HubSpot is paused.
func (s *soak) backlog(ctx context.Context) error {
	if err := s.world.DB.PausePortal(ctx, "main", time.Now().Add(time.Hour), "soak: a backlog is made", true); err != nil {
		return err
	}
	return s.side(ctx, s.Decisions, func(ctx context.Context, _ *rand.Rand, i int) error {
		brand, email := s.person(i % s.Subscriptions)
		now := time.Now()
		_, err := s.world.DB.Accept(ctx, postgres.Decision{
			RequestID: uuid.Must(uuid.NewV7()), EventID: uuid.Must(uuid.NewV7()), BrandID: brand, ProductID: "news", ContactKey: email, Email: email,
			EmailKey: email, DesiredState: outbox.Subscribed, IdempotencyKey: fmt.Sprintf("bulk-%d", i), RequestHash: "soak", Source: "import",
			OccurredAt: &now, Lane: outbox.LaneBulk,
		})
		return err
	})
}

// post sends a decision through HTTP. What intake sheds is counted, not sent again.
func (s *soak) post(ctx context.Context, key, brand, email, state string) error {
	body, err := json.Marshal(map[string]string{
		"contactKey": email, "email": email, "productId": "news", "desiredState": state, "occurredAt": time.Now().UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return err
	}
	status, err := send(ctx, soakClient, s.world.APIURL, Change{
		Method: http.MethodPost, Path: "/v1/brands/" + brand + "/subscriptions", Headers: map[string]string{"Idempotency-Key": key}, Body: body,
	})
	if err != nil {
		return err
	}
	switch status {
	case http.StatusAccepted:
		return nil
	case http.StatusTooManyRequests, http.StatusConflict, http.StatusServiceUnavailable:
		s.refused.Add(1)
		return nil
	default:
		return fmt.Errorf("intake answered %d", status)
	}
}

var soakClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}

// probe is an opt-out sent while a backlog drains.
type probe struct {
	email string
	at    time.Time
}

const probeEvery = 200 * time.Millisecond

const openBulk = `SELECT count(*) FROM hubspot_outbox_events WHERE lane = 2 AND completed_at IS NULL`

// drained waits until nothing of the backlog is left.
func (s *soak) drained(ctx context.Context) error {
	for {
		var open int
		if err := s.world.pool.QueryRow(ctx, openBulk).Scan(&open); err != nil || open == 0 {
			return err
		}
		say(s.progress, "\r%d of the backlog left   ", open)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollQuiet):
		}
	}
}

// probe sends decisions of new people now and then, until stop is called.
func (s *soak) probe(ctx context.Context, name, state string) (stop func() []probe) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan []probe, 1)
	go func() {
		var sent []probe
		every(ctx, probeEvery, func() {
			brand, _ := s.person(len(sent))
			email := fmt.Sprintf("%s-%d@example.com", name, len(sent))
			at := time.Now()
			if s.post(ctx, email, brand, email, state) == nil {
				sent = append(sent, probe{email, at})
			}
		})
		done <- sent
	}()
	return func() []probe { cancel(); return <-done }
}
