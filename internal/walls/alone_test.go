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

var alone = regexp.MustCompile(`(?m)^alone="((?:.*\\\n)*.*)"$`)

// Packages that scripts/test runs without the race detector, and their tests, must not start
// goroutines.
func TestPureRoomsStartNoGoroutines(t *testing.T) {
	text, err := os.ReadFile("../../scripts/test")
	if err != nil {
		t.Fatal(err)
	}
	found := alone.FindSubmatch(text)
	if found == nil {
		t.Fatal("scripts/test names no such rooms")
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
					t.Errorf("%s starts a goroutine: take %s out of alone in scripts/test",
						set.Position(n.Pos()), room)
				}
				return true
			})
		}
	}
}
