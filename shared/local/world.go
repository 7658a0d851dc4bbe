// Package local runs the whole of hubsync on one machine: PostgreSQL, Redis, a QStash
// emulator, a HubSpot simulator, timers in place of EventBridge, and the same handlers
// that Lambda runs, all over real sockets. Production code differs by base URL only.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubsync/shared/budget"
	"hubsync/shared/hubspot"
	"hubsync/shared/hubspot/hubspottest"
	"hubsync/shared/local/pgserver"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash/qstashtest"
	"hubsync/shared/routing"
)

// Options say what kind of world to start.
type Options struct {
	Routes       *routing.File
	HubSpotState []byte  // what HubSpot holds before, or nil
	RateScale    float64 // multiplies HubSpot's limits and our own
	DataDir      string  // keeps PostgreSQL's data; empty: everything is temporary
	DatabaseURL  string  // use this database; empty: that of the environment, or one of its own
	APIAddr      string  // empty: any free port, as for the others
	QStashAddr   string
	HubSpotAddr  string
	HubSpotURL   string // use this one instead of the simulator
	QStashURL    string // use this one instead of the emulator
	Faults       Faults
	// Roles gives each stage a connection under its function's database role, as it has
	// where it is deployed. The database's user must be one that may make roles.
	Roles  bool
	Logger *slog.Logger
}

// Faults make the world misbehave, to see that it ends in the same state.
type Faults struct {
	DuplicateMessages bool
	ShuffleMessages   bool
	LostReplies       float64 // share of HubSpot's answers that are lost after the write
}

// World is a running local world.
type World struct {
	opts    Options
	env     string
	pool    *pgxpool.Pool
	DB      *postgres.DB
	QStash  *qstashtest.Server
	HubSpot *hubspottest.Server

	APIURL, QStashURL, HubSpotURL, WorkerURL, DatabaseURL, RedisURL string

	roles    map[string]*postgres.DB // role → the database as it sees it
	pg       *pgserver.Server
	redis    *miniredis.Miniredis
	client   *redis.Client
	limiter  *budget.Limiter
	hubspots func(portalID string) (*hubspot.Client, error)
	tokens   sync.Map // portal → the token that UseToken gave
	servers  []*http.Server
	stopWork context.CancelFunc
	workDone chan struct{}
}

const (
	env            = "local"
	cronSecret     = "local-cron-secret" // guards nothing but this machine's own loopback
	poolSize       = 24
	rolePoolSize   = 12
	shutdownTime   = 5 * time.Second
	sweepEvery     = 10 * time.Second
	checkEvery     = 5 * time.Second
	headerTimeout  = 10 * time.Second
	shuffleUpTo    = 200 // milliseconds
	simulatorToken = "local-token-"
)

// Start starts everything; Stop removes it again. On an error nothing is left.
func Start(ctx context.Context, o Options) (*World, error) {
	w := &World{opts: o, env: env}
	for _, step := range []func(context.Context) error{
		w.startDatabase, w.startRedis, w.startHubSpot, w.startQStash, w.startStages,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, w.Stop())
		}
	}
	return w, nil
}

func (w *World) startDatabase(ctx context.Context) error {
	w.DatabaseURL = cmp.Or(w.opts.DatabaseURL, os.Getenv("DATABASE_URL"))
	if w.DatabaseURL == "" {
		server, err := pgserver.Start(ctx, pgserver.Options{DataDir: w.opts.DataDir, Durable: w.opts.DataDir != "", Progress: os.Stderr})
		if err != nil {
			return err
		}
		w.pg, w.DatabaseURL = server, server.DSN("postgres")
	}
	if _, _, err := postgres.Migrate(ctx, w.DatabaseURL); err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, postgres.Config{URL: w.DatabaseURL, MaxConns: poolSize})
	if err != nil {
		return err
	}
	w.pool, w.DB = pool, postgres.New(pool)
	if err := w.openRoles(ctx); err != nil {
		return err
	}
	_, err = w.DB.ApplyRoutes(ctx, w.opts.Routes)
	return err
}

