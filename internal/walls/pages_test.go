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
	"unicode"
)

var (
	goFile = regexp.MustCompile(`[\w./-]*\w\.go\b`)
	quoted = regexp.MustCompile("`([^`]+)`")
	word   = regexp.MustCompile(`\w+$`)
)

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

func TestDesignRefersToExistingNames(t *testing.T) {
	text, err := os.ReadFile("../../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "Where to add what\n")
	if !found {
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

var (
	code    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	link    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	item    = regexp.MustCompile(`(?m)^(?:-|\d+\.) (\[(?:.|\n  )+)$`)
)

func anchors(page string) map[string]bool {
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(code.ReplaceAllString(page, ""), -1) {
		names[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
				return r
			}
			return -1
		}, strings.ToLower(h[1]))] = true
	}
	return names
}

func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	walk(t, ".md", func(name string, text []byte) {
		if path.Base(name) == "page.md" {
			return
		}
		for _, l := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			file, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			links++
			where := "../../" + name
			if file != "" {
				where = path.Join(path.Dir(where), file)
			}
			if _, err := os.Stat(where); err != nil {
				t.Errorf("%s leads to %s, which is not there", name, l[1])
				continue
			}
			page, _ := os.ReadFile(where)
			if anchor != "" && !anchors(string(page))[anchor] {
				t.Errorf("%s leads to %s, which is no heading there", name, l[1])
			}
		}
	})
	if links < 100 {
		t.Errorf("only %d links", links)
	}
}

func TestEveryPageIsReached(t *testing.T) {
	text, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{"README.md": true}
	for _, i := range item.FindAllStringSubmatch(string(text), -1) {
		_, sentence, said := strings.Cut(i[1], "): ")
		if !said || strings.Count(sentence, ". ") > 0 || !strings.HasSuffix(sentence, ".") {
			t.Errorf("not a link, and a sentence on what is there: %s", i[1])
		}
		for _, l := range link.FindAllStringSubmatch(i[1], -1) {
			told[l[1]] = true
		}
	}
	docs := os.DirFS("../../docs")
	pages, err := fs.Glob(docs, "*.md")
	generated, _ := fs.Glob(docs, "reference/*.md")
	if err != nil || len(generated) == 0 {
		t.Fatal("no pages in docs/reference: ", err)
	}
	for _, page := range append(pages, generated...) {
		if !told[page] {
			t.Errorf("docs/README.md does not lead to %s", page)
		}
	}
}
