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

func TestTheStrictPageHasEveryCell(t *testing.T) {
	dir := t.TempDir()
	cells := make([]strictCell, len(latencies))
	cells[0] = strictCell{perSecond: 99, accepted: 1485, refused: 1234}
	if err := writeStrict(dir, []strictRow{
		{name: "Penstock", setting: "`a, count_from: answer`", cells: cells},
		{name: "BullMQ", setting: "`b`", version: "6.7.0", cells: cells}}); err != nil {
		t.Fatal(err)
	}
	for file, wants := range map[string][]string{
		"compare-strict.md":  {"| BullMQ | `b` | 99.0 (-0.9 %) | 1,234 |", ", BullMQ 6.7.0."},
		"compare-strict.svg": {"counted from the answer", "429s in a minute"},
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

func TestAStrictTargetRefuses(t *testing.T) {
	to, err := newTarget()
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	to.strict = true
	failed := 0
	for i := range limit + 3 {
		if err := post(t.Context(), to.url, body(i)); err != nil {
			failed++
		}
	}
	all := to.arrived()
	if took := all[len(all)-1].at - all[0].at; took < time.Second &&
		(failed != 3 || to.refusals() != 3 || len(all) != limit) {
		t.Errorf("%d failed, %d refused and %d accepted in %v", failed, to.refusals(),
			len(all), took)
	}
}
