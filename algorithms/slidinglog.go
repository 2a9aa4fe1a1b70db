package algorithms

import (
	"errors"
	"iter"
	"slices"
	"time"
)

// MaxLogLimit is the largest limit of a [SlidingLog].
const MaxLogLimit = 100_000

// maxInstants is the largest number of instants in a [SlidingLog], 8 bytes each.
const maxInstants = 1024

// SlidingLog records when units were taken, and lets a request pass if its units and those of the
// last Window are at most Limit. A unit stops counting exactly Window after its time.
//
//	passes ⇔ |{ times > now − Window }| + n ≤ Limit
//
// ClassDojo published such a log in a Redis sorted set ("Better Rate Limiting With Redis Sorted
// Sets").
//
// Refused requests are recorded too, with all of their units, so a client that keeps retrying stays
// blocked until it slows down. With CountAccepted, only allowed requests are recorded.
//
// Bound: at most Limit units pass in any time T < Window.
//
// It is the only rule whose state grows: 8 bytes for each instant at which units were taken. Above
// a limit of 1,024, instants in the same 1,023rd of a Window are one, the latest of them. So a log
// has at most 1,024 instants; units only ever count longer, by less than 0.1 % of the Window.
//
// Only the Limit latest units matter: if they all lie in the window, the answer is no, regardless
// of earlier ones; otherwise they include every unit in the window. (Refund frees places but cannot
// restore dropped units.)
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

// SlidingLogState holds the number of recorded units, the instant of the latest ones in Unix
// microseconds, and the earlier instants.
//
// Methods of [SlidingLog] may return a state that shares memory with their argument, as append
// does. Continue with the returned state only, or keep a [SlidingLogState.Clone].
type SlidingLogState struct {
	Units, Latest int64
	// sum counts units as far as Latest, as the entries do.
	sum     LogEntry
	earlier []LogEntry // oldest first
}

// LogEntry is an instant of a [SlidingLog] and the number of units recorded until then. Both are
// remainders: the higher 47 bits are microseconds, of 4.4 years; the others are units, of 131,072.
type LogEntry uint64

const (
	timeBits          = 47
	unitBits          = 64 - timeBits
	unitMask          = 1<<unitBits - 1
	_        LogEntry = unitMask - MaxLogLimit // no limit is larger
)

func logEntry(at int64, sum LogEntry) LogEntry { return LogEntry(at)<<unitBits | sum&unitMask }

// Plus returns the entry as many microseconds later.
func (e LogEntry) Plus(us int64) LogEntry { return e + LogEntry(us)<<unitBits }

// Clone returns a copy that shares no memory.
func (s SlidingLogState) Clone() SlidingLogState {
	s.earlier = slices.Clone(s.earlier)
	return s
}

// at returns an instant, the i-th.
func (s *SlidingLogState) at(i int) int64 {
	if i == len(s.earlier) {
		return s.Latest
	}
	ago := (LogEntry(s.Latest) - s.earlier[i]>>unitBits) & (1<<timeBits - 1)
	return s.Latest - int64(ago)
}

// later returns how many units were recorded after the i-th instant.
func (s *SlidingLogState) later(i int) int64 {
	if i == len(s.earlier) {
		return 0
	}
	return int64((s.sum - s.earlier[i]) & unitMask)
}

// since returns how many units were recorded at the i-th instant or after it.
func (s *SlidingLogState) since(i int) int64 {
	if i == 0 {
		return s.Units
	}
	return s.later(i - 1)
}

// Size returns the memory of the earlier instants in bytes.
func (s SlidingLogState) Size() int64 { return 8 * int64(cap(s.earlier)) }

// All returns the recorded instants in Unix microseconds, oldest first, with their units.
func (s SlidingLogState) All() iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		for i := range len(s.earlier) + 1 {
			if n := s.since(i) - s.later(i); n > 0 && !yield(s.at(i), n) {
				return
			}
		}
	}
}

// add records n units after the others.
func (s *SlidingLogState) add(at, n, grain int64) {
	if s.Units > 0 && at != s.Latest && at/grain != s.Latest/grain {
		s.earlier = append(s.earlier, logEntry(s.Latest, s.sum))
	}
	s.Units, s.Latest, s.sum = s.Units+n, at, s.sum+LogEntry(n)
}

// keep drops all but the n latest units.
func (s *SlidingLogState) keep(n int64) {
	switch {
	case n >= s.Units:
	case n <= 0:
		*s = SlidingLogState{}
	default:
		s.earlier = s.earlier[s.find(n):]
		s.Units = n
	}
}

