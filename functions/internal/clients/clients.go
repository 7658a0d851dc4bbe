// Package clients makes, from a function's configuration, the clients that it works
// with. Each function calls for what it may touch, and nothing else.
package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"hubsync/functions/internal/rdsca"
	"hubsync/shared/budget"
	"hubsync/shared/config"
	"hubsync/shared/hubspot"
	"hubsync/shared/postgres"
	"hubsync/shared/qstash"
	"hubsync/shared/telemetry"
	"hubsync/shared/worker"
)

// Set is what the functions share: the reader of the environment and the clients that
// several of them need.
type Set struct {
	*config.Reader
	Logger  *slog.Logger
	getenv  func(string) string
	store   *config.Store
	idle    time.Duration
	closers []func()
}

// New returns a set over the process's environment.
func New() *Set {
	getenv := os.Getenv
	s := &Set{Logger: lambdacontext.NewLogger(), getenv: getenv, store: config.NewStore(fetchSecret, time.Now)}
	s.Reader = config.NewReader(getenv, s.store)
	// How long a frozen function's connections are trusted: below what the network between
	// forgets (a NAT gateway 350 s, RDS Proxy its idle client timeout).
	s.idle = time.Duration(s.Int("IDLE_BOUND_SECONDS", 60, 1, 3600)) * time.Second
	return s
}

// Meter returns the meter of the function's measurements: standard output, which Lambda
// sends to CloudWatch. The environment's name is read here too, for every function has it.
func (s *Set) Meter() *telemetry.Meter {
	return telemetry.NewMeter(os.Stdout, s.Text("HUBSYNC_ENV", "unknown"), time.Now)
}

// Secrets returns the store of secrets by ARN, for what reads its configuration itself.
func (s *Set) Secrets() *config.Store { return s.store }

// Fatal ends the process with every problem named: Lambda shows it as a failed init.
func (s *Set) Fatal(err error) {
	s.Logger.Error("function does not start", "error", err.Error())
	os.Exit(1)
}

// Start serves invocations until the environment ends. Lambda tells it by SIGTERM, and
// kills half a second later: the connections are closed, so that nothing at their other
// end has to find out by itself.
func (s *Set) Start(handler any) {
	lambda.StartWithOptions(handler, lambda.WithEnableSIGTERM(func() {
		for _, c := range s.closers {
			c()
		}
		os.Exit(0)
	}))
}

// awsConfig is Lambda's own: region and credentials from the environment. The library that
// loads a configuration from everywhere else, with its single sign-on and its instance
// metadata, made up two megabytes of every function.
func awsConfig() (aws.Config, error) {
	cfg := aws.Config{Region: os.Getenv("AWS_REGION"), Credentials: aws.CredentialsProviderFunc(environmentCredentials)}
	if cfg.Region == "" {
		return aws.Config{}, errors.New("AWS_REGION is not set; Lambda sets it")
	}
	return cfg, nil
}

func environmentCredentials(context.Context) (aws.Credentials, error) {
	c := aws.Credentials{
		AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken: os.Getenv("AWS_SESSION_TOKEN"), Source: "environment",
	}
	if !c.HasKeys() {
		return aws.Credentials{}, errors.New("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set; Lambda sets them from the function's role")
	}
	return c, nil
}

// secretsEndpoint is where a local Secrets Manager stands in for AWS's.
const secretsEndpoint = "AWS_ENDPOINT_URL_SECRETS_MANAGER"

// secretTimeout is what a secret may take: an invocation waits for it.
const secretTimeout = 3 * time.Second

func fetchSecret(ctx context.Context, arn string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	cfg, err := awsConfig()
	if err != nil {
		return "", err
	}
	client := secretsmanager.NewFromConfig(cfg, func(o *secretsmanager.Options) {
		if local := os.Getenv(secretsEndpoint); local != "" {
			o.BaseEndpoint = &local
		}
	})
	out, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &arn})
	if err != nil {
		return "", err
	}
	if out.SecretString == nil {
		return "", errors.New("it holds bytes, not text")
	}
	return *out.SecretString, nil
}

// Database opens the pool; the configuration must have been checked.
func (s *Set) Database(ctx context.Context, d config.Database) (*postgres.DB, error) {
	cfg := postgres.Config{}
	if d.UsesURL {
		text, err := d.URL.Get(ctx)
		if err != nil {
			return nil, err
		}
		cfg.URL, cfg.RequireTLS = text, true
		if d.URL.Stored() {
			cfg.Current, cfg.Refused = d.URL.Get, d.URL.Refused
		}
	} else {
		u, err := databaseURL(d)
		if err != nil {
			return nil, err
		}
		cfg.URL, cfg.Password = u.String(), databasePassword(d)
		if d.UsesPassword && d.Password.Stored() {
			cfg.Refused = d.Password.Refused
		}
	}
	pool, err := postgres.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	db := postgres.New(pool)
	db.SetIdleBound(s.idle)
	s.closers = append(s.closers, db.Close)
	return db, nil
}

// databaseURL is the URL without a password. The proxy's certificate is from a public root;
// the database's own, which a password leads to, is from one of RDS.
func databaseURL(d config.Database) (*url.URL, error) {
	query := url.Values{"sslmode": {"verify-full"}}
	if d.UsesPassword && os.Getenv("PGSSLROOTCERT") == "" {
		file, err := rdsca.File()
		if err != nil {
			return nil, err
		}
		query.Set("sslrootcert", file)
	}
	return &url.URL{
		Scheme: "postgres", User: url.User(d.User), Host: d.Host + ":" + strconv.Itoa(d.Port), Path: "/" + d.Name, RawQuery: query.Encode(),
	}, nil
}

