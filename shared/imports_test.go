// Package shared_test holds the direction of the imports without a linter.
package shared_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// forbidden says what a package's own code (not its tests) must not import.
var forbidden = map[string][]string{
	"outbox":     {""},
	"routing":    {""},
	"plan":       {"postgres", "qstash", "hubspot", "budget", "intake", "relay", "worker", "reconcile", "local"},
	"postgres":   {"qstash", "hubspot", "budget", "intake", "relay", "worker", "reconcile", "local", "plan"},
	"qstash":     {"postgres", "hubspot", "budget", "intake", "relay", "worker", "reconcile", "local", "plan"},
	"hubspot":    {"postgres", "qstash", "budget", "intake", "relay", "worker", "reconcile", "local", "plan"},
	"budget":     {"postgres", "qstash", "hubspot", "intake", "relay", "worker", "reconcile", "local", "plan"},
	"lambdahttp": {""},
	"config":     {""},
	"telemetry":  {""},
	"intake":     {"relay", "worker", "reconcile", "local", "qstash", "hubspot", "budget"},
	"relay":      {"intake", "worker", "reconcile", "local", "hubspot", "budget"},
	"worker":     {"intake", "relay", "reconcile", "local"},
	"reconcile":  {"intake", "relay", "worker", "local"},
	"webhook":    {"intake", "relay", "worker", "reconcile", "local", "qstash", "hubspot", "budget"},
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, "hubsync/shared/")
		seen[name] = true
		for _, i := range p.Imports {
			for _, bad := range forbidden[name] {
				target := "hubsync/shared/" + bad
				if i == target || (bad == "" && strings.HasPrefix(i, target)) || (bad != "" && strings.HasPrefix(i, target+"/")) {
					t.Errorf("%s imports %s", p.ImportPath, i)
				}
			}
		}
	}
	for name := range forbidden {
		if !seen[name] {
			t.Errorf("package %s is gone: mend this table", name)
		}
	}
}
