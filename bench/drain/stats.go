package main

import (
	"cmp"
	"slices"
	"time"
)

type pace struct {
	starts   int
	measured float64 // per second
	missing  float64 // seconds too long for the starts; negative: too short
	span     float64 // from the first start to the last, in seconds
}

// paceOf compares starts with a rate. The period begins and ends with a start.
func paceOf(at []int64, rate float64) pace {
	if len(at) < 2 {
		return pace{starts: len(at)}
	}
	span := float64(at[len(at)-1]-at[0]) / 1e9
	intervals := float64(len(at) - 1)
	return pace{starts: len(at), measured: intervals / span, missing: span - intervals/rate,
		span: span}
}

// in percent
func (p pace) err(rate float64) float64 { return (p.measured/rate - 1) * 100 }

// net returns the error in percent that the given seconds of stalls do not explain. They excuse
// lost time, not speed.
func (p pace) net(rate, stalled float64) float64 {
	if p.missing <= 0 {
		return p.err(rate)
	}
	return -100 * max(0, p.missing-stalled) / p.span
}

func most(at []int64, window time.Duration) (n int) {
	for i, j := 0, 0; j < len(at); j++ {
		for at[j]-at[i] >= int64(window) {
			i++
		}
		n = max(n, j-i+1)
	}
	return n
}

func gaps(at []int64) []time.Duration {
	var g []time.Duration
	for i := 1; i < len(at); i++ {
		g = append(g, time.Duration(at[i]-at[i-1]))
	}
	slices.Sort(g)
	return g
}

// for fitting the ideal schedule
const fitTime = time.Second

// lateness compares starts with the schedule of one every 1/rate that is the latest without an
// early start in the first second (or in the first two). The result is sorted; negative: early.
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

// caughtUp returns the first start at most 10 ms late by the very first start's schedule, or the
// period's beginning if its first half has no such start. So earlier lateness is not measured.
func caughtUp(at []int64, rate float64, from, to int64) int64 {
	for k, t := range at {
		due := float64(at[0]) + float64(k)*1e9/rate
		if t >= from && t < from+(to-from)/2 && float64(t)-due <= 10e6 {
			return t
		}
	}
	return from
}

const stallLimit = 5 * time.Millisecond

type stall struct{ from, to int64 }

// stalls returns a timer loop's longest lateness, and those above stallLimit.
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

func within(at []int64, from, to int64) []int64 {
	i, _ := slices.BinarySearch(at, from)
	j, _ := slices.BinarySearch(at, to)
	return at[i:j]
}
