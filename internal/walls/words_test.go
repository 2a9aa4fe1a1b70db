package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// A package that a user may import says of each exported name what it is, at the name or at its
// group. Methods that satisfy a well-known interface need no words.
func TestExportedNamesAreExplained(t *testing.T) {
	known := map[string]bool{"String": true, "Error": true, "Unwrap": true, "Is": true,
		"MarshalJSON": true, "UnmarshalJSON": true, "MarshalText": true, "UnmarshalText": true,
		"MarshalYAML": true, "LogValue": true}
	set := token.NewFileSet()
	explained := func(name *ast.Ident, words ...*ast.CommentGroup) {
		for _, w := range words {
			if w != nil {
				return
			}
		}
		if name.IsExported() {
			t.Errorf("%s: %s has no comment", set.Position(name.Pos()), name.Name)
		}
	}
	walk(t, ".go", func(name string, text []byte) {
		if strings.HasSuffix(name, "_test.go") || hidden(name) {
			return
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" {
			return
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || !known[d.Name.Name] && ast.IsExported(receiver(d)) {
					explained(d.Name, d.Doc)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						explained(s.Name, d.Doc, s.Doc, s.Comment)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							explained(n, d.Doc, s.Doc, s.Comment)
						}
					}
				}
			}
		}
	})
}

func receiver(d *ast.FuncDecl) string { return typeName(d.Recv.List[0].Type) }

// hidden reports whether users cannot import a file's package.
func hidden(name string) bool {
	return strings.HasPrefix(name, "bench/") || strings.Contains("/"+path.Dir(name), "/internal")
}
