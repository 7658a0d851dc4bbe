package templatetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRealTransformAgrees compares the expansion that the other tests judge with the one of
// AWS's own transform, where the machine has it (pip's aws-sam-translator).
func TestRealTransformAgrees(t *testing.T) {
	t.Parallel()
	if err := exec.Command("python3", "-c", "import samtranslator").Run(); err != nil {
		t.Log("the transform is not on this machine: the expansion in Go stands alone")
		return
	}
	cmd := exec.Command("python3", filepath.Join(root, ".ci/transform.py"), filepath.Join(root, "template.yaml"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var official struct{ Resources object }
	if err := json.Unmarshal(out, &official); err != nil {
		t.Fatal(err)
	}
	ours := expand(t, loadTemplate(t)).resources
	version := regexp.MustCompile(`FunctionVersion[0-9a-f]{10}$`)
	for id, r := range official.Resources {
		if version.MatchString(id) {
			continue
		}
		if at(r, "Type") != at(ours, id, "Type") {
			t.Errorf("%s is %v after the transform, %v here", id, at(r, "Type"), at(ours, id, "Type"))
		}
	}
	for id, r := range ours {
		if official.Resources[id] == nil {
			t.Errorf("%s is not there after the transform", id)
			continue
		}
		for name, want := range propertiesOf(r) {
			if got := propertiesOf(official.Resources[id])[name]; canonical(got) != canonical(want) {
				t.Errorf("%s %s: %s after the transform, %s here", id, name, canonical(got), canonical(want))
			}
		}
	}
}

func propertiesOf(r any) object {
	p, _ := at(r, "Properties").(object)
	return p
}

// canonical makes texts that are equal where CloudFormation reads the same.
func canonical(v any) string {
	switch v := v.(type) {
	case object:
		var parts []string
		for key, below := range v {
			parts = append(parts, key+"="+canonical(below))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		var parts []string
		for _, below := range v {
			parts = append(parts, canonical(below))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case float64:
		return fmt.Sprint(int64(v))
	}
	return strings.TrimSpace(fmt.Sprint(v))
}

// TestCfnLintPasses asks cfn-lint, where the machine has it.
func TestCfnLintPasses(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("cfn-lint")
	if err != nil {
		t.Log("cfn-lint is not on this machine")
		return
	}
	cmd := exec.Command(path)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
