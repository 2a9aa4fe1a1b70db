package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A package's mutants are in its testdata/mutants:
//
//	one-too-much: sum.go
//	by . TestSum -count 2
//	-s += i
//	+s += i + 1
//
// or, instead of by, "equivalent" and the reason. Lines that begin with # are comments.

// read returns the mutants of the packages in a directory.
func read(dir string) (all []mutant, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != dir:
			return fs.SkipDir
		case d.Name() != "mutants" || filepath.Base(filepath.Dir(path)) != "testdata":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		of, err := filepath.Rel(dir, filepath.Dir(filepath.Dir(path)))
		if err != nil {
			return err
		}
		rows, err := parse(filepath.ToSlash(of), text)
		all = append(all, rows...)
		return err
	})
	return all, err
}

func parse(dir string, text []byte) (rows []mutant, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		word, rest, _ := strings.Cut(line, " ")
		m := &mutant{}
		if len(rows) > 0 {
			m = &rows[len(rows)-1]
		}
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '-':
			m.old = appended(m.old, line[1:])
		case line[0] == '+':
			m.new = appended(m.new, line[1:])
		case word == "by":
			m.by = rest
		case word == "equivalent":
			m.equivalent = rest
		case strings.HasSuffix(word, ":"):
			rows = append(rows, mutant{name: strings.TrimSuffix(word, ":"),
				file: filepath.ToSlash(filepath.Join(dir, rest))})
		default:
			return nil, fmt.Errorf("%s/testdata/mutants:%d: %q: want a name and a file, by, "+
				"equivalent, - or +", dir, n, line)
		}
	}
	return rows, lines.Err()
}

func appended(text, line string) string {
	if text == "" {
		return line
	}
	return text + "\n" + line
}
