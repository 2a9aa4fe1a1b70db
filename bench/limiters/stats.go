package main

import (
	"math"
	"slices"
)

// sample is one measurement of a limiter.
type sample struct {
	ns     float64 // wall time divided by the decisions of all cores together
	allocs float64 // per decision
}

// series is what the rounds measured of one limiter in one setting.
type series []sample

func (s series) ns() float64     { return medianBy(s, func(x sample) float64 { return x.ns }) }
func (s series) allocs() float64 { return medianBy(s, func(x sample) float64 { return x.allocs }) }

func medianBy[T any](all []T, value func(T) float64) float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = value(all[i])
	}
	return median(values)
}

// median is the value in the middle, or the mean of the two there. NaN without values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	switch n := len(sorted); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return sorted[n/2]
	default:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
}
