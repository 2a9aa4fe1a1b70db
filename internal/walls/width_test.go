package walls

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	goColumns, markdownColumns = 100, 120
	tabColumns                 = 4
)

var wide = map[string]string{
	"internal/admission/answer/problem.go": "the address of a problem type",
}

// free matches Markdown lines that cannot be broken: rows of tables, and a single long word such as
// a link.
var free = regexp.MustCompile(`^\s*(\|.*|([-*] )?\S+)$`)

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// breakable blanks the parts of a Go file that cannot be broken: raw strings, and in comments code,
// tables and the output of examples.
func breakable(text []byte) string {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	kept := slices.Clone(text)
	output := false
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return string(kept)
		}
		if kind != token.COMMENT {
			output = false
		}
		output = output || kind == token.COMMENT && strings.HasPrefix(literal, "// Output:")
		code := strings.HasPrefix(literal, "//\t") || strings.HasPrefix(literal, "//go:")
		if kind == token.STRING && literal[0] == '`' || kind == token.COMMENT && (output || code) {
			at := file.Offset(pos)
			for i := at; i < at+len(literal); i++ {
				if kept[i] != '\n' {
					kept[i] = 0
				}
			}
		}
	}
}

func walk(t *testing.T, ending string, see func(name string, text []byte)) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		hidden := name != "." && path.Base(name)[0] == '.'
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name == "data" || hidden):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ending):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err == nil {
			see(name, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestGoLinesAreNoWiderThanTheyMayBe(t *testing.T) {
	walk(t, ".go", func(name string, text []byte) {
		if wide[name] != "" {
			return
		}
		for i, line := range strings.Split(breakable(text), "\n") {
			if n := columns(strings.ReplaceAll(line, "\x00", "")); n > goColumns {
				t.Errorf("%s:%d: %d columns, want at most %d", name, i+1, n, goColumns)
			}
		}
	})
}

func TestMarkdownLinesAreNoWiderThanTheyMayBe(t *testing.T) {
	walk(t, ".md", func(name string, text []byte) {
		fenced := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			answer := fenced && strings.HasPrefix(name, "docs/")
			n := columns(line)
			if strings.Contains(line, "| |--") {
				t.Errorf("%s:%d: rows of a table share a line", name, i+1)
			}
			if n > markdownColumns && !answer && !free.MatchString(line) && !made(name, line) {
				t.Errorf("%s:%d: %d columns, want at most %d", name, i+1, n, markdownColumns)
			}
		}
	})
}

// made reports whether a line is generated, so its width is only known there: an action of a
// template, a report on the machine, or a generated page.
func made(name, line string) bool {
	return strings.HasPrefix(name, "bench/") && strings.Contains(line, "{{") ||
		strings.HasPrefix(name, "docs/reference/") ||
		strings.HasPrefix(name, "docs/bench-") && strings.Contains(line, "go1.")
}
