package templatetest

import (
	"fmt"
	"path/filepath"
	"testing"
)

// root is the module's folder.
const root = "../.."

func loadTemplate(t *testing.T) object {
	t.Helper()
	template, err := Load(filepath.Join(root, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// at walks down a path of keys; nil where it ends early.
func at(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(object)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// list returns v as a list: a single value is a list of one.
func list(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

// number returns a whole number however it was written.
func number(v any) int {
	var n int
	if _, err := fmt.Sscan(fmt.Sprint(v), &n); err != nil {
		return -1
	}
	return n
}

// walk visits every value below v with its path.
func walk(path string, v any, visit func(path string, v any)) {
	visit(path, v)
	switch v := v.(type) {
	case object:
		for key, below := range v {
			walk(path+"/"+key, below, visit)
		}
	case []any:
		for i, below := range v {
			walk(fmt.Sprintf("%s/%d", path, i), below, visit)
		}
	}
}
