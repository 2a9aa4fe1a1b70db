package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

// every returns n arrivals, numbered from a number on.
func every(interval time.Duration, n, from int) (all []arrival) {
	for i := range n {
		all = append(all, arrival{time.Duration(i) * interval, from + i})
	}
	return all
}

func TestTheWorstSecondIsHalfOpen(t *testing.T) {
	comb := every(10*time.Millisecond, 300, 0)
	if most, _ := paper.WorstSecond(times(comb)); most != 100 {
		t.Errorf("a perfect comb of 100 a second has %d in its worst second", most)
	}
	comb[200].at = comb[199].at
	if most, ends := paper.WorstSecond(times(comb)); most != 101 || ends != comb[200].at {
		t.Errorf("%d up to %v, want 101 up to %v", most, ends, comb[200].at)
	}
}

func TestRateAndStandstill(t *testing.T) {
	all := every(20*time.Millisecond, 101, 0)
	if got := perSecond(all); got != 50 {
		t.Errorf("%v a second, want 50", got)
	}
	all[100].at += time.Second
	if got := standstill(all); got != 1020*time.Millisecond {
		t.Errorf("nothing for %v, want 1.02 s", got)
	}
}

func TestEachJobsFateIsCounted(t *testing.T) {
	all := append(every(time.Millisecond, 8, 0), arrival{time.Second, 3}, arrival{time.Second, 3})
	if never, again := fate(all, 10); never != 2 || again != 1 {
		t.Errorf("%d never, %d again, want 2 and 1", never, again)
	}
}

func TestAPageHasEverySystem(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir, []result{
		{name: "one", setting: "`a`", version: "v1", first: true, jobs: 2, back: true,
			paced: every(time.Millisecond, 9, 0), killed: every(time.Millisecond, 2, 0), one: 1234},
		{name: "two", jobs: 3, paced: every(time.Second, 9, 0), killed: every(time.Second, 2, 0)},
	}, options{jobs: 9, many: 10}); err != nil {
		t.Fatal(err)
	}
	for file, wants := range map[string][]string{
		"compare.md": {"| one | two |", "| 1,234 | as before |", "not all within 3m0s",
			"| 0 · 0 | 1 · 0 |"},
		"compare.svg": {"one, a: worst second 9", "two"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q:\n%s", file, want, text)
			}
		}
	}
}

func TestAJobsNumberSurvivesItsBody(t *testing.T) {
	if got, err := numberOf(body(4711)); err != nil || got != 4711 {
		t.Errorf("%d, %v", got, err)
	}
	if n := len(body(7)); n < bodyBytes {
		t.Errorf("a body has %d bytes", n)
	}
	if _, err := numberOf([]byte("no job")); err == nil {
		t.Error("something else has a number")
	}
}
