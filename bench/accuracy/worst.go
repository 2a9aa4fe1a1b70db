package main

import (
	"cmp"
	"slices"

	"github.com/penstock-mq/penstock/algorithms"
)

// passed is a number of units at an instant, in µs.
type passed struct{ at, units int64 }

// most is the most units in any half-open interval of a length.
func most(history []passed, length int64) (most int64) {
	slices.SortFunc(history, func(a, b passed) int { return cmp.Compare(a.at, b.at) })
	var sum int64
	first := 0
	for _, p := range history {
		for p.at-history[first].at >= length {
			sum -= history[first].units
			first++
		}
		sum += p.units
		most = max(most, sum)
	}
	return most
}

type key interface {
	// ask asks for up to n units and returns the wait until another could pass.
	ask(history []passed, at, n int64) ([]passed, int64)
}

// counted counts units when they are allowed.
type counted[S any] struct {
	rule  algorithms.Rule[S]
	state S
}

func countedKey[S any](rule algorithms.Rule[S]) key { return &counted[S]{rule: rule} }

func (k *counted[S]) ask(history []passed, at, n int64) ([]passed, int64) {
	var d algorithms.Decision
	k.state, d = k.rule.TakeUpTo(k.state, instant(at), n)
	if d.Granted > 0 {
		history = append(history, passed{at, d.Granted})
	}
	return history, k.rule.Peek(k.state, instant(at), 1).RetryAfter.Microseconds()
}

// departing counts a leaking bucket's units when they leave.
type departing struct {
	rule  algorithms.LeakingBucket
	state algorithms.LeakingBucketState
}

func (k *departing) ask(history []passed, at, n int64) ([]passed, int64) {
	for range n {
		var d algorithms.Decision
		if k.state, d = k.rule.Take(k.state, instant(at), 1); !d.Allowed {
			return history, d.RetryAfter.Microseconds()
		}
		history = append(history, passed{at + d.Delay.Microseconds(), 1})
	}
	return history, k.rule.Peek(k.state, instant(at), 1).RetryAfter.Microseconds()
}

type subject struct {
	name, short string
	// the stated bound for any t ≤ window, as text and in units
	stated string
	bound  func(limit, t int64) int64
	fresh  func(limit int64) key
}

var subjects = []subject{
	{"sliding log", "log", "`Limit` in T < Window",
		func(limit, _ int64) int64 { return limit },
		func(limit int64) key {
			return countedKey(algorithms.SlidingLog{Limit: limit, Window: window,
				CountAccepted: true})
		}},
	{"leaking bucket, departures", "leaking,\ndepartures", "`Burst + Outflow·T`, Burst = 1",
		func(limit, t int64) int64 { return 1 + mulDiv(limit, t, windowMicros) },
		func(limit int64) key { return &departing{rule: leakingBucket(limit)} }},
	{"sliding counter", "counter", "`Limit·(1 + T/Window)`, rounded up",
		func(limit, t int64) int64 { return 2*limit - mulDiv(limit, windowMicros-t, windowMicros) },
		func(limit int64) key {
			return countedKey(algorithms.SlidingCounter{Limit: limit, Window: window})
		}},
	{"token bucket", "token bucket", "`Capacity + Refill·T`",
		func(limit, t int64) int64 { return limit + mulDiv(limit, t, windowMicros) },
		func(limit int64) key {
			return countedKey(algorithms.TokenBucket{Capacity: limit, Refill: perWindow(limit)})
		}},
	{"leaking bucket, admissions", "leaking,\nadmissions", "`Capacity + Outflow·T`",
		func(limit, t int64) int64 { return limit + mulDiv(limit, t, windowMicros) },
		func(limit int64) key { return countedKey(leakingBucket(limit)) }},
	{"fixed window", "fixed window", "`2·Limit` in T ≤ Window",
		func(limit, _ int64) int64 { return 2 * limit },
		func(limit int64) key {
			return countedKey(algorithms.FixedWindow{Limit: limit, Window: window})
		}},
}

func perWindow(limit int64) algorithms.Rate { return algorithms.Rate{Count: limit, Per: window} }

func leakingBucket(limit int64) algorithms.LeakingBucket {
	return algorithms.LeakingBucket{Capacity: limit, Outflow: perWindow(limit)}
}

// lengths of intervals in µs; the first is an instant
var lengths = []int64{1, windowMicros / 100, windowMicros / 4, windowMicros / 2, windowMicros}

// greedy is the worst case: an idle key takes all units in the last microsecond of a window, and
// later units as soon as they pass.
func (s subject) greedy(limit int64) (history []passed) {
	k := s.fresh(limit)
	at := windowMicros - 1
	for end := at + windowMicros; at < end; {
		var wait int64
		history, wait = k.ask(history, at, limit)
		at += max(wait, 1)
	}
	return history
}

// patient takes all units in a window's last microsecond, and again at the end of an interval.
func (s subject) patient(limit, length int64) (history []passed) {
	k := s.fresh(limit)
	history, _ = k.ask(history, windowMicros-1, limit)
	if length > 1 {
		history, _ = k.ask(history, windowMicros+length-2, limit)
	}
	return history
}

func (s subject) constructed(limit, length int64) int64 {
	return max(most(s.greedy(limit), length), most(s.patient(limit, length), length))
}
