package templatetest

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// object is a mapping of the template; intrinsics are in their long form.
type object = map[string]any

// Load reads a template: mappings as map[string]any, lists as []any, and every intrinsic
// in its long form, {"Fn::GetAtt": [name, attribute]}.
func Load(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fmt.Errorf("read template %s: %w", path, err)
	}
	if len(file.Docs) != 1 {
		return nil, fmt.Errorf("template %s has %d documents, want one", path, len(file.Docs))
	}
	r := reader{}
	top, ok := r.value(file.Docs[0].Body).(object)
	if r.err != nil {
		return nil, fmt.Errorf("template %s: %w", path, r.err)
	}
	if !ok {
		return nil, fmt.Errorf("template %s is no mapping", path)
	}
	return top, nil
}

// reader keeps the first thing that was wrong.
type reader struct{ err error }

func (r *reader) say(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// value turns a node into maps, lists and scalars. CloudFormation knows no aliases and no
// merge keys, so they are refused.
func (r *reader) value(n ast.Node) any {
	switch n := n.(type) {
	case *ast.MappingNode:
		m := object{}
		for _, v := range n.Values {
			r.put(m, v)
		}
		return m
	case *ast.MappingValueNode:
		m := object{}
		r.put(m, n)
		return m
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, v := range n.Values {
			list[i] = r.value(v)
		}
		return list
	case *ast.TagNode:
		return r.intrinsic(n.Start.Value, r.value(n.Value))
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.NullNode:
		return nil
	case ast.ScalarNode:
		return n.GetValue()
	}
	r.say("%s: %T is nothing that CloudFormation reads", n.GetPath(), n)
	return nil
}

func (r *reader) put(m object, v *ast.MappingValueNode) {
	key := fmt.Sprint(r.value(v.Key.(ast.Node)))
	if _, twice := m[key]; twice {
		r.say("%s stands twice", v.GetPath())
	}
	m[key] = r.value(v.Value)
}

func (r *reader) intrinsic(tag string, v any) any {
	switch tag {
	case "!Ref":
		return object{"Ref": v}
	case "!Condition":
		return object{"Condition": v}
	case "!GetAtt":
		name, attribute, ok := strings.Cut(fmt.Sprint(v), ".")
		if !ok {
			r.say("!GetAtt %v has no attribute", v)
		}
		return object{"Fn::GetAtt": []any{name, attribute}}
	case "!Sub", "!If", "!Equals", "!Not", "!And", "!Or", "!Select", "!Split", "!Join", "!Cidr", "!GetAZs":
		return object{"Fn::" + tag[1:]: v}
	}
	r.say("tag %s", tag)
	return nil
}
