package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func rows(t *testing.T) []mutant {
	t.Helper()
	all, err := read(root)
	if err != nil || len(all) < 90 {
		t.Fatalf("%d mutants, want 90 or more: %v", len(all), err)
	}
	return all
}

func TestRowsMatchTheCode(t *testing.T) {
	names, tests := map[string]bool{}, map[string][]string{}
	for _, m := range rows(t) {
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
		case m.by != "" &&
			!slices.ContainsFunc(tests[dir], regexp.MustCompile("^("+pattern+")$").MatchString):
			t.Errorf("%s: there is no test for %q", m.name, m.by)
		}
	}
}

func TestSharesAreTheWhole(t *testing.T) {
	played, table := map[string]int{}, rows(t)
	for seed := range 3 {
		share := shareOf(table, 3, seed)
		if third := len(table) / 3; len(share) != third && len(share) != third+1 {
			t.Errorf("seed %d: %d of %d rows", seed, len(share), len(table))
		}
		for _, m := range share {
			played[m.name]++
		}
	}
	for _, m := range table {
		if played[m.name] != 1 {
			t.Errorf("%s is played %d times by three seeds", m.name, played[m.name])
		}
	}
}

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
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text,
			-1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}

func TestVerdicts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sum\n\ngo 1.26\n",
		"sum.go": `package sum

const first = 0

type sums[T any] struct{ all []T }

func (s *sums[T]) add(x ...T) { s.all = append(s.all, x...) }

func Seven(int) int { return 7 }

func Sum(n int) (s int) {
	for i := range n {
		s += i
	}
	return s
}
`,
		"program/main.go": `package main

import (
	"fmt"
	"sum"
)

func main() { fmt.Print(sum.Sum(4), " ", sum.Seven(0)) }
`,
		"sum_test.go": `package sum

import (
	"os"
	"os/exec"
	"testing"
)

// TestLate lets what is wrong pass once.
func TestLate(t *testing.T) {
	if Sum(4) != 6 && os.Mkdir("late", 0o700) != nil {
		t.Fatal()
	}
}

func TestProgram(t *testing.T) {
	if out, err := exec.Command("go", "run", "./program").CombinedOutput(); string(out) != "6 7" {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestSum(t *testing.T) {
	if Sum(4) != 6 {
		t.Fatal()
	}
}

func TestOthers(t *testing.T) {
	var s sums[int]
	if s.add(1, 2); len(s.all) != 2 || first != 0 || Seven(0) != 7 {
		t.Fatal()
	}
}

func TestNothing(t *testing.T) {}

func TestFails(t *testing.T) { t.Run("always", func(t *testing.T) { t.Fatal() }) }
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	row := func(name, old, new, by string) mutant {
		return mutant{name: name, file: "sum.go", old: old, new: new, by: by}
	}
	same := row("range twice", "range n", "range 2*n/2", "")
	same.equivalent = "twice the half"
	rows := []struct {
		mutant
		want verdict
	}{
		{row("one too much", "s += i", "s += i + 1", ". TestSum"), caught},
		{row("in a method of a generic type", "s.all, x...)", "s.all, x[0])", ". TestOthers"),
			caught},
		{row("in a function without names of parameters", "7", "8", ". TestOthers"), caught},
		{row("in a program that a test builds", "s += i", "s += i + 1", ". TestProgram"), caught},
		{row("in that, and built alone", "7", "8", ". TestProgram"), caught},
		{row("outside of functions", "first = 0", "first = 1", ". TestOthers"), caught},
		{row("panics", "s += i", "panic(i)", ". Test[S]um"), caught},
		{row("noticed at the second try", "s += i", "s += i + 1", ". TestLate"), caught},
		{same, equivalent},
		{row("unnoticed", "s += i", "s -= i", ". TestNothing"), survived},
		{row("not there", "s *= i", "s += i", ". TestSum"), outdated},
		{row("there twice", "return", "panic", ". TestSum"), outdated},
		{row("ends never", "return s", "for {\n\t\ts++\n\t}", ". TestSum -timeout 1s"), broken},
		{row("no code", "s += i", "s += ", ". TestSum"), broken},
		{row("no such test", "s += i", "s -= i", ". TestProduct"), broken},
		{row("fails anyway", "s += i", "s -= i", ". TestFails -count 1"), broken},
		// and no binary contains it
		{row("not for the compiler", "s += i", "s += nothing", ". TestSum"), broken},
	}
	built, err := newTests(t.Context(), dir, t.TempDir(),
		[]mutant{rows[0].mutant, rows[1].mutant, rows[2].mutant})
	if err != nil || len(built.numbers) != 2 || built.binaries["."] == "" {
		t.Errorf(
			"%v: of three mutants those are woven in that have names for their parameters: %+v",
			err, built)
	}
	for _, n := range []int{len(rows) - 1, len(rows)} {
		var played []mutant
		for _, r := range rows[:n] {
			played = append(played, r.mutant)
		}
		results, err := play(t.Context(), dir, played, func(result) {})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			var out strings.Builder
			good := report(&out, results[i:i+1])
			if want := rows[i].want; r.verdict != want ||
				good != (want == caught || want == equivalent) {
				t.Errorf("of %d: %s, good %v, want %s:\n%s", n, r.verdict, good, want, &out)
			}
		}
	}
}
