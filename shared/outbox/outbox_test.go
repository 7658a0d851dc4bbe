package outbox

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func TestEveryOpenStatusCanBeWorkedOnAndLeft(t *testing.T) {
	t.Parallel()
	for _, s := range Statuses {
		if s.Terminal() {
			for _, next := range Statuses {
				if s.CanBecome(next) {
					t.Errorf("terminal %s can become %s", s, next)
				}
			}
			continue
		}
		for _, next := range []Status{Processing, ProcessRetry, Synced, Superseded, Cancelled} {
			if s == ProcessRetry && next == ProcessRetry {
				continue
			}
			if !s.CanBecome(next) {
				t.Errorf("%s cannot become %s: a message may arrive before its mark", s, next)
			}
		}
	}
	if Pending.CanBecome(Queued) || Synced.CanBecome(Queued) || Dead.CanBecome(Pending) {
		t.Error("a move is legal that must not be")
	}
}

func TestBackoffStaysBetweenFloorAndCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.IntRange(-3, 2000).Draw(t, "attempt")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		got := Backoff(attempt, RetryFloor, RetryCap, func() float64 { return random })
		if got < RetryFloor || got > RetryCap {
			t.Fatalf("Backoff(%d) = %s", attempt, got)
		}
	})
	if got := Backoff(1, time.Second, time.Minute, func() float64 { return 0.5 }); got != 1500*time.Millisecond {
		t.Errorf("half way through [1s, 2s] is %s", got)
	}
}

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	ids := []uuid.UUID{uuid.New(), uuid.New()}
	body, err := EncodeMessage(ids)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeMessage(body)
	if err != nil || len(got) != 2 || got[0] != ids[0] || got[1] != ids[1] {
		t.Fatalf("got %v, %v", got, err)
	}
	got, err = DecodeMessage([]byte(`{"eventId":"` + ids[0].String() + `"}`))
	if err != nil || len(got) != 1 || got[0] != ids[0] {
		t.Fatalf("the seed's form: %v, %v", got, err)
	}
	twice := `{"eventIds":["` + ids[0].String() + `","` + ids[0].String() + `"]}`
	if got, err = DecodeMessage([]byte(twice)); err != nil || len(got) != 1 {
		t.Fatalf("twins: %v, %v", got, err)
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	t.Parallel()
	id := uuid.New().String()
	many := `{"eventIds":["` + strings.Repeat(id+`","`, MaxMessage) + id + `"]}`
	for name, body := range map[string]string{
		"empty":           ``,
		"null":            `null`,
		"array":           `["` + id + `"]`,
		"no ids":          `{"eventIds":[]}`,
		"no member":       `{}`,
		"both forms":      `{"eventId":"` + id + `","eventIds":["` + id + `"]}`,
		"other case":      `{"EventIds":["` + id + `"]}`,
		"member twice":    `{"eventId":"` + id + `","eventId":"` + id + `"}`,
		"unknown member":  `{"eventId":"` + id + `","email":"a@example.com"}`,
		"second value":    `{"eventId":"` + id + `"} {}`,
		"not a uuid":      `{"eventIds":["1"]}`,
		"braced uuid":     `{"eventIds":["{` + id + `}"]}`,
		"urn uuid":        `{"eventIds":["urn:uuid:` + id + `"]}`,
		"a number":        `{"eventIds":[7]}`,
		"over a hundred":  many,
		"truncated":       `{"eventIds":["` + id,
		"BOM":             "\ufeff" + `{"eventId":"` + id + `"}`,
		"invalid unicode": "{\"eventId\":\"\xff\"}",
	} {
		if _, err := DecodeMessage([]byte(body)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestDeduplicationIDNamesTheGeneration(t *testing.T) {
	t.Parallel()
	a, b := Reference{uuid.New(), 1}, Reference{uuid.New(), 2}
	if got, want := DeduplicationID([]Reference{a}), a.EventID.String()+"_r1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	again := Reference{a.EventID, 2}
	ids := []string{
		DeduplicationID([]Reference{a}), DeduplicationID([]Reference{again}),
		DeduplicationID([]Reference{a, b}), DeduplicationID([]Reference{again, b}),
	}
	for i, id := range ids {
		if strings.Contains(id, ":") {
			t.Errorf("%s has a colon, which QStash refuses", id)
		}
		for _, other := range ids[i+1:] {
			if id == other {
				t.Errorf("a re-send would be swallowed: %s", id)
			}
		}
	}
	if DeduplicationID([]Reference{a, b}) != DeduplicationID([]Reference{b, a}) {
		t.Error("the order of a list changes its id")
	}
}

func TestTheDiagramIsTheTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```mermaid\n"+Diagram()+"```") {
		t.Errorf("docs/states.md must hold:\n%s", Diagram())
	}
}
