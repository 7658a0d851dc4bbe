// Package qstashtest is a QStash that runs on this machine: the real wire protocol on a
// real socket. It publishes, batches, enqueues, deduplicates, delivers with a fresh
// signature per attempt, retries with QStash's delays, limits per flow-control key,
// keeps a dead-letter queue, calls back, and misbehaves on command.
package qstashtest

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The public development values: a client that knows QStash's own development server
// works with this one.
const (
	DefaultToken      = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0="
	DefaultCurrentKey = "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r"
	DefaultNextKey    = "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs"
)

const (
	defaultDedupWindow = 10 * time.Minute
	freeParallelism    = 100 // deliveries in flight without a flow-control key
	keptEvents         = 2000
)

// Options say how the server behaves. The zero value is QStash's development server.
type Options struct {
	Token, CurrentKey, NextKey string
	DedupWindow                time.Duration // 10 minutes by the documents, 90 days by an SDK's comment
	Client                     *http.Client  // makes the deliveries
	Clock                      Clock
	Seed                       uint64 // of the faults' randomness
	// Go starts a delivery; default: a goroutine. A simulation starts one when its turn
	// comes. It is called under the server's lock.
	Go func(func())
}

// Clock is the server's time: the machine's, or one that a test moves.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Server is a QStash.
type Server struct {
	opts   Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // deliveries in flight

	mu       sync.Mutex
	random   *rand.Rand
	faults   Faults
	messages map[string]*message  // alive
	dedup    map[string]dedupSeen // by id
	flows    map[string]*flow
	dlq      []*message
	events   []logEntry
	keys     [2]string
	timers   map[*message]func() bool
	stats    Stats
	closed   bool
}

type dedupSeen struct {
	messageID string
	until     time.Time
}

// Stats count what happened.
type Stats struct {
	Published, Deduplicated, Delivered, Attempts, Retried, Dead, InFlight, Waiting int
}

// New returns a server; Close ends its deliveries.
func New(o Options) *Server {
	setDefault(&o.Token, DefaultToken)
	setDefault(&o.CurrentKey, DefaultCurrentKey)
	setDefault(&o.NextKey, DefaultNextKey)
	setDefault(&o.DedupWindow, defaultDedupWindow)
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	if o.Go == nil {
		o.Go = func(f func()) { go f() }
	}
	client := *o.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &client
	s := &Server{
		opts: o, random: rand.New(rand.NewPCG(o.Seed, 1)), messages: map[string]*message{}, dedup: map[string]dedupSeen{},
		flows: map[string]*flow{}, timers: map[*message]func() bool{}, keys: [2]string{o.CurrentKey, o.NextKey},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Close stops all deliveries and waits for those in flight to end.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, stop := range s.timers {
		stop()
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// Idle reports whether nothing is waiting or in flight.
func (s *Server) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages) == 0
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	for _, f := range s.flows {
		st.InFlight += f.inFlight
	}
	st.Waiting = len(s.messages) - st.InFlight
	return st
}

// Handler serves QStash's API. It routes on the raw request URI: the standard mux would
// redirect /v2/publish/https://….
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path, rawQuery, _ := strings.Cut(r.RequestURI, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		query = url.Values{}
	}
	if strings.HasPrefix(path, "/__emu/") {
		s.admin(w, r, path)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+s.opts.Token {
		fail(w, http.StatusUnauthorized, "unauthorized: invalid token")
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64*maxBodySize))
	if err != nil {
		fail(w, http.StatusBadRequest, "the body could not be read")
		return
	}
	c := &call{server: s, w: w, r: r, path: strings.TrimPrefix(path, "/v2"), query: query, body: body}
	c.route()
}

// call is one request to the API.
type call struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	path   string // without /v2
	query  url.Values
	body   []byte
}

func (c *call) route() {
	prefix := func(p string) (string, bool) { return strings.CutPrefix(c.path, p) }
	switch method := c.r.Method; {
	case c.path == "/batch" && method == http.MethodPost:
		c.batch()
	case c.path == "/keys" && method == http.MethodGet, (c.path == "/keys/rotate" || c.path == "/rotate") && method == http.MethodPost:
		c.keys()
	case c.path == "/events" && method == http.MethodGet:
		c.logs("events")
	case c.path == "/logs" && method == http.MethodGet:
		c.logs("logs")
	case c.path == "/dlq" || strings.HasPrefix(c.path, "/dlq/"):
		c.dlq()
	case c.path == "/messages" || strings.HasPrefix(c.path, "/messages/"):
		c.messages()
	case c.path == "/globalParallelism" && method == http.MethodGet:
		c.globalParallelism()
	case c.path == "/flowControl" || strings.HasPrefix(c.path, "/flowControl/"):
		c.flowControl()
	default:
		if destination, ok := prefix("/publish/"); ok && method == http.MethodPost {
			c.publish(destination, "")
			return
		}
		if rest, ok := prefix("/enqueue/"); ok && method == http.MethodPost {
			queue, destination, _ := strings.Cut(rest, "/")
			c.publish(destination, queue)
			return
		}
		fail(c.w, http.StatusNotFound, "not found")
	}
}
