package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// start is when every world begins.
var start = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

// cell is one subscription of one address: the unit of order.
type cell struct{ brand, product, email string }

// item is one thing that a seed decided beforehand: it can be left out.
type item struct {
	id int
	at time.Duration // from the start
	do any           // decision, act, fault
}

// decision is what a client sends to intake.
type decision struct {
	cell
	state    string
	key      string // idempotency key
	contact  string // the client's key of the person
	spelling string // of the address
	occurred *time.Duration
	again    int  // how often it is sent once more although it was answered
	forged   bool // the key comes back with another body
	bulk     bool // of an import
}

// act is something that happens inside HubSpot.
type act struct {
	kind string // optout, wide, subscribe
	cell
	unit int64 // wide: the brand's, or 0
}

// plan is a seed's script.
type plan struct {
	seed  uint64
	items []item
	skews map[string]time.Duration // of a stage's clock, or HubSpot's
	// alone: the only trouble is one address's, or one portal's. Everybody else must not
	// notice.
	alone *fault
	quiet time.Duration // when faults and traffic are over
}

// place is a product that a world has.
type place struct {
	brand, product, portal string
	subscription, unit     int64
}

var places = []place{
	{"acme", "news", "main", 5, 7}, {"acme", "plain", "main", 6, 7}, {"bolt", "tips", "main", 8, 9}, {"coda", "digest", "other", 15, 17},
}

func placeOf(brand, product string) place {
	return places[slices.IndexFunc(places, func(p place) bool { return p.brand == brand && p.product == product })]
}

// writer draws a plan.
type writer struct {
	r     *rand.Rand
	plan  plan
	keys  []decision // sent before, to be sent again
	cells []cell     // hot first
}

// newPlan draws the script of a seed, without the items that are dropped.
func newPlan(seed uint64, drop []int) plan {
	w := &writer{r: rand.New(rand.NewPCG(seed, 1)), plan: plan{seed: seed, skews: map[string]time.Duration{}}}
	w.drawCells()
	w.plan.quiet = w.between(2*time.Minute, 25*time.Minute)
	for range 8 + w.r.IntN(26) {
		w.decision()
	}
	for range w.r.IntN(5) {
		w.act()
	}
	if seed%8 == 0 {
		w.trouble()
	} else {
		for range w.r.IntN(16) {
			w.fault()
		}
	}
	if w.plan.alone == nil && w.r.IntN(4) == 0 {
		w.plan.skews[[]string{"worker", "relay", "check", "hubspot"}[w.r.IntN(4)]] = w.between(-3*time.Second, 3*time.Second)
	}
	for i := range w.plan.items {
		w.plan.items[i].id = i
	}
	w.plan.items = slices.DeleteFunc(w.plan.items, func(i item) bool { return slices.Contains(drop, i.id) })
	return w.plan
}

func (w *writer) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.r.Int64N(int64(to-from))).Truncate(time.Microsecond)
}

func (w *writer) add(at time.Duration, do any) {
	w.plan.items = append(w.plan.items, item{at: at, do: do})
}

func (w *writer) drawCells() {
	for i := range 2 + w.r.IntN(6) {
		email := fmt.Sprintf("canary%d@example.com", i)
		for _, p := range places {
			if w.r.IntN(3) > 0 {
				w.cells = append(w.cells, cell{p.brand, p.product, email})
			}
		}
	}
	if len(w.cells) == 0 {
		w.cells = []cell{{"acme", "news", "canary0@example.com"}}
	}
	w.r.Shuffle(len(w.cells), func(i, j int) { w.cells[i], w.cells[j] = w.cells[j], w.cells[i] })
}

// cell draws a subscription: every second time the hot one.
func (w *writer) cell() cell {
	if w.r.IntN(2) == 0 {
		return w.cells[0]
	}
	return w.cells[w.r.IntN(len(w.cells))]
}

// moment draws a time of the traffic: mostly in one of three bursts.
func (w *writer) moment() time.Duration {
	if w.r.IntN(3) == 0 {
		return w.between(0, w.plan.quiet)
	}
	burst := w.plan.quiet * time.Duration(w.r.IntN(3)) / 3
	return burst + w.between(0, 2*time.Second)
}

func (w *writer) decision() {
	d := decision{cell: w.cell(), state: "subscribed", key: fmt.Sprint("key-", len(w.keys)), again: max(w.r.IntN(6)-3, 0)}
	if w.r.IntN(5) < 2 {
		d.state = "unsubscribed"
	}
	at := w.moment()
	name, _, _ := strings.Cut(d.email, "@")
	d.contact = fmt.Sprint(name, "-", w.r.IntN(2)) // several customer records are one address
	d.spelling = d.email
	if w.r.IntN(4) == 0 {
		d.spelling = " " + strings.ToUpper(d.email[:1]) + d.email[1:] + " "
	}
	d.bulk = w.r.IntN(6) == 0
	switch w.r.IntN(8) {
	case 0, 1: // undated
	case 2: // late by up to an hour
		d.occurred = ptr(at - w.between(0, time.Hour))
	case 3: // as old as another one
		if len(w.keys) > 0 {
			d.occurred = w.keys[w.r.IntN(len(w.keys))].occurred
		}
	case 4: // a client's clock that is ahead
		d.occurred = ptr(at + w.between(0, 5*time.Minute))
	default:
		d.occurred = ptr(at - w.between(0, 3*time.Second))
	}
	w.keys = append(w.keys, d)
	w.add(at, d)
	if w.r.IntN(12) == 0 && !d.bulk {
		d.forged = true
		w.add(at+w.between(time.Minute, 2*time.Minute), d)
	}
}

func ptr[T any](v T) *T { return &v }

func (w *writer) act() {
	a := act{kind: "optout", cell: w.cell()}
	switch w.r.IntN(6) {
	case 0:
		a.kind, a.unit = "wide", 0
	case 1:
		a.kind, a.unit = "wide", placeOf(a.brand, a.product).unit
	case 2:
		a.kind = "subscribe"
	}
	w.add(w.moment(), a)
}

// trouble makes the plan's only fault one that belongs to somebody.
func (w *writer) trouble() {
	f := &fault{kind: []string{"poison", "token revoked", "pause", "portal away"}[w.r.IntN(4)], portal: "main", lasts: w.plan.quiet, email: w.cells[0].email}
	w.plan.alone = f
	w.add(0, f)
}
