package main

import (
	"slices"
	"testing"
	"time"
)

const ms1 = int64(time.Millisecond)

// every returns n instants an interval apart.
func every(interval time.Duration, n int) []int64 {
	at := make([]int64, n)
	for i := range at {
		at[i] = int64(i) * int64(interval)
	}
	return at
}

func TestPaceNeedsNoWholeSeconds(t *testing.T) {
	// ten intervals of 0.3 s, where 1/3 s each was right
	p := paceOf(every(300*time.Millisecond, 11), 3)
	if p.measured < 3.3333 || p.measured > 3.3334 {
		t.Errorf("measured %v starts/s, want 3.3333", p.measured)
	}
	if err := p.err(3); err < 11.1 || err > 11.2 {
		t.Errorf("error %v %%, want 11.1", err)
	}
	if p.starts != 11 || p.span != 3 {
		t.Errorf("%d starts in %v s, want 11 in 3", p.starts, p.span)
	}
}

func TestNetForgivesOnlyLateness(t *testing.T) {
	slow := paceOf([]int64{0, 1000 * ms1, 2100 * ms1}, 1) // 0.1 s too long
	for _, c := range []struct {
		stalled, want float64
	}{{0, -100 * 0.1 / 2.1}, {0.04, -100 * 0.06 / 2.1}, {0.1, 0}, {3, 0}} {
		if got := slow.net(1, c.stalled); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("net of %v s of stalls: %v %%, want %v", c.stalled, got, c.want)
		}
	}
	fast := paceOf([]int64{0, 900 * ms1, 1800 * ms1}, 1)
	if got, want := fast.net(1, 5), fast.err(1); got != want {
		t.Errorf("too fast: net %v %%, want the whole %v", got, want)
	}
}

func TestMostCountsHalfOpenWindows(t *testing.T) {
	at := every(100*time.Millisecond, 30)
	if n := most(at, time.Second); n != 10 {
		t.Errorf("%d in 1 s, want 10: the window ends before the eleventh", n)
	}
	if n := most([]int64{0, 1, 2, 5000 * ms1}, 100*time.Millisecond); n != 3 {
		t.Errorf("%d in 100 ms, want 3", n)
	}
	if n := most(nil, time.Second); n != 0 {
		t.Errorf("%d without starts", n)
	}
}

func TestLatenessIsFittedAtTheBeginning(t *testing.T) {
	at := every(100*time.Millisecond, 50)
	for i := range at { // the first start is 3 ms late, the others 1 ms; from 2 s on 6 ms
		switch {
		case i == 0:
			at[i] += 3 * ms1
		case i < 20:
			at[i] += ms1
		default:
			at[i] += 6 * ms1
		}
	}
	late := lateness(at, 10)
	want := slices.Concat(slices.Repeat([]time.Duration{0}, 19),
		[]time.Duration{2 * time.Millisecond},
		slices.Repeat([]time.Duration{5 * time.Millisecond}, 30))
	if !slices.Equal(late, want) {
		t.Errorf("late %v, want %v", late, want)
	}
}

func TestStallsAreWhatIsAboveTheLimit(t *testing.T) {
	wakes := []int64{0, 10 * ms1, 24 * ms1, 30 * ms1, 48 * ms1} // gaps of 10, 14, 6 and 18 ms
	longest, sum := stalls(wakes, 10*time.Millisecond)
	if longest != 8*time.Millisecond || sum != 8*time.Millisecond {
		t.Errorf("longest %v, sum %v, want 8ms and 8ms: 4 ms late is no stall", longest, sum)
	}
}

func TestMostIn1s(t *testing.T) {
	for rate, want := range map[float64]int{1: 2, 10: 11, 100: 102, 1000: 1015, 5000: 5073} {
		if got := mostIn1s(rate, 1); got != want {
			t.Errorf("at %v/s: %d, want %d", rate, got, want)
		}
	}
}

func TestVerdictNamesWhatMisses(t *testing.T) {
	good := rowOf(100, 1, every(10*time.Millisecond, 1500), every(10*time.Millisecond, 1500),
		10*time.Millisecond)
	if missed := good.missed(); len(missed) > 0 {
		t.Errorf("a perfect drain misses %v", missed)
	}
	bad := rowOf(100, 1, every(9*time.Millisecond, 1500), every(5*time.Millisecond, 1500),
		5*time.Millisecond)
	if missed := bad.missed(); !slices.Equal(missed, []string{"error", "1 s", "gap p99"}) {
		t.Errorf("a drain at 111/s misses %v", missed)
	}
}
