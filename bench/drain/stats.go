package main

import (
	"cmp"
	"slices"
	"time"
)

// Times here are readings of the shared clock in nanoseconds, in ascending order.

// pace is a row's measured rate.
type pace struct {
	starts   int
	measured float64 // starts per second
	missing  float64 // of the time, by how much it was too long for its starts; negative: too short
	span     float64 // seconds from the first start to the last
}

// paceOf compares starts with a rate. The ends of the time are starts, so that no start is cut in
// two.
func paceOf(at []int64, rate float64) pace {
	if len(at) < 2 {
		return pace{starts: len(at)}
	}
	span := float64(at[len(at)-1]-at[0]) / 1e9
	intervals := float64(len(at) - 1)
	return pace{starts: len(at), measured: intervals / span, missing: span - intervals/rate,
		span: span}
}

// err is the error of the rate, in percent.
func (p pace) err(rate float64) float64 { return (p.measured/rate - 1) * 100 }

// net returns the error in percent that the given seconds of stalls do not explain: lost time is
// excused up to the length of the stalls, excess speed never.
func (p pace) net(rate, stalled float64) float64 {
	if p.missing <= 0 {
		return p.err(rate)
	}
	return -100 * max(0, p.missing-stalled) / p.span
}

// most is the largest number of instants in any half-open window.
func most(at []int64, window time.Duration) (n int) {
	for i, j := 0, 0; j < len(at); j++ {
		for at[j]-at[i] >= int64(window) {
			i++
		}
		n = max(n, j-i+1)
	}
	return n
}

// gaps are the times between neighbours, sorted.
func gaps(at []int64) []time.Duration {
	var g []time.Duration
	for i := 1; i < len(at); i++ {
		g = append(g, time.Duration(at[i]-at[i-1]))
	}
	slices.Sort(g)
	return g
}

// fitTime is what the ideal schedule is fitted to.
const fitTime = time.Second

// lateness compares starts with the ideal schedule of a rate, fitted at their beginning: of all
// schedules with one start every 1/rate, the latest one for which no start of the first second is
// early (of the first two starts, when there are fewer). Sorted; negative values are starts before
// their time.
func lateness(at []int64, rate float64) []time.Duration {
	if len(at) == 0 {
		return nil
	}
	behind := func(k int) float64 { return float64(at[k]-at[0]) - float64(k)*1e9/rate }
	origin := 0.0
	for k := range at {
		if k > 1 && at[k]-at[0] >= int64(fitTime) {
			break
		}
		origin = min(origin, behind(k))
	}
	late := make([]time.Duration, len(at))
	for k := range at {
		late[k] = time.Duration(behind(k) - origin)
	}
	slices.Sort(late)
	return late
}

// caughtUp returns the first start in the period that was at most 10 ms late by the schedule from
// the very first start, so that making up earlier lateness is not measured. It returns the period's
// beginning if there is none in its first half.
func caughtUp(at []int64, rate float64, from, to int64) int64 {
	for k, t := range at {
		due := float64(at[0]) + float64(k)*1e9/rate
		if t >= from && t < from+(to-from)/2 && float64(t)-due <= 10e6 {
			return t
		}
	}
	return from
}

// stallLimit is the lateness above which a loop did not merely wake a little late.
const stallLimit = 5 * time.Millisecond

// stall is a period without wake-ups, by the shared clock.
type stall struct{ from, to int64 }

// stalls returns the longest lateness that a timer loop of the interval observed, and the stalls
// above stallLimit.
func stalls(wakes []int64, interval time.Duration) (longest time.Duration, all []stall) {
	for i := 1; i < len(wakes); i++ {
		due := wakes[i-1] + int64(interval)
		late := time.Duration(wakes[i] - due)
		longest = max(longest, late)
		if late > stallLimit {
			all = append(all, stall{due, wakes[i]})
		}
	}
	return longest, all
}

// lost is how much of a time stalls took.
func lost(all []stall, from, to int64) (sum time.Duration) {
	first, _ := slices.BinarySearchFunc(all, from, func(s stall, t int64) int {
		return cmp.Compare(s.to, t)
	})
	for _, s := range all[first:] {
		if s.from >= to {
			break
		}
		sum += time.Duration(min(s.to, to) - max(s.from, from))
	}
	return sum
}

// within are the instants from one to another.
func within(at []int64, from, to int64) []int64 {
	i, _ := slices.BinarySearch(at, from)
	j, _ := slices.BinarySearch(at, to)
	return at[i:j]
}