// find returns the instant of the n-th last unit.
func (s *SlidingLogState) find(n int64) int {
	low, high := 0, len(s.earlier)
	for probe := 0; low < high; probe = (low + high) / 2 { // mostly it is the first
		if s.later(probe) < n {
			high = probe
		} else {
			low = probe + 1
		}
	}
	return low
}

// after returns the first instant after t, or the number of them all.
func (s *SlidingLogState) after(t int64) int {
	if s.Latest <= t {
		return len(s.earlier) + 1
	}
	low, high := 0, len(s.earlier)
	for probe := 0; low < high; probe = (low + high) / 2 {
		if s.at(probe) > t {
			high = probe
		} else {
			low = probe + 1
		}
	}
	return low
}

// end removes the instants from the i-th on; their units count as of the instant at.
func (s *SlidingLogState) end(i int, at int64) { s.earlier, s.Latest = s.earlier[:i:i], at }

// drop removes the n latest units, of the last instant.
func (s *SlidingLogState) drop(n int64) { s.Units, s.sum = s.Units-n, s.sum-LogEntry(n) }

var _ Rule[SlidingLogState] = SlidingLog{}

// Grain returns the length of time whose instants are one: a microsecond, or a 1,023rd of the
// window.
func (l SlidingLog) Grain() time.Duration {
	return time.Duration(l.grain()) * time.Microsecond
}

func (l SlidingLog) grain() int64 {
	if l.Limit <= maxInstants {
		return 1
	}
	const most = maxInstants - 1 // a window may begin within a grain
	return (l.Window.Microseconds() + most - 1) / most
}

// count drops what does not count at t: all but the latest Limit units in the window.
func (l SlidingLog) count(s *SlidingLogState, t int64) {
	oldest := t - l.Window.Microseconds()
	if s.Units <= 0 || s.Latest <= oldest {
		*s = SlidingLogState{}
		return
	}
	if i := s.after(oldest); i > 0 {
		s.Units, s.earlier = s.since(i), s.earlier[i:]
	}
	s.keep(l.Limit)
}

// load is count, and moves times ahead of t to t.
func (l SlidingLog) load(s *SlidingLogState, t int64) {
	if l.count(s, t); s.Latest > t {
		s.end(s.after(t), t)
	}
}

// record adds n units at t, and drops units too old to matter.
func (l SlidingLog) record(s *SlidingLogState, t, n int64) {
	n = min(n, l.Limit)
	s.keep(l.Limit - n)
	s.add(t, n, l.grain())
}

// decide describes a log at t; RetryAfter applies to n units that do not fit.
func (l SlidingLog) decide(d *Decision, s *SlidingLogState, t, n int64) {
	window := l.Window.Microseconds()
	d.Limit, d.Remaining = l.Limit, l.Limit-s.Units
	if s.Units > 0 {
		d.ResetAfter = micros(min(s.Latest, t) + window - t)
	}
	if n > d.Remaining {
		d.RetryAfter = micros(min(s.at(s.find(l.Limit-n+1)), t) + window - t)
	}
}

// Take implements [Rule].
func (l SlidingLog) Take(s SlidingLogState,
	now time.Time, n int64) (_ SlidingLogState, d Decision) {
	mustPass(n, l.Limit)
	t := unixMicros(now)
	l.load(&s, t)
	l.take(&d, &s, t, n, n)
	return s, d
}

// TakeUpTo implements [Rule].
func (l SlidingLog) TakeUpTo(s SlidingLogState, now time.Time,
	n int64) (_ SlidingLogState, d Decision) {
	mustBePositive(n, l.Limit)
	t := unixMicros(now)
	l.load(&s, t)
	l.take(&d, &s, t, n, max(1, min(n, l.Limit-s.Units)))
	return s, d
}

// take records asked units; pass is the number that pass, all or 0.
func (l SlidingLog) take(d *Decision, s *SlidingLogState, t, asked, pass int64) {
	allowed := s.Units+pass <= l.Limit
	switch {
	case !l.CountAccepted:
		l.record(s, t, asked)
	case allowed:
		l.record(s, t, pass)
	}
	l.decide(d, s, t, pass)
	if allowed {
		d.Allowed, d.Granted, d.RetryAfter = true, pass, 0
	}
}

// Peek reports whether the window has room for n units, without recording them.
func (l SlidingLog) Peek(s SlidingLogState, now time.Time, n int64) (d Decision) {
	mustPass(n, l.Limit)
	t := unixMicros(now)
	l.count(&s, t)
	l.decide(&d, &s, t, n)
	d.Allowed = n <= d.Remaining
	return d
}

// Refund removes the n latest units. An immediate refund therefore restores the log, except for
// instants that have become one.
func (l SlidingLog) Refund(s SlidingLogState, now time.Time, n int64) SlidingLogState {
	mustBePositive(n, l.Limit)
	if l.load(&s, unixMicros(now)); n >= s.Units {
		return SlidingLogState{}
	}
	i := s.find(n + 1)
	s.end(i, s.at(i))
	s.drop(n)
	return s
}

