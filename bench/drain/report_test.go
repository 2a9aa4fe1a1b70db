package main

import (
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFigureVerdict(t *testing.T) {
	f := figure{value: 50}
	for _, c := range []struct {
		figure figure
		want   string
	}{{f, ""}, {f.atLeast(50), "ok"}, {f.atLeast(51), "MISSED"}, {f.atMost(50), "ok"},
		{f.atMost(49), "MISSED"}} {
		if got := c.figure.verdict(); got != c.want {
			t.Errorf("50 %s: %q, want %q", c.figure.must(), got, c.want)
		}
	}
}

func TestReportWritesTablesAndPicture(t *testing.T) {
	dir := t.TempDir()
	r := report{name: "bench-drain", command: "bench-depth JOBS=7", machine: "a machine"}
	for _, rate := range []int{1, 5000} {
		interval := time.Second / time.Duration(rate)
		r.rows = append(r.rows, rowOf(setting{rate: rate, drainers: 4}, every(interval, 5*rate),
			every(time.Millisecond, 5000), time.Millisecond))
	}
	r.figures = []figure{perSecond("throughput", "jobs", 49_000).atLeast(50_000)}
	if err := errors.Join(r.write(dir), r.writeData(dir)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "bench-drain.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(table) != 3 || table[0][0] != "outflow_per_second" || table[2][0] != "5000" {
		t.Errorf("table %v", table)
	}
	if names := slices.Sorted(slices.Values(table[0])); len(slices.Compact(names)) !=
		len(rowColumns) {
		t.Errorf("columns %v: a name is there twice", table[0])
	}
	page, err := os.ReadFile(filepath.Join(dir, "bench-drain-table.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| throughput | jobs | 49000 | /s | ≥ 50000 | MISSED |",
		"Made by `make bench-depth JOBS=7` on a machine.", "mean](benchmarks.md#bench-depth)."} {
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks %s:\n%s", line, page)
		}
	}
	picture, err := os.ReadFile(filepath.Join(dir, "bench-drain.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"1/s, 4 drainers: departures",
		"5000/s, 4 drainers: in one second"} {
		if !strings.Contains(string(picture), title) {
			t.Errorf("the picture lacks %q", title)
		}
	}
}

func TestMarksSurviveBodies(t *testing.T) {
	m := mark{Published: 1 << 40, Group: 2, Key: 99_999, Number: 4}
	got, err := readMark(m.body())
	if err != nil || got != m {
		t.Errorf("%v, %v; want %v", got, err, m)
	}
	if _, err := readMark([]byte("short")); err == nil {
		t.Error("a short body has a mark")
	}
}

func TestDumpAndLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "starts")
	want := []start{{At: 1, mark: mark{Published: 2, Group: 3, Key: 4, Number: 5}}, {At: 6}}
	if err := dump(file, want); err != nil {
		t.Fatal(err)
	}
	got, err := load[start](file)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
