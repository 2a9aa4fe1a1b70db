package algorithms

import (
	"errors"
	"time"
)

// FixedWindow lets Limit units pass in every window. Windows are aligned to the clock, in UTC:
// those of a minute begin at :00, those of a day at midnight, those of a week on Monday. (Windows
// of any other length are counted from Monday, 29 December 1969, 00:00 UTC.)
//
//	passes ⇔ units in this window + n ≤ Limit
//
// It is the counter per key and window that the Redis documentation describes at INCR ("Rate
// limiter 1"). It costs two integers per key, and every request a few operations.
//
// Bound: in any time T ≤ Window at most 2·Limit units pass, and that is no slip: Limit at the end
// of one window and Limit at the start of the next, even within a microsecond. Choose
// [SlidingCounter] or [SlidingLog] where that matters.
//
// A clock that steps back into the window before finds the window that it left still counting, so
// going back and forth across an edge earns nothing. Further back than that, what was used counts
// until the next window but one.
type FixedWindow struct {
	// Limit is how many units pass per window: 1 to [MaxLimit].
	Limit int64
	// Window is the length of a window: [MinWindow] to [MaxWindow], in whole microseconds. Whole
	// [Month]s are months of the calendar, from the first, and as many of these as divide a year
	// begin with it.
	Window time.Duration
	// Zone is whose days, weeks or months the windows are, which Window must be whole ones of; nil
	// is UTC. A day in which clocks are set has 23 or 25 hours, in most zones. It begins at the
	// first instant at which clocks show it, also where midnight comes twice or not at all.
	Zone *time.Location
}

// FixedWindowState is a window, by its start in Unix microseconds, and how many units passed in it.
type FixedWindowState struct{ Start, Used int64 }

var _ Rule[FixedWindowState] = FixedWindow{}

// monday is how long before 1970 the windows begin to count, in microseconds: 1 January 1970 was a
// Thursday.
const monday = int64(3 * day / time.Microsecond)

// windowStart is the start of the window of w microseconds that t lies in.
func windowStart(t, w int64) int64 { return t - int64(uint64(t+monday)%uint64(w)) }

// loadStart is the start of a state's window, aligned to windows of w and at most one window ahead
// of t's, which is the current one.
func loadStart(start, current, t, w int64) int64 {
	if start == current {
		return current // so it is nearly always, and division is slow
	}
	return windowStart(max(0, min(start, t+w)), w)
}

// load is the state at t, and when its window ends, which is at most one ahead of t's, the current
// one.
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

// describe writes in place, as a meter does.
func (f FixedWindow) describe(d *Decision, s FixedWindowState, end, t int64) {
	d.Limit = f.Limit
	d.Remaining = max(0, f.Limit-s.Used)
	if s.Used != 0 {
		d.ResetAfter = micros(end - t)
	}
}

func (f FixedWindow) takeLoaded(d *Decision, s FixedWindowState,
	end, t, n int64) FixedWindowState {
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

// Take counts n units if the window has room for all of them.
func (f FixedWindow) Take(s FixedWindowState, now time.Time,
	n int64) (_ FixedWindowState, d Decision) {
	mustPass(n, f.Limit)
	t := unixMicros(now)
	s, end := f.load(s, t)
	s = f.takeLoaded(&d, s, end, t, n)
	return s, d
}

// TakeUpTo counts n units or as many as the window has room for.
func (f FixedWindow) TakeUpTo(s FixedWindowState, now time.Time,
	n int64) (_ FixedWindowState, d Decision) {
	mustBePositive(n, f.Limit)
	t := unixMicros(now)
	s, end := f.load(s, t)
	s = f.takeLoaded(&d, s, end, t, max(1, min(n, f.Limit-s.Used)))
	return s, d
}

// Peek says whether the window has room for n units.
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

// Refund gives n units back if they were taken in the current window; those of earlier windows
// count no more.
func (f FixedWindow) Refund(s FixedWindowState, now time.Time, n int64) FixedWindowState {
	mustBePositive(n, f.Limit)
	s, _ = f.load(s, unixMicros(now))
	s.Used -= min(n, s.Used)
	return s
}

// Clamp leaves a window at most one ahead.
func (f FixedWindow) Clamp(s FixedWindowState, now time.Time) FixedWindowState {
	if t := unixMicros(now); s.Start > t {
		s, _ = f.load(s, t)
	}
	return s
}

// Most is the limit.
func (f FixedWindow) Most() int64 { return f.Limit }

// Validate says what is wrong with the parameters.
func (f FixedWindow) Validate() error {
	err := checkWindow(f.Window)
	if f.Zone != nil && f.Window%day != 0 && f.Window%Month != 0 {
		err = errors.Join(err, errors.New("the window must be whole days or months of its zone"))
	}
	return errors.Join(checkLimit("limit", f.Limit, MaxLimit), err)
}