// databasePassword returns what gives every new connection its password.
func databasePassword(d config.Database) func(context.Context, string, uint16, string) (string, error) {
	if !d.UsesPassword {
		return iamToken(d.Region)
	}
	return func(ctx context.Context, _ string, _ uint16, _ string) (string, error) {
		text, err := d.Password.Get(ctx)
		if err != nil || !strings.HasPrefix(text, "{") {
			return text, err
		}
		var kept struct {
			Password string `json:"password"`
		}
		if json.Unmarshal([]byte(text), &kept) != nil || kept.Password == "" {
			return "", errors.New("the database's secret is JSON without a member password: put {\"password\":…} into it")
		}
		return kept.Password, nil
	}
}

// iamToken signs a password for every new connection; it is good for 15 minutes and
// made on this machine.
func iamToken(region string) func(context.Context, string, uint16, string) (string, error) {
	return func(ctx context.Context, host string, port uint16, user string) (string, error) {
		cfg, err := awsConfig()
		if err != nil {
			return "", err
		}
		return auth.BuildAuthToken(ctx, host+":"+strconv.Itoa(int(port)), region, user, cfg.Credentials)
	}
}

// Budget opens Redis and returns the limiter.
func (s *Set) Budget(ctx context.Context, redisURL config.Value, env, scriptPrefix string) (*budget.Limiter, error) {
	text, err := redisURL.Get(ctx)
	if err != nil {
		return nil, err
	}
	client, err := budget.OpenIdle(text, s.idle)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = client.Close() }) // the process ends
	return budget.NewLimiter(budget.Config{
		Redis: client, Prefix: "hubsync:" + env + ":", ScriptPrefix: scriptPrefix, Clock: time.Now, Random: rand.Float64,
	}), nil
}

// Bearer returns a client for a service that takes a bearer token, and the token to give
// to the service's own client: a rotation needs no restart and fails no call.
func (s *Set) Bearer(db *postgres.DB, name string, token config.Value) (*http.Client, func(context.Context) (string, error)) {
	t := newTokens(name, token, time.Now, s.Logger)
	client := s.HTTPClient(db)
	client.Transport = &rotating{base: client.Transport, tokens: t}
	return client, t.Get
}

// HTTPClient returns a client whose idle connections go when the database's do: a call
// over one that was lost while the function was frozen would wait for its whole timeout.
func (s *Set) HTTPClient(db *postgres.DB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	db.OnThaw(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// HubSpot returns a function that makes each portal's client once. A portal's token is
// read when its first event comes, so that a new portal needs no deployment of the
// others.
func (s *Set) HubSpot(db *postgres.DB, limiter *budget.Limiter, baseURL string) func(string) (*hubspot.Client, error) {
	var mu sync.Mutex
	made := map[string]*hubspot.Client{}
	return func(id string) (*hubspot.Client, error) {
		mu.Lock()
		defer mu.Unlock()
		if c := made[id]; c != nil {
			return c, nil
		}
		portal, err := findPortal(db, id)
		if err != nil {
			return nil, err
		}
		r := config.NewReader(s.getenv, s.store)
		secret := r.HubSpotToken(id)
		if err := r.Err(); err != nil {
			return nil, err
		}
		httpClient, token := s.Bearer(db, config.HubSpotTokenName(id), secret)
		c, err := hubspot.New(hubspot.Config{
			Portal: id, BaseURL: baseURL, Version: portal.APIVersion, Token: token, Clock: time.Now,
			HTTPClient: httpClient, OnResponse: worker.Feedback(limiter, id, s.Logger),
		})
		if err == nil {
			made[id] = c
		}
		return c, err
	}
}

const portalTimeout = 5 * time.Second

func findPortal(db *postgres.DB, id string) (postgres.Portal, error) {
	ctx, cancel := context.WithTimeout(context.Background(), portalTimeout)
	defer cancel()
	portals, err := db.Portals(ctx)
	if err != nil {
		return postgres.Portal{}, err
	}
	for _, p := range portals {
		if p.ID == id {
			return p, nil
		}
	}
	return postgres.Portal{}, fmt.Errorf("portal %s is not in hubspot_portals", id)
}

// Verifier checks deliveries under the QStash signing keys, asked for at every one. A
// refused signature makes them fetched anew: both keys may have been rotated.
func Verifier(current, next config.Value) *qstash.Verifier {
	v := qstash.NewVerifier(qstash.ReadKeys(current.Get, next.Get), time.Now)
	v.OnRefused(func() bool {
		again, too := current.Refused(), next.Refused()
		return again || too
	})
	return v
}

// DirectURL is the database's URL with a password in it, for a migration.
func (s *Set) DirectURL(ctx context.Context, d config.Database) (string, error) {
	if d.UsesURL {
		return d.URL.Get(ctx)
	}
	password, err := databasePassword(d)(ctx, d.Host, uint16(d.Port), d.User)
	if err != nil {
		return "", err
	}
	u, err := databaseURL(d)
	if err != nil {
		return "", err
	}
	u.User = url.UserPassword(d.User, password)
	return u.String(), nil
}

// RedisScriptPrefix reads REDIS_KIND: upstash runs the budget's script with its own
// lock, plain Redis refuses the flag for it.
func (s *Set) RedisScriptPrefix() string {
	if s.OneOf("REDIS_KIND", "redis", "redis", "upstash") == "upstash" {
		return budget.UpstashPrefix
	}
	return ""
}
