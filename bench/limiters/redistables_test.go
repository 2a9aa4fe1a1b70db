package main

import (
	"slices"
	"testing"
	"time"
)

func equalLines(t *testing.T, got table, want [][]string) {
	t.Helper()
	if !slices.EqualFunc(got.Table[1:], want, slices.Equal[[]string]) {
		t.Errorf("%q, want %q", got.Table[1:], want)
	}
	for _, line := range got.Table {
		if len(line) != len(got.Table[0]) {
			t.Errorf("%d cells in %q, %d in the heading", len(line), line, len(got.Table[0]))
		}
	}
}

func TestSpeedTable(t *testing.T) {
	all := []contestant{
		{name: "us", ours: true}, {name: "us, late", ours: true},
		{name: "peer"},
	}
	measured := []turns{
		{{perSecond: 30_000, p50: time.Millisecond, p99: 3 * time.Millisecond, perCall: 20}},
		{{perSecond: 24_000, p50: time.Millisecond, p99: 5 * time.Millisecond, perCall: 20}},
		{{perSecond: 1, p99: time.Second, perCall: 1},
			{perSecond: 10_000, p50: 2 * time.Millisecond, p99: 4 * time.Millisecond, perCall: 1},
			{perSecond: 20_000, p99: time.Microsecond, perCall: 1}},
	}
	equalLines(t, speedTable(redisKeySet{least: 2.5}, all, measured), [][]string{
		{"us", "", "30,000", "3.0", "1.00 ms", "3.00 ms", "0.75", "20.0", "ok"},
		{"us, late", "", "24,000", "2.4", "1.00 ms", "5.00 ms", "1.25", "20.0",
			"MISSED: ratio, p99"},
		{"peer", "", "10,000", "1.0", "0.00 ms", "4.00 ms", "1.00", "1.0", ""},
	})
}

func TestCeilingTable(t *testing.T) {
	c := newCeiling("token bucket", scriptCall{keys: 1}, scriptCall{keys: 17})
	for i, r := range c.replays {
		r.perSecond = []float64{1, float64(i+1) * 1000, 1_000_000}
	}
	all := []contestant{{name: "peer", algorithm: "token bucket"},
		{name: "us", algorithm: "token bucket", ours: true}}
	measured := []turns{{{perSecond: 1}}, {{perSecond: 3000}}}
	equalLines(t, ceilingTable([]*ceiling{c}, all, measured), [][]string{
		{"token bucket", "1,000", "2,000", "17", "3,000", "4,000", "3,000", "75 %"},
	})
}

func TestFloodTable(t *testing.T) {
	all := []contestant{{name: "us", algorithm: "token bucket"}}
	measured := [][]flooding{{{refusals: 40_000, elapsed: 2 * time.Second, calls: 2}}}
	equalLines(t, floodTable(all, measured), [][]string{{"us", "token bucket", "20,000", "0.50"}})
}

func TestWeightTable(t *testing.T) {
	w := weight{holder: holder{name: "us", algorithm: "token bucket", keys: 10_000},
		example: "a:{b}", name: 5, usage: 72, used: 90.5}
	equalLines(t, weightTable([]weight{w}), [][]string{
		{"us", "token bucket", "10,000", "`a:{b}`", "72.0", "67.0", "90.5", "85.5"},
	})
}
