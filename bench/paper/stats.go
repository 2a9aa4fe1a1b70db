package paper

import (
	"cmp"
	"math"
	"slices"
)

// Median returns NaN without values.
func Median(values []float64) float64 {
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

// MedianBy is Median of a value of each.
func MedianBy[T any](all []T, value func(T) float64) float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = value(all[i])
	}
	return Median(values)
}

// Quantile returns the smallest of sorted values that at least q of them do not exceed; 0 without
// values.
func Quantile[T cmp.Ordered](sorted []T, q float64) (v T) {
	if len(sorted) == 0 {
		return v
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
