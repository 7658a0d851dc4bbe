package matrix

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// source is what the test files of one package hold.
type source struct {
	functions map[string]bool
	literals  map[string]bool // strings, as a subtest's name would show them
}

// Missing names every cell's tests that do not stand in the source below root, in files
// that an ordinary `go test` compiles, and every live cell that names none.
func Missing(root string, cells []Cell) ([]string, error) {
	var problems []string
	packages := map[string]source{}
	for _, c := range cells {
		if c.Impossible != (len(c.Proof) == 0) {
			problems = append(problems, fmt.Sprintf("cell %s (%s: %s) names %d tests", c.ID, c.Step, c.Failure, len(c.Proof)))
		}
		for _, t := range c.Proof {
			s, ok := packages[t.Package]
			if !ok {
				var err error
				if s, err = readSource(filepath.Join(root, t.Package)); err != nil {
					return nil, fmt.Errorf("cell %s: %w", c.ID, err)
				}
				packages[t.Package] = s
			}
			if !s.has(t) {
				problems = append(problems, fmt.Sprintf("cell %s names %s, which does not exist", c.ID, t))
			}
		}
	}
	return problems, nil
}

// has reports whether the function is there, and a literal for each part of a subtest's name.
func (s source) has(t Test) bool {
	parts := strings.Split(t.Name, "/")
	if !s.functions[parts[0]] {
		return false
	}
	for _, part := range parts[1:] {
		if !s.literals[part] {
			return false
		}
	}
	return true
}

func readSource(dir string) (source, error) {
	s := source{functions: map[string]bool{}, literals: map[string]bool{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return s, fmt.Errorf("look for tests: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		// A file behind a build tag is not part of an ordinary run.
		if match, err := build.Default.MatchFile(dir, entry.Name()); err != nil || !match {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return s, fmt.Errorf("look for tests: %w", err)
		}
		s.add(file)
	}
	return s, nil
}

func (s source) add(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Type.Params.NumFields() == 1 {
			s.functions[f.Name.Name] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				s.literals[strings.ReplaceAll(text, " ", "_")] = true
			}
		}
		return true
	})
}
