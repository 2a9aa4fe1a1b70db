package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// runs is a timing in nanoseconds on one core and on two.
func runs(one, two float64) timing {
	return timing{cores: [2]series{{{ns: one}}, {{ns: two}}}}
}

func TestRatiosAreToTheFastestPeer(t *testing.T) {
	all := []contestant{
		{name: "us", ours: true},
		{name: "no keys", unkeyed: true}, {name: "slow"}, {name: "fast"},
	}
	measured := []timing{runs(60, 61), runs(1, 1), runs(200, 300), runs(100, 100)}
	got := timeTable(keySet{title: "Keys", goal: true}, all, measured)
	want := [][]string{
		{"us", "", "60", "0.60", "61", "0.61", "0.00", "MISSED: ratio, 2 cores"},
		{"no keys", "", "1", "0.01", "1", "0.01", "0.00", ""},
		{"slow", "", "200", "2.00", "300", "3.00", "0.00", ""},
		{"fast", "", "100", "1.00", "100", "1.00", "0.00", ""},
	}
	if !slices.EqualFunc(got.Table[1:], want, slices.Equal[[]string]) {
		t.Errorf("%q, want %q", got.Table[1:], want)
	}
	measured[1] = timing{}
	without := timeTable(keySet{}, all, measured)
	if n := len(without.Table); n != 4 {
		t.Errorf("%d lines, want a heading and the three that were measured", n)
	}
	if v := without.Table[1][7]; v != "ok" {
		t.Errorf("%q where there is no goal for the ratio", v)
	}
}

func TestAllocationsMiss(t *testing.T) {
	all := []contestant{{name: "us", ours: true}, {name: "peer"}}
	measured := []timing{runs(1, 1), runs(2, 2)}
	measured[0].cores[1][0].allocs = 1
	if v := timeTable(keySet{}, all, measured).Table[1][7]; v != "MISSED: allocations" {
		t.Errorf("%q with an allocation on two cores", v)
	}
}

func TestHeapTable(t *testing.T) {
	all := []contestant{{name: "us", ours: true}, {name: "no keys", unkeyed: true},
		{name: "peer"}}
	got := heapTable(all, [][]float64{{96, 96.1}, nil, {150, 60}})
	want := [][]string{
		{"limiter", "algorithm", "100,000 keys", "1,000,000 keys", ""},
		{"us", "", "96.0", "96.1", "MISSED: 1,000,000 keys"},
		{"peer", "", "150.0", "60.0", ""},
	}
	if !slices.EqualFunc(got.Table, want, slices.Equal[[]string]) {
		t.Errorf("%q, want %q", got.Table, want)
	}
}

func TestPageHasTheTablesOfAPart(t *testing.T) {
	r := report{machine: "a machine", rounds: 5, length: 200 * time.Millisecond}
	mine := table{part: "memory", title: "One key"}
	mine.Add("limiter", "ns")
	mine.Add("us", "60")
	other := table{part: "elsewhere", title: "Another part"}
	r.tables = []table{other, mine}
	text, err := r.markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"on a machine.", "median of 5 rounds", "200ms each",
		"### One key\n\n| limiter | ns |\n|---|---|\n| us | 60 |\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(string(text), "Another part") {
		t.Error("the page has a table where it does not belong")
	}
}
