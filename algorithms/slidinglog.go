package algorithms

import (
	"errors"
	"slices"
	"sort"
	"time"
)

// MaxLogLimit is the largest limit of a [SlidingLog]: a key may need up to 16 bytes per unit of its
// limit.
const MaxLogLimit = 100_000

// SlidingLog records the time of each unit, and lets a request pass if its units and those of the
// last Window are at most Limit. A unit stops counting exactly Window after its time.
//
//	passes ⇔ |{ times > now − Window }| + n ≤ Limit
//
// ClassDojo published such a log in a Redis sorted set ("Better Rate Limiting With Redis Sorted
// Sets").
//
// Refused requests are recorded too, one entry per unit of cost, so a client that keeps retrying
// stays blocked until it slows down. With CountAccepted, only allowed requests are recorded.
//
// Bound: at most Limit units pass in any time T < Window.
//
// It is the only rule whose state grows: up to Limit times of 8 bytes per key. Only the Limit
// latest times matter: if they all lie in the window, the answer is no, regardless of earlier
// times; otherwise they include every time in the window. (Refund frees places but cannot restore
// dropped times.)
//
// If the clock steps back, times ahead of it move to the present and count for a full Window from
// there.
type SlidingLog struct {
	// Limit is the number of units in any Window: 1 to [MaxLogLimit].
	Limit int64
	// Window is the length of the sliding window: [MinWindow] to [MaxWindow], in whole
	// microseconds.
	Window time.Duration
	// CountAccepted disables the recording of refused requests.
	CountAccepted bool
}

// SlidingLogState holds the recorded times in Unix microseconds, oldest first, one per unit.
//
// Methods of [SlidingLog] may return a state that shares memory with their argument, as append
// does. Continue with the returned state only, or keep a [SlidingLogState.Clone].
type SlidingLogState struct{ Times []int64 }

func (s SlidingLogState) Clone() SlidingLogState { return SlidingLogState{slices.Clone(s.Times)} }

var _ Rule[SlidingLogState] = SlidingLog{}

// counting returns the recorded times that count at t: the latest Limit in the window. Later times
// count as t.
func (l SlidingLog) counting(s SlidingLogState, t int64) []int64 {
	oldest := t - l.Window.Microseconds()
	first := sort.Search(len(s.Times), func(i int) bool { return s.Times[i] > oldest })
	return s.Times[max(int64(first), int64(len(s.Times))-l.Limit):]
}

// load is counting with times ahead of t moved to t, in a copy.
func (l SlidingLog) load(s SlidingLogState, t int64) []int64 {
	times := l.counting(s, t)
	if len(times) > 0 && times[len(times)-1] > t {
		times = slices.Clone(times)
		for i := len(times) - 1; i >= 0 && times[i] > t; i-- {
			times[i] = t
		}
	}
	return times
}

// record appends n times t, and drops times too old to matter.
func (l SlidingLog) record(times []int64, t, n int64) []int64 {
	n = min(n, l.Limit)
	times = times[max(0, int64(len(times))+n-l.Limit):]
	for range n {
		times = append(times, t)
	}
	return times
}

func (l SlidingLog) state(times []int64) SlidingLogState {
	if len(times) == 0 {
		return SlidingLogState{}
	}
	return SlidingLogState{times}
}

// decide describes a log at t; RetryAfter applies to n units that do not fit.
func (l SlidingLog) decide(times []int64, t, n int64) Decision {
	have, window := int64(len(times)), l.Window.Microseconds()
	d := Decision{Limit: l.Limit, Remaining: l.Limit - have}
	if have > 0 {
		d.ResetAfter = micros(min(times[have-1], t) + window - t)
	}
	if excess := have + n - l.Limit; excess > 0 {
		d.RetryAfter = micros(min(times[excess-1], t) + window - t)
	}
	return d
}

func (l SlidingLog) Take(s SlidingLogState, now time.Time, n int64) (SlidingLogState, Decision) {
	mustPass(n, l.Limit)
	t := unixMicros(now)
	return l.take(l.load(s, t), t, n, n)
}

func (l SlidingLog) TakeUpTo(s SlidingLogState, now time.Time,
	n int64) (SlidingLogState, Decision) {
	mustBePositive(n, l.Limit)
	t := unixMicros(now)
	times := l.load(s, t)
	return l.take(times, t, n, max(1, min(n, l.Limit-int64(len(times)))))
}

// take records asked units; pass is the number that pass, all or 0.
func (l SlidingLog) take(times []int64, t, asked, pass int64) (SlidingLogState, Decision) {
	allowed := int64(len(times))+pass <= l.Limit
	switch {
	case !l.CountAccepted:
		times = l.record(times, t, asked)
	case allowed:
		times = l.record(times, t, pass)
	}
	d := l.decide(times, t, pass)
	if allowed {
		d.Allowed, d.Granted, d.RetryAfter = true, pass, 0
	}
	return l.state(times), d
}

// Peek reports whether the window has room for n units, without recording them.
func (l SlidingLog) Peek(s SlidingLogState, now time.Time, n int64) Decision {
	mustPass(n, l.Limit)
	t := unixMicros(now)
	d := l.decide(l.counting(s, t), t, n)
	d.Allowed = n <= d.Remaining
	return d
}

// Refund removes the n latest units. An immediate refund therefore restores the log.
func (l SlidingLog) Refund(s SlidingLogState, now time.Time, n int64) SlidingLogState {
	mustBePositive(n, l.Limit)
	times := l.load(s, unixMicros(now))
	return l.state(times[:max(0, int64(len(times))-n)])
}

func (l SlidingLog) Clamp(s SlidingLogState, now time.Time) SlidingLogState {
	if t := unixMicros(now); len(s.Times) > 0 && s.Times[len(s.Times)-1] > t {
		return l.state(l.load(s, t))
	}
	return s
}

func (l SlidingLog) Most() int64 { return l.Limit }

func (l SlidingLog) Validate() error {
	return errors.Join(checkLimit("limit", l.Limit, MaxLogLimit), checkWindow(l.Window))
}
