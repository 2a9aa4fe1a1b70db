package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheReportHasGrowthExponents(t *testing.T) {
	var r report
	for _, n := range []int{10, 100, 1000} {
		r.add("policies", n, []figure{
			{"linear", "s", float64(2 * n), float64(n)},
			{"constant", "MB", 5, math.NaN()},
			{"quadratic", "s", float64(n * n), 0},
		})
	}
	text := r.table().Markdown()
	for _, want := range []string{
		"| policies | 1,000 | linear | s | 2,000 | 1,000 | 2.0 | 1.00 |",
		"| policies | 1,000 | constant | MB | 5 |  |  | 0.00 |",
		"| policies | 1,000 | quadratic | s | 1,000,000 | 0 |  | 2.00 |",
		"| policies | 10 | linear | s | 20 | 10 | 2.0 |  |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %s:\n%s", want, text)
		}
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"scale-table.md", "scale-policies.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() > 200_000 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