// Clamp implements [Rule].
func (l SlidingLog) Clamp(s SlidingLogState, now time.Time) SlidingLogState {
	if t := unixMicros(now); s.Latest > t {
		l.load(&s, t)
	}
	return s
}

// Charge keeps the bound for arrivals when units are held until they are answered. Let j be the
// unit of a window [x, x + Window) of arrivals that was decided last, at d < x + Window. Every
// other one was held at d, or charged as of x or later: it was not answered before it arrived. So
// it counted at d, whose decision says
//
//	|{ charged as of x or later }| + held + j  ≤  |{ times > d − Window }| + held + j  ≤  Limit
//
// An instant that becomes one with a later one counts longer, which keeps this true.
func (l SlidingLog) Charge(s SlidingLogState, now, at time.Time, n int64) SlidingLogState {
	mustBePositive(n, l.Limit)
	t, then := unixMicros(now), unixMicros(at)
	if l.count(&s, t); then <= t-l.Window.Microseconds() {
		return s
	}
	n = min(n, l.Limit)
	if s.keep(l.Limit - n); then >= s.Latest {
		s.add(then, n, l.grain())
	} else {
		s.insert(then, n, l.grain())
	}
	return s
}

// insert adds units before the latest instant.
func (s *SlidingLogState) insert(at, n, grain int64) {
	i := s.after(at)
	entry := logEntry(at, s.sum-LogEntry(s.since(i)-n))
	s.shift(i, n)
	switch {
	case s.at(i)/grain == at/grain: // they are one with the later ones
	case i > 0 && s.at(i-1)/grain == at/grain:
		s.earlier[i-1] = entry
	default:
		s.earlier = slices.Insert(s.earlier, i, entry)
	}
}

// shift adds n units to the i-th instant, or removes some, in a copy.
func (s *SlidingLogState) shift(i int, n int64) {
	s.earlier = slices.Clone(s.earlier)
	for j := i; j < len(s.earlier); j++ {
		e := s.earlier[j]
		s.earlier[j] = e&^unitMask | (e+LogEntry(n))&unitMask
	}
	s.drop(-n)
}

// Uncharge removes units of an instant that still counts.
func (l SlidingLog) Uncharge(s SlidingLogState, now time.Time, c Charged) SlidingLogState {
	t, at, grain := unixMicros(now), unixMicros(c.At), l.grain()
	l.count(&s, t)
	i := s.after(at - 1)
	if at <= t-l.Window.Microseconds() || i > len(s.earlier) || s.at(i)/grain != at/grain {
		return s
	}
	units := s.since(i) - s.later(i)
	switch n := min(c.Units, units); {
	case n == s.Units:
		return SlidingLogState{}
	case n < units:
		s.shift(i, -n)
	case i == len(s.earlier):
		s.end(i-1, s.at(i-1))
		s.drop(n)
	default:
		s.shift(i, -n)
		s.earlier = slices.Delete(s.earlier, i, i+1)
	}
	return s
}

// ChargeUnseen replaces the oldest units in place of ones that were given back, or expired earlier.
func (l SlidingLog) ChargeUnseen(s SlidingLogState, u Unseen) SlidingLogState {
	left := func(t time.Time) int64 { return l.Peek(s, t, 1).Remaining }
	free := left(u.To)
	loose := u.Loose + left(u.To.Add(min(u.Slack, l.Window))) - free
	if n := min(u.Most, free+loose); n > 0 {
		return l.Charge(s, u.To, u.At, n)
	}
	return s
}

// Bounds returns zero times: a log has no windows of the clock.
func (l SlidingLog) Bounds(time.Time) (start, end time.Time) { return start, end }

// Most implements [Parametrized].
func (l SlidingLog) Most() int64 { return l.Limit }

// Validate implements [Parametrized].
func (l SlidingLog) Validate() error {
	return errors.Join(checkLimit("limit", l.Limit, MaxLogLimit), checkWindow(l.Window))
}

// Bound implements [Parametrized].
func (l SlidingLog) Bound() Bound { return Bound{Units: l.Limit, Window: l.Window} }

// Erased implements [Parametrized].
func (l SlidingLog) Erased() Rule[*State] {
	load := func(s *State) SlidingLogState {
		return SlidingLogState{Latest: s.A, Units: s.B, sum: LogEntry(s.C), earlier: s.Log}
	}
	return erased[SlidingLogState]{l, load, func(s *State, to SlidingLogState) {
		s.A, s.B, s.C, s.Log = to.Latest, to.Units, int64(to.sum&unitMask), to.earlier
	}}
}
