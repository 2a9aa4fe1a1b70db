package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Ceilings of workers/internal. A type's methods include the functions whose first parameter it is;
// its fields include those of the package's structs that it embeds, or holds by value. Lower a
// number once it can be; a commit that raises one gives the reason.
const mostMethods, mostFields, mostLines = 60, 35, 60

func TestTypesAreSmallEnoughToLearn(t *testing.T) {
	dirs, err := filepath.Glob("../../workers/internal/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		p := readSizes(t, dir)
		name := func(of string) string { return filepath.Base(dir) + "." + of }
		for _, of := range slices.Sorted(maps.Keys(p.methods)) {
			belowCeiling(t, name(of), "methods", p.methods[of], mostMethods)
		}
		for _, of := range slices.Sorted(maps.Keys(p.structs)) {
			if p.view(of) {
				continue
			}
			belowCeiling(t, name(of), "fields", p.fields(of), mostFields)
		}
	}
}

func belowCeiling(t *testing.T, name, what string, n, most int) {
	t.Helper()
	if n > most {
		t.Errorf("%s has %d %s, want at most %d", name, n, what, most)
	}
}

type sizes struct {
	methods map[string]int
	structs map[string]*ast.StructType
}

func readSizes(t *testing.T, dir string) sizes {
	p := sizes{map[string]int{}, map[string]*ast.StructType{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, is := n.Type.(*ast.StructType); is {
					p.structs[n.Name.Name] = s
				}
			case *ast.FuncDecl:
				of := n.Recv
				if of == nil {
					of = n.Type.Params
				}
				if len(of.List) > 0 {
					p.methods[typeName(of.List[0].Type)]++
				}
				lines := set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1
				belowCeiling(t, name+": "+n.Name.Name, "lines", lines, mostLines)
			}
			return true
		})
	}
	for of := range p.methods {
		if p.structs[of] == nil {
			delete(p.methods, of)
		}
	}
	return p
}

// typeName returns the name of a type, or of what a pointer points to; of a package's own types
// alone.
func typeName(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.StarExpr:
		return typeName(of.X)
	case *ast.IndexExpr:
		return typeName(of.X)
	}
	return ""
}

// view reports whether a struct is a pointer to another, and at most one thing more.
func (p sizes) view(of string) bool {
	all := p.structs[of].Fields.List
	if len(all) == 0 || len(all) > 2 || len(all[0].Names) > 0 {
		return false
	}
	_, pointer := all[0].Type.(*ast.StarExpr)
	return pointer
}

func (p sizes) fields(of string) (n int) {
	for _, f := range p.structs[of].Fields.List {
		n += max(len(f.Names), 1)
		if _, pointer := f.Type.(*ast.StarExpr); pointer && len(f.Names) > 0 {
			continue
		}
		if held := typeName(f.Type); held != of && p.structs[held] != nil {
			n += max(len(f.Names), 1) * p.fields(held)
		}
	}
	return n
}
