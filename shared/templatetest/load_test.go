package templatetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// root is the module's folder.
const root = "../.."

// object is a mapping of the template; intrinsics are in their long form.
type object = map[string]any

// loadTemplate reads template.yaml.
func loadTemplate(t *testing.T) object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Docs) != 1 {
		t.Fatalf("%d documents", len(file.Docs))
	}
	top, ok := value(t, file.Docs[0].Body).(object)
	if !ok {
		t.Fatal("the template is no mapping")
	}
	return top
}

// value turns a node into maps, lists and scalars. CloudFormation knows no aliases and no
// merge keys, so they are refused.
func value(t *testing.T, n ast.Node) any {
	t.Helper()
	switch n := n.(type) {
	case *ast.MappingNode:
		m := object{}
		for _, v := range n.Values {
			put(t, m, v)
		}
		return m
	case *ast.MappingValueNode:
		m := object{}
		put(t, m, n)
		return m
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, v := range n.Values {
			list[i] = value(t, v)
		}
		return list
	case *ast.TagNode:
		return intrinsic(t, n.Start.Value, value(t, n.Value))
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.NullNode:
		return nil
	case ast.ScalarNode:
		return n.GetValue()
	}
	t.Fatalf("%s: %T is nothing that CloudFormation reads", n.GetPath(), n)
	return nil
}

func put(t *testing.T, m object, v *ast.MappingValueNode) {
	t.Helper()
	key := fmt.Sprint(value(t, v.Key.(ast.Node)))
	if _, twice := m[key]; twice {
		t.Fatalf("%s stands twice", v.GetPath())
	}
	m[key] = value(t, v.Value)
}

func intrinsic(t *testing.T, tag string, v any) any {
	t.Helper()
	switch tag {
	case "!Ref":
		return object{"Ref": v}
	case "!Condition":
		return object{"Condition": v}
	case "!GetAtt":
		name, attribute, ok := strings.Cut(fmt.Sprint(v), ".")
		if !ok {
			t.Fatalf("!GetAtt %v has no attribute", v)
		}
		return object{"Fn::GetAtt": []any{name, attribute}}
	case "!Sub", "!If", "!Equals", "!Not", "!And", "!Or", "!Select", "!Split", "!Join", "!Cidr", "!GetAZs":
		return object{"Fn::" + tag[1:]: v}
	}
	t.Fatalf("tag %s", tag)
	return nil
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
