package main

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("of %v: %v, want %v", c.values, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestSeriesTakesEachMedianByItself(t *testing.T) {
	s := series{{ns: 1, allocs: 9}, {ns: 2, allocs: 7}, {ns: 3, allocs: 8}}
	if s.ns() != 2 || s.allocs() != 8 {
		t.Errorf("%v ns, %v allocations, want 2 and 8", s.ns(), s.allocs())
	}
}
