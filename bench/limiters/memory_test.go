package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestEachContestantAllows(t *testing.T) {
	b := &bench{options{length: 2 * time.Millisecond}}
	for _, c := range contestants() {
		for _, keys := range []int{1, 100} {
			set := keySet{keys: keys}
			samples, err := b.timeOne(t.Context(), c, keys, set.names(1), set.names(2))
			if err != nil {
				t.Errorf("%s, %s, %d keys: %v", c.name, c.algorithm, keys, err)
			}
			for _, s := range samples {
				if s.ns <= 0 {
					t.Errorf("%s, %s, %d keys: %v ns", c.name, c.algorithm, keys, s.ns)
				}
			}
			if len(samples) != len(coreCounts) {
				t.Errorf("%s, %s, %d keys: %d samples", c.name, c.algorithm, keys, len(samples))
			}
		}
	}
}

func TestARefusalEndsTheMeasurement(t *testing.T) {
	left := 3 * batch
	l := openLimiter{decide: func(context.Context, string) error {
		left--
		return must(left > 0, nil)
	}}
	if _, err := timeDecisions(t.Context(), l, []string{"a", "b"}, 1, time.Hour); !errors.Is(err,
		errRefused) {
		t.Errorf("%v, want %v", err, errRefused)
	}
}

func TestNamesAreTheSameKeysInAnotherOrder(t *testing.T) {
	set := keySet{keys: 1000, suffix: "@x"}
	one, two := set.names(1), set.names(2)
	if slices.Equal(one, two) {
		t.Error("two seeds give one order")
	}
	if !slices.Equal(one, set.names(1)) {
		t.Error("one seed gives two orders")
	}
	slices.Sort(one)
	slices.Sort(two)
	if !slices.Equal(one, two) || len(slices.Compact(one)) != 1000 {
		t.Error("the keys are not the same thousand")
	}
	for _, set := range keySets {
		if name := set.names(1)[0]; set.suffix != "" && len(name) != 36 {
			t.Errorf("%q has %d bytes, its title says 36", name, len(name))
		}
	}
}
