package main

import (
	"fmt"
	"testing"
)

func judged(limit int64, hundredths ...int64) keyResult {
	var times []int64
	for _, h := range hundredths {
		times = append(times, h*windowMicros/100)
	}
	var j judge
	j.load(times)
	return j.decide(limit, 0)
}

func TestJudgeOfFewRequests(t *testing.T) {
	for _, c := range []struct {
		name       string
		hundredths []int64
		limit      int64
		want       [views]wrong
	}{
		{"below the limit", []int64{10, 20, 130}, 5, [views]wrong{}},
		// Two at the end of a window weigh 1.9 five hundredths into the next one, rounded down 1:
		// one more passes.
		{"late in the window before", []int64{90, 90, 105}, 2,
			[views]wrong{{allowed: 1}, {allowed: 1}, {allowed: 1}}},
		// Two at the beginning have left the log, and weigh 1.6 for the counter. Counting all, the
		// estimate is the same, and the log holds one request and then two.
		{"early in the window before", []int64{0, 0, 120, 120}, 2,
			[views]wrong{{refused: 1}, {refused: 1}, {refused: 1}}},
		// With that free place unseen, every further request is wrong given the same past, but a
		// log would have given it to the first one.
		{"hammering", []int64{0, 0, 120, 120, 120, 120}, 2,
			[views]wrong{{refused: 3}, {refused: 1}, {refused: 1}}},
		// A request exactly a window ago no longer counts; the counter still gives it full weight.
		{"exactly a window later", []int64{0, 100}, 1,
			[views]wrong{{refused: 1}, {refused: 1}, {refused: 1}}},
	} {
		if got := judged(c.limit, c.hundredths...); got.wrong != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got.wrong, c.want)
		}
	}
}

// naive is a judge that counts by a full scan, with an independent formula for estimates.
func naive(limit int64, times []int64) (r keyResult) {
	inWindow := func(recorded []int64, t int64) (n int64) {
		for _, at := range recorded {
			if at > t-windowMicros && at <= t {
				n++
			}
		}
		return n
	}
	estimated := func(recorded []int64, t int64) int64 {
		var previous, current int64
		for _, at := range recorded {
			switch t/windowMicros - at/windowMicros {
			case 0:
				current++
			case 1:
				previous++
			}
		}
		return previous*(windowMicros-t%windowMicros)/windowMicros + current
	}
	var accepted, logged, offered []int64
	for _, t := range times {
		count, estimate := inWindow(accepted, t), estimated(accepted, t)
		passes := estimate+1 <= limit
		if float64(max(count, estimate)+1) >= 0.8*float64(limit) {
			r.near++
		}
		r.wrong[samePast].compare(passes, count+1 <= limit)
		logPasses := inWindow(logged, t)+1 <= limit
		r.wrong[twoSystems].compare(passes, logPasses)
		count, estimate = inWindow(offered, t)+1, estimated(offered, t)+1
		r.wrong[countingAll].compare(estimate <= limit, count <= limit)
		r.offered, r.estimated = max(r.offered, count), max(r.estimated, estimate)
		if count*10 >= 8*limit && count*10 <= 12*limit {
			r.close++
		}
		r.requests++
		offered = append(offered, t)
		if passes {
			accepted = append(accepted, t)
			r.accepted++
			r.most = max(r.most, inWindow(accepted, t))
		}
		if logPasses {
			logged = append(logged, t)
			r.logAccepted++
		}
	}
	return r
}

func TestJudgeAgainstANaiveOne(t *testing.T) {
	var j judge
	var wrongs [views]wrong
	for seed := range uint64(6) {
		s := stream{windows: 8, seed: seed}
		for _, kind := range allTraffic {
			for rank, n := range []int64{3, 40, 130, 400, 900} {
				times := s.arrivals(nil, kind, rank, n)
				j.load(times)
				for _, limit := range []int64{1, 5, 7, 10, 50, 100} {
					want := naive(limit, times)
					want.rank = rank
					if got := j.decide(limit, rank); got != want {
						t.Errorf("seed %d, %s, %d requests, limit %d:\n%+v, want\n%+v", seed,
							kind.name, n, limit, got, want)
					}
					for v, w := range want.wrong {
						wrongs[v].add(w)
					}
				}
			}
		}
	}
	for v, w := range wrongs {
		if w.allowed < 100 || w.refused < 100 {
			t.Errorf("%s: only %+v were wrong at all", view(v), w)
		}
	}
}

func TestDifference(t *testing.T) {
	var j judge
	j.load([]int64{0, 0, 0, 0, windowMicros * 3 / 2})
	if got := j.difference(); got != 2_000_000 {
		t.Errorf("differs by %d millionths, want 2000000", got)
	}
}

func TestFalseNegativesAndPositives(t *testing.T) {
	for _, c := range []struct {
		hundredths      []int64
		missed, accused bool
	}{
		{[]int64{90, 90, 105}, true, false},    // three in the last window, two estimated
		{[]int64{0, 0, 120, 120}, false, true}, // two at most, three estimated
		{[]int64{10, 10, 10}, false, false},
		{[]int64{10, 80, 150}, false, false},
		{[]int64{10, 10, 290, 290}, false, false}, // an empty previous window
	} {
		if r := judged(2, c.hundredths...); r.missed(2) != c.missed || r.accused(2) != c.accused {
			t.Errorf("%v: missed %t, accused %t", fmt.Sprint(c.hundredths), r.missed(2),
				r.accused(2))
		}
	}
}
