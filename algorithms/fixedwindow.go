package algorithms

import (
	"errors"
	"time"
)

// FixedWindow lets Limit units pass per window. Windows are aligned to the clock in UTC: minutes
// begin at :00, days at midnight, weeks on Monday, others are counted from Monday, 29 December
// 1969, or since the epoch.
//
//	passes ⇔ units in this window + n ≤ Limit
//
// It is the counter per key and window in Redis's documentation of INCR ("Rate limiter 1"). A key
// costs two integers, a request a few operations.
//
// Bound: up to 2·Limit units pass in any time T ≤ Window: Limit at the end of one window and Limit
// at the start of the next, possibly within a microsecond. Where that matters, use [SlidingCounter]
// or [SlidingLog].
//
// If the clock steps back into the previous window, the window that it left still counts. After a
// larger step, units used count until the end of the following window.
type FixedWindow struct {
	// Limit is the number of units per window: 1 to [MaxLimit].
	Limit int64
	// Window is the length of a window: [MinWindow] to [MaxWindow], in whole microseconds.
	// Multiples of [Month] are calendar months; if their number divides a year, they are aligned to
	// its start.
	Window time.Duration
	// Zone is the time zone of calendar days, weeks or months; Window must then be a multiple of
	// one of these. Nil means UTC. A day begins when clocks first show it, even if midnight occurs
	// twice or not at all.
	Zone *time.Location
	// SinceEpoch counts windows that are not calendar ones from Thursday, 1 January 1970, instead.
	SinceEpoch bool

	last *window // see Caching; may be nil
}

// FixedWindowState holds the start of a window in Unix microseconds and the units used in it.
type FixedWindowState struct{ Start, Used int64 }

var _ Rule[FixedWindowState] = FixedWindow{}

// monday is the offset of the window origin before 1970, a Thursday.
const monday = int64(3 * day / time.Microsecond)

// windowStart returns the start of the window of w microseconds that contains t.
func windowStart(t, w int64) int64 { return t - int64(uint64(t+monday)%uint64(w)) }

// loadStart aligns a state's start to windows of w, at most one window ahead of t's, current.
func loadStart(start, current, t, w int64) int64 {
	if start == current {
		return current
	}
	return windowStart(max(0, min(start, t+w)), w)
}

// load returns the state at t and the end of its window, which is at most one ahead of t's.
func (f FixedWindow) load(s FixedWindowState, t int64) (_ FixedWindowState, end int64) {
	start, end := f.window(t)
	switch {
	case s.Start < start || s.Used <= 0:
		return FixedWindowState{Start: start}, end
	case s.Start < end:
		s.Start = start
	default:
		s.Start, end = f.window(end)
	}
	return s, end
}

func (f FixedWindow) describe(d *Decision, s FixedWindowState, end, t int64) {
	d.Limit = f.Limit
	d.Remaining = max(0, f.Limit-s.Used)
	if s.Used != 0 {
		d.ResetAfter = micros(end - t)
	}
}

func (f FixedWindow) takeLoaded(d *Decision, s FixedWindowState, end, t, n int64) FixedWindowState {
	if n <= f.Limit-s.Used {
		s.Used += n
		d.Allowed, d.Granted = true, n
	}
	f.describe(d, s, end, t)
	if !d.Allowed {
		d.RetryAfter = d.ResetAfter
	}
	return s
}

// Take implements [Rule].
func (f FixedWindow) Take(s FixedWindowState, now time.Time,
	n int64) (_ FixedWindowState, d Decision) {
	mustPass(n, f.Limit)
	t := unixMicros(now)
	s, end := f.load(s, t)
	s = f.takeLoaded(&d, s, end, t, n)
	return s, d
}

// TakeUpTo implements [Rule].
func (f FixedWindow) TakeUpTo(s FixedWindowState, now time.Time,
	n int64) (_ FixedWindowState, d Decision) {
	mustBePositive(n, f.Limit)
	t := unixMicros(now)
	s, end := f.load(s, t)
	s = f.takeLoaded(&d, s, end, t, max(1, min(n, f.Limit-s.Used)))
	return s, d
}

// Peek implements [Rule].
func (f FixedWindow) Peek(s FixedWindowState, now time.Time, n int64) (d Decision) {
	mustPass(n, f.Limit)
	t := unixMicros(now)
	s, end := f.load(s, t)
	f.describe(&d, s, end, t)
	if n <= d.Remaining {
		d.Allowed = true
	} else {
		d.RetryAfter = d.ResetAfter
	}
	return d
}

// Refund implements [Rule].
func (f FixedWindow) Refund(s FixedWindowState, now time.Time, n int64) FixedWindowState {
	mustBePositive(n, f.Limit)
	s, _ = f.load(s, unixMicros(now))
	s.Used -= min(n, s.Used)
	return s
}

// Clamp implements [Rule].
func (f FixedWindow) Clamp(s FixedWindowState, now time.Time) FixedWindowState {
	if t := unixMicros(now); s.Start > t {
		s, _ = f.load(s, t)
	}
	return s
}

// Charge keeps the bound for arrivals when units are held until they are answered, if the target's
// windows are these. Let j be the unit of a window's arrivals that was decided last, at d. Every
// other one was held at d, or charged in the window: it was not answered before the window began.
// Such a charge is at most as late as d, so d lies in the window too, and its decision says
//
//	used + held + j ≤ Limit
//
// A held unit therefore counts in whatever window it may arrive in.
func (f FixedWindow) Charge(s FixedWindowState, now, at time.Time, n int64) FixedWindowState {
	mustBePositive(n, f.Limit)
	t, then := unixMicros(now), unixMicros(at)
	s, _ = f.load(s, max(t, then))
	if start, _ := f.window(t); then >= start {
		s.Used += min(n, f.Limit)
	}
	return s
}

// Uncharge implements [Rule].
func (f FixedWindow) Uncharge(s FixedWindowState, now time.Time, c Charged) FixedWindowState {
	if start, _ := f.window(unixMicros(c.At)); start == s.Start {
		return f.Refund(s, now, c.Units)
	}
	return s
}

// ChargeUnseen implements [Rule].
func (f FixedWindow) ChargeUnseen(s FixedWindowState, u Unseen) FixedWindowState {
	return chargeUpTo(f, s, u.To, u.At, u.Most)
}

// Bounds returns the window that contains now.
func (f FixedWindow) Bounds(now time.Time) (start, end time.Time) {
	from, to := f.window(unixMicros(now))
	return time.UnixMicro(from), time.UnixMicro(to)
}

// Most implements [Parametrized].
func (f FixedWindow) Most() int64 { return f.Limit }

// Validate implements [Parametrized].
func (f FixedWindow) Validate() error {
	err := checkWindow(f.Window)
	if f.Zone != nil && f.Window%day != 0 && f.Window%Month != 0 {
		err = errors.Join(err, errors.New("the window must be whole days or months of its zone"))
	}
	return errors.Join(checkLimit("limit", f.Limit, MaxLimit), err)
}

// Bound implements [Parametrized].
func (f FixedWindow) Bound() Bound { return Bound{Units: f.Limit, Window: f.Window, Aligned: true} }

// Erased implements [Parametrized].
func (f FixedWindow) Erased() Rule[*State] {
	return erased[FixedWindowState]{f.Caching(),
		func(s *State) FixedWindowState { return FixedWindowState{s.A, s.B} },
		func(s *State, to FixedWindowState) { s.A, s.B = to.Start, to.Used }}
}
