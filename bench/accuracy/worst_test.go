package main

import (
	"math/rand/v2"
	"testing"
)

// changesInTests suffice for a search to come near, and are few enough for the race detector.
const changesInTests = 100

// TestNoRulePassesMoreThanItStates also shows that the constructed histories are the worst.
func TestNoRulePassesMoreThanItStates(t *testing.T) {
	for _, w := range worstCases(1, changesInTests) {
		if w.most() > w.bound {
			t.Errorf("%s, limit %d, %d µs: constructed %d, found %d, stated %d",
				w.subject.name, w.limit, w.length, w.constructed, w.found, w.bound)
		}
		if w.constructed < w.bound && w.length > 1 {
			// at one instant a fixed window passes its limit, over an edge twice
			t.Errorf("%s, limit %d, %d µs: constructed only %d, stated %d", w.subject.name, w.limit,
				w.length, w.constructed, w.bound)
		}
		if w.limit <= mostSearched && 10*w.found < 8*w.constructed {
			t.Errorf("%s, limit %d, %d µs: found only %d, constructed %d", w.subject.name, w.limit,
				w.length, w.found, w.constructed)
		}
	}
}

// TestOddLimitsPassNoMoreThanStated uses limits that do not divide a window, and intervals close to
// the time of a few units.
func TestOddLimitsPassNoMoreThanStated(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range subjects {
		rounding := int64(0)
		if _, ok := s.fresh(1).(*departing); ok {
			// delays are rounded up to a microsecond, so two departures may be one closer
			rounding = 1
		}
		for _, limit := range []int64{1, 3, 7, 13, 97} {
			for range 20 {
				length := max(1,
					min(windowMicros,
						mulDiv(random.Int64N(limit+1), windowMicros, limit)+random.Int64N(4)))
				constructed, found := s.constructed(limit, length), s.search(random, 20, limit,
					length)
				if bound := s.bound(limit, length-1+rounding); max(constructed, found) > bound {
					t.Errorf("%s, limit %d, %d µs: constructed %d, found %d, stated %d", s.name,
						limit, length, constructed, found, bound)
				}
			}
		}
	}
}

func TestMostCountsHalfOpenIntervals(t *testing.T) {
	history := []passed{{30, 2}, {10, 3}, {20, 4}, {10, 1}}
	for _, c := range []struct {
		length, want int64
	}{{1, 4}, {10, 4}, {11, 8}, {20, 8}, {21, 10}, {1000, 10}} {
		if got := most(history, c.length); got != c.want {
			t.Errorf("%d in %d, want %d", got, c.length, c.want)
		}
	}
	if got := most(nil, 10); got != 0 {
		t.Errorf("%d of nothing", got)
	}
}

func TestMostAgainstABruteForceSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		var history []passed
		for range random.IntN(12) {
			history = append(history, passed{random.Int64N(40), 1 + random.Int64N(5)})
		}
		length := 1 + random.Int64N(45)
		var want int64
		for from := int64(-50); from <= 50; from++ {
			var sum int64
			for _, p := range history {
				if p.at >= from && p.at < from+length {
					sum += p.units
				}
			}
			want = max(want, sum)
		}
		if got := most(history, length); got != want {
			t.Errorf("%d in %d of %v, want %d", got, length, history, want)
		}
	}
}

func TestDepartures(t *testing.T) {
	k := &departing{rule: leakingBucket(4)}
	history, wait := k.ask(nil, 0, 9)
	if len(history) != 4 || wait != windowMicros/4 {
		t.Fatalf("%v pass, and one more in %d µs", history, wait)
	}
	for i, p := range history {
		if want := int64(i) * windowMicros / 4; p.at != want || p.units != 1 {
			t.Errorf("unit %d leaves at %d, want %d", i, p.at, want)
		}
	}
}
