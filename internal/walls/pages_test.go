package walls

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var goFile = regexp.MustCompile(`[\w./-]*\w\.go\b`)

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
