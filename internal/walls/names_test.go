package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"
)

// Types in exported fields and functions have an exported name, or are another name of one that has
// it: type X = internal.Y.
func TestUsersCanNameTheTypesOfFieldsAndFunctions(t *testing.T) {
	set := token.NewFileSet()
	named, met := map[string]bool{}, map[string]token.Pos{}
	walk(t, ".go", func(name string, text []byte) {
		if strings.HasSuffix(name, "_test.go") || hidden(name) {
			return
		}
		file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" {
			return
		}
		inner := map[string]string{} // imported packages that users cannot import, by their name
		for _, i := range file.Imports {
			where, _ := strconv.Unquote(i.Path.Value)
			if strings.Contains(where, "/internal/") {
				inner[path.Base(where)] = where
			}
		}
		var look func(ast.Node)
		look = func(in ast.Node) {
			ast.Inspect(in, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.StructType:
					for _, f := range n.Fields.List {
						if len(f.Names) == 0 || f.Names[0].IsExported() {
							look(f.Type)
						}
					}
					return false
				case *ast.SelectorExpr:
					if where := inner[typeName(n.X)]; where != "" {
						met[where+"."+n.Sel.Name] = n.Pos()
					}
				}
				return true
			})
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
					look(d.Type)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					of, is := s.(*ast.TypeSpec)
					if !is || !of.Name.IsExported() {
						continue
					}
					if other, is := of.Type.(*ast.SelectorExpr); is && of.Assign.IsValid() {
						named[inner[typeName(other.X)]+"."+other.Sel.Name] = true
						continue
					}
					look(of.Type)
				}
			}
		}
	})
	for name, at := range met {
		if !named[name] {
			t.Errorf("%s: users cannot name %s", set.Position(at), name)
		}
	}
}

// mostNames bounds what the first release promises to programs. Lower it once it can be; a commit
// that raises it gives the reason.
const mostNames = 669

func TestProgramsArePromisedFewNames(t *testing.T) {
	names := 0
	walk(t, ".go", func(name string, text []byte) {
		top, _, _ := strings.Cut(name, "/")
		if strings.HasSuffix(name, "_test.go") || hidden(name) ||
			top == "bench" || top == "examples" || top == "cmd" || top == "clients" {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		count := func(is bool) {
			if is {
				names++
			}
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				count(d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))))
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						count(s.Name.IsExported())
					case *ast.ValueSpec:
						for _, n := range s.Names {
							count(n.IsExported())
						}
					}
				}
			}
		}
	})
	if names != mostNames {
		t.Errorf("%d names are exported outside of internal packages, not %d", names, mostNames)
	}
}
