package main

import (
	"slices"
	"testing"
	"time"
)

const ms1 = int64(time.Millisecond)

func every(interval time.Duration, n int) []int64 {
	at := make([]int64, n)
	for i := range at {
		at[i] = int64(i) * int64(interval)
	}
	return at
}

func TestPaceNeedsNoWholeSeconds(t *testing.T) {
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
	slow := paceOf([]int64{0, 1000 * ms1, 2100 * ms1}, 1)
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

func TestInventedPointsAreNotMeasured(t *testing.T) {
	at := every(10*time.Millisecond, 1000)
	for i := 1; i < 500; i++ { // the second start is half a second late, and that is made up
		at[i] += int64(500-i) * ms1
	}
	for from, want := range map[int64]int64{0: 0, 1000 * ms1: 4910 * ms1, 6000 * ms1: 6000 * ms1} {
		if got := caughtUp(at, 100, from, 10_000*ms1); got != want {
			t.Errorf("from %d ms: measured from %d ms, want %d", from/ms1, got/ms1, want/ms1)
		}
	}
	if got := caughtUp(at, 100, 1000*ms1, 2000*ms1); got != 1000*ms1 {
		t.Errorf("never made up: measured from %d ms, want all of it", got/ms1)
	}
}

func TestStallsAreDelaysAboveTheLimit(t *testing.T) {
	wakes := []int64{0, 10 * ms1, 24 * ms1, 30 * ms1, 48 * ms1}
	longest, all := stalls(wakes, 10*time.Millisecond)
	if want := []stall{{40 * ms1, 48 * ms1}}; longest != 8*time.Millisecond ||
		!slices.Equal(all, want) {
		t.Errorf("longest %v, all %v, want 8ms and %v: 4 ms late is no stall", longest, all, want)
	}
}

func TestTimeLostToStalls(t *testing.T) {
	all := []stall{{10, 20}, {30, 50}, {70, 80}}
	for _, c := range []struct {
		from, to int64
		want     time.Duration
	}{{0, 10, 0}, {20, 30, 0}, {0, 100, 40}, {15, 35, 10}, {35, 40, 5}, {80, 90, 0}} {
		if got := lost(all, c.from, c.to); got != c.want {
			t.Errorf("of %d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
}

func TestMostIn1s(t *testing.T) {
	for want, s := range map[int]setting{
		2:    {rate: 1},
		11:   {rate: 10},
		102:  {rate: 100},
		5073: {rate: 5000},
		1043: {rate: 1000, peak: 1040},
		1012: {rate: 1000, peak: 1000, burst: 10},
	} {
		if got := s.mostIn1s(); got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
}

func TestSettingsAreRead(t *testing.T) {
	for text, want := range map[string]setting{
		"100":         {rate: 100},
		"100/104":     {rate: 100, peak: 104},
		"100/104/5":   {rate: 100, peak: 104, burst: 5},
		"100/0/5":     {rate: 100, burst: 5},
		"20000/40000": {rate: 20_000, peak: 40_000},
	} {
		if got, ok := parseSetting(text); !ok || got != want {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "0", "-1", "100/99", "1/2/3/4", "20001", "100/x", "1e3"} {
		if got, ok := parseSetting(text); ok {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func TestABusyRowIsExcusedOnlyBeyondItsPeak(t *testing.T) {
	at := every(time.Millisecond, 14_800) // 1.3 % too slow
	for i := range at {
		at[i] += at[i] / 74
	}
	wakes := every(time.Millisecond, 15_000) // with the machine stalled for 2 % of the time
	for i := range wakes {
		wakes[i] += int64(i/1000) * 20 * ms1
	}
	for _, c := range []struct {
		peak int
		want []string
	}{{1040, []string{"error"}}, {0, nil}} {
		r := rowOf(setting{rate: 1000, peak: c.peak, busy: true}, at, wakes, time.Millisecond)
		if missed := r.missed(); !slices.Equal(missed, c.want) {
			t.Errorf("peak %d: misses %v, want %v (stalled %v)", c.peak, missed, c.want, r.stalled)
		}
	}
}

func TestANeighbourTakesItsShareOfTheTime(t *testing.T) {
	const during = 10 * time.Minute
	var sum, last time.Duration
	for _, t2 := range thefts(busySeed, during) {
		length := t2.end - t2.begin
		if t2.begin < last || length < shortTheft[0] || length > longTheft[1] {
			t.Fatalf("from %v to %v, after %v", t2.begin, t2.end, last)
		}
		sum, last = sum+length, t2.end
	}
	if share := sum.Seconds() / during.Seconds(); share < 0.018 || share > 0.022 {
		t.Errorf("%v of the time, want %v", share, neighbourShare)
	}
	if !slices.Equal(thefts(1, during), thefts(1, during)) ||
		slices.Equal(thefts(1, during), thefts(2, during)) {
		t.Error("a seed has not its own")
	}
}

func TestVerdictNamesMissedGoals(t *testing.T) {
	s := setting{rate: 100, drainers: 1}
	good := rowOf(s, every(10*time.Millisecond, 1500), every(10*time.Millisecond, 1500),
		10*time.Millisecond)
	if missed := good.missed(); len(missed) > 0 {
		t.Errorf("a perfect drain misses %v", missed)
	}
	bad := rowOf(s, every(9*time.Millisecond, 1500), every(5*time.Millisecond, 1500),
		5*time.Millisecond)
	if missed := bad.missed(); !slices.Equal(missed, []string{"error", "1 s", "gap p99"}) {
		t.Errorf("a drain at 111/s misses %v", missed)
	}
}

func TestStallsExcuseTheStartsDuringAndAfterThem(t *testing.T) {
	const second, ms = int64(time.Second), int64(time.Millisecond)
	var starts []start
	for key, late := range [][]int64{{0, 0, 0, 0}, {0, 95, 90, 86}, {0, 60, 60, 60}} {
		for i, late := range late {
			starts = append(starts, start{At: int64(i)*second + late*ms + int64(key)*second/2,
				mark: mark{Key: uint32(key), Number: uint32(i)}})
		}
	}
	// key 1 is due at the beginning of the stall, the others are due outside of it
	all := []stall{{second + 450*ms, second + 590*ms}}
	var got []time.Duration
	for _, s := range latenesses(starts, 0, 10*second, all) {
		got = append(got, s.late)
	}
	slices.Sort(got)
	want := []time.Duration{0, 0, 0, 0, 0, 0, 4500 * time.Microsecond, 5 * time.Millisecond,
		5 * time.Millisecond, 60 * time.Millisecond, 60 * time.Millisecond, 60 * time.Millisecond}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestABucketThatMakesUpForLatenessIsNotLate(t *testing.T) {
	var starts []start
	for i := range int64(15) {
		for key, sped := range []int64{0, int64(madeUp)} {
			at := i*(int64(time.Second)-sped) + i%2*int64(time.Millisecond)
			starts = append(starts, start{At: at,
				mark: mark{Key: uint32(key), Number: uint32(i)}})
		}
	}
	for _, s := range latenesses(starts, 0, 20*int64(time.Second), nil) {
		if s.late > time.Millisecond {
			t.Errorf("a start is %v late, want at most 1 ms", s.late)
		}
	}
}
