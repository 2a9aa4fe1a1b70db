package main

import (
	"slices"
	"testing"
)

func TestSharesFollowZipf(t *testing.T) {
	for _, s := range []stream{{requests: 10_000_000, keys: 100_000}, {requests: 1001, keys: 7},
		{requests: 5, keys: 1}, {requests: 3, keys: 10}} {
		shares := s.shares()
		var sum int64
		for _, n := range shares {
			sum += n
		}
		if sum != s.requests || len(shares) != s.keys {
			t.Errorf("%d requests of %d keys: shared out %d to %d", s.requests, s.keys, sum,
				len(shares))
		}
	}
	shares := stream{requests: 10_000_000, keys: 100_000}.shares()
	for _, rank := range []int{1, 2, 9, 99, 999} {
		if got, want := shares[rank], shares[0]/int64(rank+1); got < want-1 || got > want+1 {
			t.Errorf("rank %d has %d, want %d", rank, got, want)
		}
	}
}

func TestArrivalsAreOrderedAndInTime(t *testing.T) {
	s := stream{windows: 7, seed: 3}
	for _, kind := range allTraffic {
		for rank, n := range []int64{1, 2, 500} {
			at := s.arrivals(nil, kind, rank, n)
			if int64(len(at)) != n || !slices.IsSorted(at) || at[0] < 0 || at[n-1] >= s.duration() {
				t.Errorf("%s: %d arrivals of %d, sorted: %t, from %d to %d", kind.name, len(at), n,
					slices.IsSorted(at), at[0], at[len(at)-1])
			}
			if again := s.arrivals(make([]int64, 0, 9), kind, rank, n); !slices.Equal(at, again) {
				t.Errorf("%s: the same key arrives otherwise", kind.name)
			}
			if other := s.arrivals(nil, kind, rank+1, n); slices.Equal(at, other) {
				t.Errorf("%s: two keys arrive alike", kind.name)
			}
		}
	}
}

// TestBurstsAreAsBurstyAsTheySay compares the variance of counts in a hundredth of a window with
// their mean: for a Poisson process they are equal, for on-off phases the variance is several times
// the mean, growing with burstiness.
func TestBurstsAreAsBurstyAsTheySay(t *testing.T) {
	const slot = windowMicros / 100
	s := stream{windows: 400, seed: 5}
	last := 0.5
	for _, kind := range allTraffic {
		counts := make([]float64, s.duration()/slot)
		for _, at := range s.arrivals(nil, kind, 0, 400_000) {
			counts[at/slot]++
		}
		var sum, squares float64
		for _, n := range counts {
			sum, squares = sum+n, squares+n*n
		}
		mean := sum / float64(len(counts))
		dispersion := (squares/float64(len(counts)) - mean*mean) / mean
		if kind.burst == 1 && (dispersion < 0.95 || dispersion > 1.05) {
			t.Errorf("%s: variance %.3f × mean, want 1", kind.name, dispersion)
		}
		if dispersion < 2*last {
			t.Errorf("%s: variance %.1f × mean, after %.1f", kind.name, dispersion, last)
		}
		last = dispersion
	}
}

func TestPhasesLastTheirShare(t *testing.T) {
	for _, kind := range allTraffic[1:] {
		s := stream{windows: 5000, seed: 1}
		at := s.arrivals(nil, kind, 0, 2_000_000)
		// gaps of a fiftieth of a window are silence: 400 requests in a window on average
		quiet := int64(0)
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap > windowMicros/50 {
				quiet += gap
			}
		}
		got, want := 1-float64(quiet)/float64(s.duration()), 1/float64(kind.burst)
		if got < 0.9*want || got > 1.15*want {
			t.Errorf("%s: sends %.4f of the time, want %.4f", kind.name, got, want)
		}
	}
}
