package intake

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"hubsync/shared/routing"
)

// TestReplayOfSharedRequests sends the shared request file through intake, in
// file order, and wants exactly the statuses that stand in it. The file lies
// beside the checkout; a checkout on its own has the table of TestAnswers.
func TestReplayOfSharedRequests(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("..", "..", "..", "shared", "data")
	requests, err := os.Open(filepath.Join(folder, "changes.ndjson"))
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close()
	content, err := os.ReadFile(filepath.Join(folder, "routes.json"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := routing.Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldWith(t, file)
	answers, wrong := map[int]int{}, 0
	lines := bufio.NewScanner(requests)
	for number := 1; lines.Scan(); number++ {
		var line struct {
			Method, Path string
			Headers      map[string]string
			Body         json.RawMessage
			Expect       int
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("line %d: %v", number, err)
		}
		headers := []string{"Content-Type", "application/json"}
		for name, value := range line.Headers {
			headers = append(headers, name, value)
		}
		response := w.call(line.Method, line.Path, string(line.Body), headers...)
		answers[response.Code]++
		if response.Code != line.Expect {
			if wrong++; wrong <= 10 {
				t.Errorf("line %d: %d, want %d: %s", number, response.Code, line.Expect, response.Body)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("answers %v, %d unexpected", answers, wrong)
}