// openRoles opens a pool under each function's role, if the options ask for it.
func (w *World) openRoles(ctx context.Context) error {
	w.roles = map[string]*postgres.DB{}
	if !w.opts.Roles {
		return nil
	}
	if err := postgres.GrantRoles(ctx, w.DatabaseURL); err != nil {
		return err
	}
	for _, r := range postgres.Roles {
		u, err := url.Parse(w.DatabaseURL)
		if err != nil {
			return errors.New("the database's URL cannot be read")
		}
		u.User = url.User(r.Name)
		pool, err := postgres.Open(ctx, postgres.Config{URL: u.String(), MaxConns: rolePoolSize})
		if err != nil {
			return fmt.Errorf("open a pool as %s: %w", r.Name, err)
		}
		w.roles[r.Name] = postgres.New(pool)
	}
	return nil
}

// database returns the database as a stage sees it.
func (w *World) database(stage string) *postgres.DB {
	if db := w.roles["hubsync_"+stage]; db != nil {
		return db
	}
	return w.DB
}

func (w *World) startRedis(context.Context) error {
	w.RedisURL = os.Getenv("REDIS_URL")
	if w.RedisURL == "" {
		w.redis = miniredis.NewMiniRedis()
		if err := w.redis.Start(); err != nil {
			return fmt.Errorf("start Redis: %w", err)
		}
		w.RedisURL = "redis://" + w.redis.Addr()
	}
	client, err := budget.Open(w.RedisURL)
	w.client = client
	return err
}

func (w *World) startHubSpot(ctx context.Context) error {
	w.HubSpot = hubspottest.New(hubspottest.Options{Portals: Portals(w.opts.Routes, w.opts.RateScale)})
	if w.opts.HubSpotState != nil {
		if err := w.HubSpot.LoadState(Reader(w.opts.HubSpotState)); err != nil {
			return err
		}
	}
	if w.opts.Faults.LostReplies > 0 {
		w.HubSpot.SetFaults(hubspottest.Fault{Probability: w.opts.Faults.LostReplies, LoseReply: true})
	}
	if w.opts.HubSpotURL != "" {
		w.HubSpotURL = w.opts.HubSpotURL
		return nil
	}
	url, err := w.serve(ctx, "--hubspot-addr", w.opts.HubSpotAddr, w.HubSpot.Handler())
	w.HubSpotURL = url
	return err
}

func (w *World) startQStash(ctx context.Context) error {
	w.QStash = qstashtest.New(qstashtest.Options{})
	var f qstashtest.Faults
	if w.opts.Faults.DuplicateMessages {
		f.Duplicate = 1
	}
	if w.opts.Faults.ShuffleMessages {
		f.ShuffleMs = shuffleUpTo
	}
	w.QStash.SetFaults(f)
	if w.opts.QStashURL != "" {
		w.QStashURL = w.opts.QStashURL
		return nil
	}
	url, err := w.serve(ctx, "--qstash-addr", w.opts.QStashAddr, w.QStash.Handler())
	w.QStashURL = url
	return err
}

// serve listens on an address, or on any free port of the loopback.
func (w *World) serve(ctx context.Context, flag, addr string, h http.Handler) (string, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("cannot listen on %s: %w; choose another address with %s", addr, err, flag)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	w.servers = append(w.servers, server)
	go func() { _ = server.Serve(listener) }() // ends with ErrServerClosed
	return "http://" + listener.Addr().String(), nil
}

// Stop ends everything that Start started and removes what it made.
func (w *World) Stop() error {
	if w.stopWork != nil {
		w.stopWork()
		<-w.workDone
	}
	if w.QStash != nil {
		w.QStash.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	for _, s := range w.servers {
		_ = s.Shutdown(ctx) // what hangs is cut off below
		_ = s.Close()
	}
	if w.client != nil {
		_ = w.client.Close() // the server goes too
	}
	if w.redis != nil {
		w.redis.Close()
	}
	for _, db := range w.roles {
		db.Close()
	}
	if w.pool != nil {
		w.pool.Close()
	}
	if w.pg != nil {
		return w.pg.Stop()
	}
	return nil
}
