package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var alone = regexp.MustCompile(`(?m)^ALONE\s*= ((?:.*\\\n)*.*)$`)

// Packages that make test runs without the race detector, and their tests, must not start
// goroutines.
func TestPureRoomsStartNoGoroutines(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := alone.FindSubmatch(text)
	if found == nil {
		t.Fatal("the Makefile names no such rooms")
	}
	rooms := append(strings.Fields(strings.ReplaceAll(string(found[1]), "\\", "")),
		"./workers/internal/core")
	for _, room := range rooms {
		names, err := filepath.Glob(filepath.Join("../..", room, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", room, names, err)
		}
		for _, name := range names {
			if strings.HasPrefix(filepath.Base(name), "simulation_") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				starts := false
				switch n := n.(type) {
				case *ast.GoStmt:
					starts = true
				case *ast.SelectorExpr:
					starts = n.Sel.Name == "Go" || n.Sel.Name == "Parallel" ||
						n.Sel.Name == "RunParallel"
				}
				if starts {
					t.Errorf("%s starts a goroutine: take %s out of ALONE in the Makefile",
						set.Position(n.Pos()), room)
				}
				return true
			})
		}
	}
}
