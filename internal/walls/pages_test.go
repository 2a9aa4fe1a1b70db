package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goFile = regexp.MustCompile(`[\w./-]*\w\.go\b`)
	quoted = regexp.MustCompile("`([^`]+)`")
	word   = regexp.MustCompile(`\w+$`)
)

// DESIGN.md sends its reader to files. One that was renamed must be renamed there as well.
func TestDesignNamesFilesThatExist(t *testing.T) {
	exists := map[string]bool{}
	walk(t, ".go", func(name string, _ []byte) {
		for ; name != "."; name = path.Dir(name) {
			exists[name] = true
		}
	})
	named := map[string]bool{}
	for name := range exists {
		named[path.Base(name)] = true
	}
	text, err := os.ReadFile("../../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range goFile.FindAllString(string(text), -1) {
		if strings.Contains(file, "/") && !exists[file] || !named[path.Base(file)] {
			t.Errorf("DESIGN.md names %s, which is not there", file)
		}
	}
}

// Where to add what is told by names of files, of directories and of what is declared in Go.
func TestDesignSendsToWhatExists(t *testing.T) {
	text, err := os.ReadFile("../../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "### Where to add what\n")
	table, _, ends := strings.Cut(table, "\n## ")
	if !found || !ends {
		t.Fatal("DESIGN.md does not say where to add what")
	}
	declared, there := map[string]bool{}, map[string]bool{}
	walk(t, ".go", func(name string, text []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				declared[n.Name.Name] = true
			case *ast.TypeSpec:
				declared[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					declared[name.Name] = true
				}
			}
			return true
		})
	})
	err = filepath.WalkDir("../..", func(name string, _ fs.DirEntry, err error) error {
		there[filepath.Base(name)] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range quoted.FindAllStringSubmatch(table, -1) {
		name := strings.TrimSuffix(match[1], "/")
		_, gone := os.Stat("../../" + name)
		if strings.HasSuffix(name, ".go") || gone == nil || !strings.Contains(name, "/") &&
			(there[name] || declared[word.FindString(name)]) {
			continue
		}
		t.Errorf("DESIGN.md sends to %s, which is not there", name)
	}
}
