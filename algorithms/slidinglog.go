package algorithms

import (
	"errors"
	"slices"
	"sort"
	"time"
)

// MaxLogLimit is the largest limit of a [SlidingLog]: a key may need 8 bytes, and up to twice that
// while its log grows, for every unit of it.
const MaxLogLimit = 100_000

// SlidingLog remembers when each unit was asked for and lets a request pass if its units and those
// of the last Window are at most Limit. A unit counts until exactly Window after its time, when it
// counts no more.
//
//	passes ⇔ |{ times > now − Window }| + n ≤ Limit
//
// ClassDojo published such a log, in a Redis sorted set ("Better Rate Limiting With Redis Sorted
// Sets").
//
// Refused requests are recorded too, so a client that hammers stays out until it slows down below
// the limit; with CountAccepted only what passed is recorded. A refused request is one entry per
// unit of its cost.
//
// Bound: in any time T < Window at most Limit units pass, wherever it begins.
//
// It is the one rule whose state grows, to at most Limit times of 8 bytes per key; a request costs
// a binary search in them, and an entry per unit that it records. Older times cannot matter: a
// request needs at least one free place, so the rule asks only whether the window holds c ≤ Limit −
// n units, with n ≥ 1. If the Limit latest times are all in the window, then c ≥ Limit and the
// answer is no, however many there were before them; if they are not, then all that the window
// holds is among them. And a time that is not among the latest never will be again. (Refund, which
// frees places, cannot know what was dropped: each unit given back is room for one.)
//
// When the clock steps back, times that lie ahead of it move to the present, and count for a whole
// Window from there.
type SlidingLog struct {
	// Limit is how many units pass in any Window: 1 to [MaxLogLimit].
	Limit int64
	// Window is the length of the sliding window: [MinWindow] to [MaxWindow], in whole
	// microseconds.
	Window time.Duration
	// CountAccepted says that refused requests are not recorded.
	CountAccepted bool
}

// SlidingLogState is the recorded times in Unix microseconds, oldest first, one per unit.
//
// Methods of [SlidingLog] use Times as append does: what they return may share memory with what
// they were given. So a state has one future: go on with the state that was returned, or keep a
// [SlidingLogState.Clone].
type SlidingLogState struct{ Times []int64 }

// Clone returns a copy that shares no memory with s.
func (s SlidingLogState) Clone() SlidingLogState { return SlidingLogState{slices.Clone(s.Times)} }

var _ Rule[SlidingLogState] = SlidingLog{}

// counting returns the recorded times that count at t: the latest Limit of those in the window.
// Times ahead of t are among them, and stand for t.
func (l SlidingLog) counting(s SlidingLogState, t int64) []int64 {
	oldest := t - l.Window.Microseconds()
	first := sort.Search(len(s.Times), func(i int) bool { return s.Times[i] > oldest })
	return s.Times[max(int64(first), int64(len(s.Times))-l.Limit):]
}

// load is counting with times ahead of t moved to t, so that further ones can be appended. It
// leaves s as it is.
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

// record appends the time t once for each of n units, and drops what is too old to matter.
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
		return SlidingLogState{} // lets go of the memory
	}
	return SlidingLogState{times}
}

// decide describes a log at t; RetryAfter is for n units, if they do not fit.
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

// Take records n units and lets them pass if the window has room for all of them.
func (l SlidingLog) Take(s SlidingLogState, now time.Time, n int64) (SlidingLogState, Decision) {
	mustPass(n, l.Limit)
	t := unixMicros(now)
	return l.take(l.load(s, t), t, n, n)
}

// TakeUpTo records n units and lets as many of them pass as the window has room for.
func (l SlidingLog) TakeUpTo(s SlidingLogState, now time.Time,
	n int64) (SlidingLogState, Decision) {
	mustBePositive(n, l.Limit)
	t := unixMicros(now)
	times := l.load(s, t)
	return l.take(times, t, n, max(1, min(n, l.Limit-int64(len(times)))))
}

// take lets pass units pass, all or none, out of asked ones.
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

// Peek says whether the window has room for n units. It records nothing, so asking does not
// lengthen the wait.
func (l SlidingLog) Peek(s SlidingLogState, now time.Time, n int64) Decision {
	mustPass(n, l.Limit)
	t := unixMicros(now)
	d := l.decide(l.counting(s, t), t, n)
	d.Allowed = n <= d.Remaining
	return d
}

// Refund removes the n latest units, so that giving back at once what was just taken leaves no
// trace.
func (l SlidingLog) Refund(s SlidingLogState, now time.Time, n int64) SlidingLogState {
	mustBePositive(n, l.Limit)
	times := l.load(s, unixMicros(now))
	return l.state(times[:max(0, int64(len(times))-n)])
}

// Clamp moves times ahead of now to now.
func (l SlidingLog) Clamp(s SlidingLogState, now time.Time) SlidingLogState {
	if t := unixMicros(now); len(s.Times) > 0 && s.Times[len(s.Times)-1] > t {
		return l.state(l.load(s, t))
	}
	return s
}

// Most is the limit.
func (l SlidingLog) Most() int64 { return l.Limit }

// Validate says what is wrong with the parameters.
func (l SlidingLog) Validate() error {
	return errors.Join(checkLimit("limit", l.Limit, MaxLogLimit), checkWindow(l.Window))
}
