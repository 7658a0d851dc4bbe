// Package console serves the operators' verbs to a browser: live health, search, an
// event's timeline, and replay and pause with a confirmation. It listens on the loopback,
// runs every verb through one function (here, or through a stack's admin function, so that
// no browser needs credentials of a cloud), and shows no e-mail address. Pages are
// rendered here; what the script does on top of them is to keep them fresh.
package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"time"

	"hubsync/shared/ops"
)

//go:embed assets
var assets embed.FS

// Config says what the console works on. Serve and Clock are required.
type Config struct {
	// Serve runs one verb.
	Serve func(context.Context, ops.Request) ops.Response
	By    string // who sits before it, for the audit
	What  string // what is looked at: a stack's name, or "this machine"
	Clock func() time.Time
}

// Console is an http.Handler.
type Console struct {
	cfg     Config
	token   string // of every form: another site's page cannot know it
	pages   *template.Template
	mux     *http.ServeMux
	history history
}

// New returns a console. Call Run beside it to fill its charts.
func New(cfg Config) (*Console, error) {
	if cfg.Serve == nil || cfg.Clock == nil {
		return nil, errors.New("console: Serve and Clock are required")
	}
	c := &Console{cfg: cfg, token: rand.Text(), mux: http.NewServeMux()}
	var err error
	if c.pages, err = template.New("").Funcs(functions).ParseFS(assets, "assets/*.html"); err != nil {
		return nil, fmt.Errorf("console: read the pages: %w", err)
	}
	c.mux.HandleFunc("GET /{$}", c.health)
	c.mux.HandleFunc("GET /live", c.live)
	c.mux.HandleFunc("GET /events", c.search)
	c.mux.HandleFunc("GET /events/{id}", c.event)
	c.mux.HandleFunc("GET /audit", c.audit)
	c.mux.HandleFunc("POST /ask", c.ask)
	c.mux.HandleFunc("POST /do", c.act)
	c.mux.HandleFunc("GET /assets/{name}", c.asset)
	return c, nil
}

// policy lets a page load nothing but its own style and script, and send forms nowhere
// else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

const mostForm = 64 << 10

// ServeHTTP refuses what does not come from a page of its own on this machine.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if !isLoopback(r.Host) {
		// A page of another site whose name was pointed at this machine (DNS rebinding).
		http.Error(w, "the console answers to localhost and 127.0.0.1 only", http.StatusMisdirectedRequest)
		return
	}
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if subtle.ConstantTimeCompare([]byte(r.PostFormValue("token")), []byte(c.token)) != 1 || r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			http.Error(w, "the form is not of this console, or of an earlier start of it: load the page again", http.StatusForbidden)
			return
		}
	}
	c.mux.ServeHTTP(w, r)
}

// isLoopback reports whether a Host header names this machine itself.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch host {
	case "localhost", "127.0.0.1", "::1", "[::1]":
		return true
	}
	return false
}

func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	switch name := r.PathValue("name"); name {
	case "style.css", "live.js":
		http.ServeFileFS(w, r, assets, "assets/"+name)
	default:
		http.NotFound(w, r)
	}
}
