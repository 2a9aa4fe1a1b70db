// Package referencetest is for tests that generate the pages of docs/reference.
package referencetest

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("reference", false, "write the generated pages of docs/reference")

// Check fails a test unless a file contains the generated page. With -reference, as in `make
// reference`, it writes the file.
func Check(t testing.TB, file, page string) {
	t.Helper()
	if *write {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) == page {
		return
	}
	before := strings.Split(string(was), "\n")
	for i, line := range strings.Split(page, "\n") {
		if i == len(before) || before[i] != line {
			t.Fatalf("%s:%d is not current, run `make reference`: want\n%s", file, i+1, line)
		}
	}
	t.Fatalf("%s is not current: run `make reference`", file)
}

// Cell escapes text for a Markdown table.
func Cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
