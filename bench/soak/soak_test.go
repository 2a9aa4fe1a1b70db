package main

import (
	"math"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// filled fills the curves of a soak of 100 samples with one value for each.
func filled(value func(i int) float64) *soak {
	s := &soak{}
	for i := range 100 {
		sample := []float64{float64(i)}
		for range curves {
			sample = append(sample, value(i))
		}
		s.samples = append(s.samples, sample)
	}
	return s
}

func TestASoakIsJudgedByItsSecondHalf(t *testing.T) {
	for _, c := range []struct {
		name  string
		value func(i int) float64
		level bool
	}{
		{"full after a third", func(i int) float64 { return float64(min(i, 33)) }, true},
		{"a stall at the end", func(i int) float64 { return 100 + 900*float64(i/95) }, true},
		{"a saw", func(i int) float64 { return 100 + 30*float64(i%5) }, true},
		{"less and less", func(i int) float64 { return 200 - float64(i) }, true},
		{"more and more", func(i int) float64 { return 100 + float64(i) }, false},
	} {
		if err := filled(c.value).judge(); (err == nil) != c.level {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTrend(t *testing.T) {
	points := plotter.XYs{{X: 1, Y: 5}, {X: 2, Y: 7}, {X: 3, Y: 900}, {X: 4, Y: 11}, {X: 5, Y: 13}}
	if slope, at0 := trend(points); math.Abs(slope-2) > 1e-9 || math.Abs(at0-3) > 1e-9 {
		t.Errorf("the trend is %v x + %v", slope, at0)
	}
}
