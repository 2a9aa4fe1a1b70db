package node_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"testing"

	"github.com/penstock-mq/penstock"
)

// "go doc penstock.Ticket" shows only the document of an alias, not the type in another package.
func TestDocumentsOfAliasesShowFieldsAndMethods(t *testing.T) {
	set, files := token.NewFileSet(), []*ast.File{}
	for _, name := range []string{"submit.go", "client.go", "options.go", "penstock.go", "run.go"} {
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	pages, err := doc.NewFromFiles(set, files, "github.com/penstock-mq/penstock")
	if err != nil {
		t.Fatal(err)
	}
	aliases := map[string]reflect.Type{
		"Acquirer": reflect.TypeFor[penstock.Acquirer](), "Call": reflect.TypeFor[penstock.Call](),
		"Codec": reflect.TypeFor[penstock.Codec](), "Ended": reflect.TypeFor[penstock.Ended](),
		"Permit":       reflect.TypeFor[penstock.Permit](),
		"RefusedError": reflect.TypeFor[penstock.RefusedError](),
		"Ticket":       reflect.TypeFor[penstock.Ticket](),
		"Transport":    reflect.TypeFor[penstock.Transport](),
	}
	for _, page := range pages.Types {
		if !page.Decl.Specs[0].(*ast.TypeSpec).Assign.IsValid() {
			continue
		}
		of, known := aliases[page.Name]
		if !known {
			t.Errorf("this test does not know the alias %s", page.Name)
			continue
		}
		delete(aliases, page.Name)
		var members []string
		if of.Kind() == reflect.Struct {
			for _, field := range reflect.VisibleFields(of) {
				if field.IsExported() {
					members = append(members, field.Name)
				}
			}
		}
		if page.Name == "Permit" {
			of = reflect.PointerTo(of)
		}
		if of.Kind() != reflect.Struct {
			for method := range of.Methods() {
				members = append(members, method.Name)
			}
		}
		for _, member := range members {
			if !regexp.MustCompile(`(?m)^\t(\w+, )?` + member + `\b`).MatchString(page.Doc) {
				t.Errorf("the document of %s does not show %s", page.Name, member)
			}
		}
	}
	if len(aliases) > 0 {
		t.Errorf("these are no aliases: %v", aliases)
	}
}
