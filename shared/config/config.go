// Package config reads what the Lambda functions need from their environment. Every
// variable that is missing or malformed is named at once, and nothing is read later:
// the components get values. A secret may be given as NAME or, by the ARN of one in
// Secrets Manager, as NAME_SECRET_ARN.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Reader reads variables and collects what is wrong with them.
type Reader struct {
	getenv   func(string) string
	store    *Store
	problems []error
}

// NewReader returns a reader over an environment; store serves the …_SECRET_ARN forms.
func NewReader(getenv func(string) string, store *Store) *Reader {
	return &Reader{getenv: getenv, store: store}
}

// Err names every problem that was met, or is nil.
func (r *Reader) Err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return fmt.Errorf("configuration: %w", errors.Join(r.problems...))
}

func (r *Reader) say(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...))
}

// Text returns a variable, or fallback where it is not set.
func (r *Reader) Text(name, fallback string) string {
	if v := r.getenv(name); v != "" {
		return v
	}
	return fallback
}

// Required returns a variable that must be set.
func (r *Reader) Required(name string) string {
	v := r.getenv(name)
	if v == "" {
		r.say("%s is not set", name)
	}
	return v
}

// Int returns a whole number between low and high.
func (r *Reader) Int(name string, fallback, low, high int) int {
	text := r.getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		r.say("%s: %q is not a whole number from %d to %d", name, text, low, high)
		return fallback
	}
	return n
}

// URL returns an absolute http or https URL. Its text is kept as given, because a
// signature's subject is compared with it to the letter.
func (r *Reader) URL(name, fallback string) string {
	text := r.Text(name, fallback)
	if text == "" {
		r.say("%s is not set", name)
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil {
		r.say("%s is not an absolute http(s) URL without user information", name)
	}
	return text
}

// Secret returns NAME, or what NAME_SECRET_ARN refers to. A required one must be
// given in one of the two forms, and none in both.
func (r *Reader) Secret(name string, required bool) Value {
	plain, arn := r.getenv(name), r.getenv(name+"_SECRET_ARN")
	switch {
	case plain != "" && arn != "":
		r.say("%s and %s_SECRET_ARN are both set: give one of them", name, name)
	case arn != "" && !strings.HasPrefix(arn, "arn:"):
		r.say("%s_SECRET_ARN does not begin with arn:", name)
	case arn != "" && r.store == nil:
		r.say("%s_SECRET_ARN is set, but no secret store can be reached here", name)
	case plain == "" && arn == "" && required:
		r.say("neither %s nor %s_SECRET_ARN is set", name, name)
	}
	return Value{plain: Secret(plain), arn: arn, store: r.store}
}

var environmentName = regexp.MustCompile(`^[a-z0-9_.-]{1,40}$`)

// Env returns HUBSYNC_ENV: it stands in flow-control keys and in the marker of our
// own opt-outs, so that two environments in one account do not meet.
func (r *Reader) Env() string {
	env := r.Required("HUBSYNC_ENV")
	if env != "" && !environmentName.MatchString(env) {
		r.say("HUBSYNC_ENV: %q: use 1 to 40 of a-z 0-9 _ . -", env)
	}
	return env
}

// Database says how to reach PostgreSQL: a URL, or PGHOST… with an IAM token or a
// secret's password as the password of every new connection.
type Database struct {
	URL     Value
	UsesURL bool
	Host    string
	Port    int
	Name    string
	User    string
	Region  string
	// Password is used where UsesPassword: text, or JSON with a member password as RDS
	// keeps it. Asked for at every new connection, because RDS rotates it.
	Password     Value
	UsesPassword bool
}

// Database reads DATABASE_URL (or its ARN form); or PGHOST, PGPORT, PGDATABASE and PGUSER
// together with DB_IAM_AUTH=true and AWS_REGION, or with DB_PASSWORD (or its ARN form).
func (r *Reader) Database() Database {
	iam := r.OneOf("DB_IAM_AUTH", "false", "true", "false") == "true"
	password := r.getenv("DB_PASSWORD") != "" || r.getenv("DB_PASSWORD_SECRET_ARN") != ""
	if !iam && !password {
		return Database{URL: r.Secret("DATABASE_URL", true), UsesURL: true}
	}
	d := Database{
		Host: r.Required("PGHOST"), Port: r.Int("PGPORT", 5432, 1, 65535), Name: r.Required("PGDATABASE"), User: r.Required("PGUSER"),
	}
	if iam {
		d.Region = r.Required("AWS_REGION")
		return d
	}
	d.Password, d.UsesPassword = r.Secret("DB_PASSWORD", true), true
	return d
}

// WorkerURL returns HUBSPOT_WORKER_URL, to which the relay publishes, to the letter. It may
// be left out where the worker runs behind its own function URL: then the region in which
// that URL is comes instead.
func (r *Reader) WorkerURL() (text, region string) {
	if r.getenv("HUBSPOT_WORKER_URL") != "" {
		return r.URL("HUBSPOT_WORKER_URL", ""), ""
	}
	if region = r.getenv("AWS_REGION"); region == "" {
		r.say("HUBSPOT_WORKER_URL is not set, and without AWS_REGION there is no function URL to take instead")
	}
	return "", region
}

var portalVariable = regexp.MustCompile(`[^A-Z0-9]`)

// HubSpotToken returns the token of a portal: HUBSPOT_TOKEN_<PORTAL> (or its ARN form), the
// id in upper case with everything but letters and digits as _; else the secret named
// HUBSPOT_TOKEN_SECRET_PREFIX and the id, so that a new portal needs no deployment.
func (r *Reader) HubSpotToken(portalID string) Value {
	name, prefix := HubSpotTokenName(portalID), r.getenv("HUBSPOT_TOKEN_SECRET_PREFIX")
	if prefix != "" && r.store != nil && r.getenv(name) == "" && r.getenv(name+"_SECRET_ARN") == "" {
		return Value{arn: prefix + portalID, store: r.store}
	}
	return r.Secret(name, true)
}

// HubSpotTokenName is the variable that holds a portal's token.
func HubSpotTokenName(portalID string) string {
	return "HUBSPOT_TOKEN_" + portalVariable.ReplaceAllString(strings.ToUpper(portalID), "_")
}

// OneOf returns a variable that must be one of the choices.
func (r *Reader) OneOf(name, fallback string, choices ...string) string {
	text := r.Text(name, fallback)
	if !slices.Contains(choices, text) {
		r.say("%s: %q is not one of %s", name, text, strings.Join(choices, ", "))
	}
	return text
}
