package main

import (
	"testing"
)

func TestSeriesTakesEachMedianByItself(t *testing.T) {
	s := series{{ns: 1, allocs: 9}, {ns: 2, allocs: 7}, {ns: 3, allocs: 8}}
	if s.ns() != 2 || s.allocs() != 8 {
		t.Errorf("%v ns, %v allocations, want 2 and 8", s.ns(), s.allocs())
	}
}
