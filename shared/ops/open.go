package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"hubsync/shared/budget"
	"hubsync/shared/config"
	"hubsync/shared/hubspot"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/worker"
)

// Environment is what Open reads the configuration from.
type Environment struct {
	Getenv  func(string) string
	Secrets *config.Store // nil: secrets given by ARN cannot be fetched here
	// Database opens the database; nil: by the URL of DATABASE_URL.
	Database func(context.Context, config.Database) (*postgres.DB, error)
	Logger   *slog.Logger
}

// Open makes the verbs from the environment, with the variables that the functions read.
// It never fails: what is missing or malformed is kept, told by the verbs that need it,
// and listed by Doctor.
func Open(ctx context.Context, e Environment) *Ops {
	opening := &opening{Environment: e}
	cfg := Config{Clock: time.Now, Env: e.Getenv("HUBSYNC_ENV")}
	opening.section("configuration", "set it as README, 'Configuration of the functions', says", func(r *config.Reader) error { r.Env(); return r.Err() })
	opening.database(ctx, &cfg)
	client := opening.redis(ctx, &cfg)
	opening.qstash(&cfg)
	opening.hubspot(&cfg)
	o := New(cfg)
	o.cfg.Checks = append(opening.checks, o.checks(client)...)
	return o
}

// opening collects what cannot be opened.
type opening struct {
	Environment
	checks []Check
}

// section reads a part of the configuration; what is wrong with it becomes a check that
// fails.
func (o *opening) section(name, fix string, read func(*config.Reader) error) {
	if err := read(config.NewReader(o.Getenv, o.Secrets)); err != nil {
		o.checks = append(o.checks, Check{Name: name, Fix: fix, Run: func(context.Context) (string, error) { return "", err }})
	}
}

func (o *opening) database(ctx context.Context, cfg *Config) {
	o.section("database", "set DATABASE_URL, or PGHOST, PGPORT, PGDATABASE, PGUSER and AWS_REGION with DB_IAM_AUTH=true", func(r *config.Reader) (err error) {
		d := r.Database()
		if err := r.Err(); err != nil {
			return err
		}
		if o.Database != nil {
			cfg.DB, err = o.Database(ctx, d)
			return err
		}
		if !d.UsesURL {
			return errors.New("DB_IAM_AUTH needs the admin function: use --stack NAME, or set DATABASE_URL")
		}
		url, err := d.URL.Get(ctx)
		if err != nil {
			return err
		}
		pool, err := postgres.Open(ctx, postgres.Config{URL: url})
		if err != nil {
			return err
		}
		cfg.DB = postgres.New(pool)
		return nil
	})
}

func (o *opening) redis(ctx context.Context, cfg *Config) *redis.Client {
	var client *redis.Client
	o.section("redis", "set REDIS_URL, such as rediss://default:password@host:6379", func(r *config.Reader) error {
		value := r.Secret("REDIS_URL", true)
		kind := r.OneOf("REDIS_KIND", "redis", "redis", "upstash")
		if err := r.Err(); err != nil {
			return err
		}
		url, err := value.Get(ctx)
		if err != nil {
			return err
		}
		if client, err = budget.Open(url); err != nil {
			return err
		}
		prefix := ""
		if kind == "upstash" {
			prefix = budget.UpstashPrefix
		}
		cfg.Budget = budget.NewLimiter(budget.Config{
			Redis: client, Prefix: "hubsync:" + cfg.Env + ":", ScriptPrefix: prefix, Clock: time.Now, Random: rand.Float64,
		})
		return nil
	})
	return client
}

func (o *opening) qstash(cfg *Config) {
	o.section("qstash", "set QSTASH_TOKEN, and QSTASH_URL where it is not the usual one", func(r *config.Reader) error {
		token, url := r.Secret("QSTASH_TOKEN", true), r.URL("QSTASH_URL", qstash.DefaultBaseURL)
		if err := r.Err(); err != nil {
			return err
		}
		var err error
		cfg.QStash, err = qstash.New(qstash.Config{BaseURL: url, Token: token.Get})
		return err
	})
	o.section("qstash keys", "set QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY", func(r *config.Reader) error {
		current, next := r.Secret("QSTASH_CURRENT_SIGNING_KEY", true), r.Secret("QSTASH_NEXT_SIGNING_KEY", true)
		if err := r.Err(); err != nil {
			return err
		}
		cfg.Keys = qstash.ReadKeys(current.Get, next.Get)
		return nil
	})
}

// hubspot gives every portal a client; its token is read when it is asked for.
func (o *opening) hubspot(cfg *Config) {
	base := hubspot.DefaultBaseURL
	o.section("hubspot", "set HUBSPOT_BASE_URL to an absolute URL, or leave it out", func(r *config.Reader) error {
		base = r.URL("HUBSPOT_BASE_URL", hubspot.DefaultBaseURL)
		return r.Err()
	})
	transport := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	limiter := cfg.Budget
	cfg.Client = func(id, version string) (*hubspot.Client, error) {
		r := config.NewReader(o.Getenv, o.Secrets)
		token := r.HubSpotToken(id)
		if err := r.Err(); err != nil {
			return nil, fmt.Errorf("portal %s: %w", id, err)
		}
		c := hubspot.Config{Portal: id, BaseURL: base, Version: version, Token: token.Get, Clock: time.Now, HTTPClient: transport}
		if limiter != nil {
			c.OnResponse = worker.Feedback(limiter, id, o.Logger)
		}
		return hubspot.New(c)
	}
}
