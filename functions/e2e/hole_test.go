package e2e

import (
	"net"
	"sync"
	"testing"
	"time"
)

// hole is a road to a TCP server that can lose connections without a word, as a NAT or a
// proxy does while a function is frozen: what is sent goes nowhere, nothing comes back.
type hole struct {
	addr   string // where to connect
	target string

	mu        sync.Mutex
	roads     []*road
	swallowed bool
}

// road is one connection; lost: it carries nothing any more.
type road struct {
	client, server net.Conn
	mu             sync.Mutex
	lost, closed   bool
}

func dig(t testing.TB, target string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{addr: l.Addr().String(), target: target}
	t.Cleanup(func() {
		l.Close()
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, r := range h.roads {
			r.close()
		}
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			h.open(client)
		}
	}()
	return h
}

func (h *hole) open(client net.Conn) {
	server, err := net.DialTimeout("tcp", h.target, time.Second)
	if err != nil {
		client.Close()
		return
	}
	h.mu.Lock()
	r := &road{client: client, server: server, lost: h.swallowed}
	h.roads = append(h.roads, r)
	h.mu.Unlock()
	go r.carry(server, client)
	go r.carry(client, server)
}

// carry copies one direction. A lost road swallows bytes and tells nobody of its end.
func (r *road) carry(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if r.isLost() {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			r.close()
			return
		}
	}
}

func (r *road) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.client.Close()
	r.server.Close()
}

// swallow makes new connections carry nothing either.
func (h *hole) swallow(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.swallowed = on
}

// count returns how many connections are open.
func (h *hole) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, r := range h.roads {
		r.mu.Lock()
		if !r.lost && !r.closed {
			n++
		}
		r.mu.Unlock()
	}
	return n
}

func (r *road) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// lose makes every road that is open carry nothing any more, and returns how many.
// New connections work.
func (h *hole) lose() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, r := range h.roads {
		r.mu.Lock()
		if !r.lost && !r.closed {
			r.lost = true
			n++
		}
		r.mu.Unlock()
	}
	return n
}
