package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// Change is one line of a changes file: a request, and the status that it must get.
type Change struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Expect  int               `json:"expect"`
}

// decision is what a change's body says, as far as the demo needs it.
type decision struct {
	ContactKey   string `json:"contactKey"`
	Email        string `json:"email"`
	ProductID    string `json:"productId"`
	DesiredState string `json:"desiredState"`
	OccurredAt   string `json:"occurredAt"`
}

// maxLine is more than the largest body that intake takes.
const maxLine = 1 << 20

// ReadChanges reads a changes file, one JSON object a line.
func ReadChanges(content []byte) ([]Change, error) {
	var changes []Change
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var c Change
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("changes file, line %d: %w", n, err)
		}
		if c.Method == "" || !strings.HasPrefix(c.Path, "/") {
			return nil, fmt.Errorf("changes file, line %d: method and an absolute path are needed", n)
		}
		changes = append(changes, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("changes file: %w", err)
	}
	return changes, nil
}

func (c Change) decision() decision {
	var d decision
	if json.Unmarshal(c.Body, &d) != nil {
		return decision{} // a bad body is a case of its own: it belongs to nobody
	}
	return d
}

func (c Change) brand() string {
	parts := strings.Split(c.Path, "/")
	if len(parts) > 3 {
		return parts[3]
	}
	return ""
}

func (c Change) key() string {
	for name, value := range c.Headers {
		if strings.EqualFold(name, "Idempotency-Key") {
			return value
		}
	}
	return ""
}

// chains puts changes that must keep their order into one chain: those of one address,
// of one contact key, and of one idempotency key. Chains are independent.
func chains(changes []Change) [][]int {
	parent := make([]int, len(changes))
	for i := range parent {
		parent[i] = i
	}
	var root func(int) int
	root = func(i int) int {
		if parent[i] != i {
			parent[i] = root(parent[i])
		}
		return parent[i]
	}
	first := map[string]int{}
	for i, c := range changes {
		d := c.decision()
		for _, name := range []string{
			"address " + strings.ToLower(strings.TrimSpace(d.Email)), "contact " + d.ContactKey,
			"key " + c.Path + " " + d.ProductID + " " + c.key(),
		} {
			if strings.HasSuffix(name, " ") {
				continue
			}
			if j, seen := first[name]; seen {
				parent[root(i)] = root(j)
			} else {
				first[name] = i
			}
		}
	}
	byRoot := map[int][]int{}
	var order []int
	for i := range changes {
		r := root(i)
		if byRoot[r] == nil {
			order = append(order, r)
		}
		byRoot[r] = append(byRoot[r], i)
	}
	result := make([][]int, len(order))
	for n, r := range order {
		result[n] = byRoot[r]
	}
	return result
}

// feeders is how many requests are on their way at once.
const feeders = 16

// feed sends every change and returns the statuses, in the order of the file.
func feed(ctx context.Context, baseURL string, changes []Change, sent *atomic.Int64) ([]int, error) {
	statuses := make([]int, len(changes))
	work := make(chan []int)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: feeders}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	var once sync.Once
	var failure error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range feeders {
		wg.Go(func() {
			for chain := range work {
				for _, i := range chain {
					status, err := send(ctx, client, baseURL, changes[i])
					if err != nil {
						once.Do(func() { failure = fmt.Errorf("request %d: %w", i+1, err); cancel() })
						return
					}
					statuses[i] = status
					sent.Add(1)
				}
			}
		})
	}
	dispatch(ctx, work, chains(changes))
	wg.Wait()
	return statuses, failure
}

func dispatch(ctx context.Context, work chan<- []int, all [][]int) {
	defer close(work)
	for _, chain := range all {
		select {
		case work <- chain:
		case <-ctx.Done():
			return
		}
	}
}

func send(ctx context.Context, client *http.Client, baseURL string, c Change) (int, error) {
	request, err := http.NewRequestWithContext(ctx, c.Method, baseURL+c.Path, bytes.NewReader(c.Body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range c.Headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // drained below
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
