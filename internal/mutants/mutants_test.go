package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEachRowIsAboutTheCodeAsItIs: its text is there, once, and so is its test.
func TestEachRowIsAboutTheCodeAsItIs(t *testing.T) {
	const root = "../.."
	names, tests := map[string]bool{}, map[string][]string{}
	for _, m := range table {
		if m.name == "" || names[m.name] {
			t.Errorf("%q is no name, or that of two", m.name)
		}
		names[m.name] = true
		if m.old == m.new {
			t.Errorf("%s changes nothing", m.name)
		}
		if _, err := m.mutated(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		dir, pattern, _ := m.test()
		if _, known := tests[dir]; !known {
			tests[dir] = testsOf(t, filepath.Join(root, dir))
		}
		switch {
		case (m.by == "") == (m.equivalent == ""):
			t.Errorf("%s: either a test notices it, or it is equivalent", m.name)
		case m.by != "" && !slices.ContainsFunc(tests[dir], regexp.MustCompile("^("+pattern+")$").MatchString):
			t.Errorf("%s: there is no test for %q", m.name, m.by)
		}
	}
	if len(table) < 90 {
		t.Errorf("%d mutants, want 90 or more", len(table))
	}
}

// testsOf names the tests of a package.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}

// TestWhatBecomesOfAMutant plays mutants of a small module.
func TestWhatBecomesOfAMutant(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sum\n\ngo 1.26\n",
		"sum.go": "package sum\n\nfunc Sum(n int) (s int) {\n\tfor i := range n {\n\t\ts += i\n\t}\n\treturn s\n}\n",
		"sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum(4) != 6 {\n\t\tt.Fatal()\n\t}\n}\n\n" +
			"func TestNothing(t *testing.T) {}\n\nfunc TestFails(t *testing.T) { t.Run(\"always\", func(t *testing.T) { t.Fatal() }) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	row := func(name, old, new, by string) mutant {
		return mutant{name: name, file: "sum.go", old: old, new: new, by: by}
	}
	same := row("range twice", "range n", "range 2*n/2", "")
	same.equivalent = "twice the half"
	for _, c := range []struct {
		mutant
		want verdict
		good bool
	}{
		{row("one too much", "s += i", "s += i + 1", ". TestSum"), caught, true},
		{row("panics", "s += i", "panic(i)", ". Test[S]um"), caught, true},
		{row("ends never", "return s", "for {\n\t\ts++\n\t}", ". TestSum -timeout 1s"), hung, true},
		{same, equivalent, true},
		{row("unnoticed", "s += i", "s -= i", ". TestNothing"), survived, false},
		{row("not there", "s *= i", "s += i", ". TestSum"), outdated, false},
		{row("there twice", "s", "t", ". TestSum"), outdated, false},
		{row("no code", "s += i", "s += ", ". TestSum"), broken, false},
		{row("no such test", "s += i", "s -= i", ". TestProduct"), broken, false},
		{row("fails anyway", "s += i", "s -= i", ". TestFails -count 1"), broken, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			results, err := play(t.Context(), dir, []mutant{c.mutant}, func(result) {})
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if good := report(&out, results); results[0].verdict != c.want || good != c.good {
				t.Errorf("%s, good %v, want %s, %v:\n%s", results[0].verdict, good, c.want, c.good, &out)
			}
		})
	}
}

// TestASampleLeavesNoStaleRowOut: only its tests are a matter of chance.
func TestASampleLeavesNoStaleRowOut(t *testing.T) {
	var rows []mutant
	for i := range 20 {
		rows = append(rows, mutant{name: fmt.Sprint(i), file: "play.go", old: "package main", new: "package"})
	}
	rows[7].old = "package minor"
	drawn := draw(rows, 5, 1)
	if len(drawn) != 5 || slices.Equal(drawn, draw(rows, 5, 2)) || !slices.Equal(drawn, draw(rows, 5, 1)) {
		t.Errorf("a sample is not so large, not another each time, or not the same again: %v", drawn)
	}
	found := len(stale(".", rows, nil))
	if all := len(stale(".", rows, rows)); found != 1 || all != 0 {
		t.Errorf("%d stale of 20, %d of those that were played; want 1 and 0", found, all)
	}
}
