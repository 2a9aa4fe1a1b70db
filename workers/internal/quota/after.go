package quota

import (
	"math"
	"time"
)

// Ahead is the work before a job: Jobs jobs of Units units of each cost.
type Ahead struct {
	Jobs  int64
	Units func(cost string) int64
}

// mostWindows bounds the calendar windows that are looked up.
const mostWindows = 64

// After returns the delay of a job by the limits, once debts are paid and the jobs ahead, equal in
// cost, have started at the earliest instants. Held units are taken for answered now, and those of
// the jobs ahead as soon as they start.
func (l *Limits) After(s *Set, now Now, ahead Ahead, c Cost) (wait time.Duration) {
	if s == nil {
		s = l.none
	}
	l.pay(s, now)
	for i := range l.all {
		of := &l.all[i]
		units := int64(0)
		if ahead.Jobs > 0 {
			units = ahead.Units(of.cost)
		}
		own := min(c.Of(of.cost), of.Most())
		wait = max(wait, l.after(of, s, i, now, ahead.Jobs, units, own))
	}
	return wait
}

func (l *Limits) after(of *limit, s *Set, i int, now Now, jobs, units, own int64) time.Duration {
	st, most, each := l.asAnswered(s, i, now), of.Most(), max(own, 1)
	at := l.asked(now).of(of)
	if jobs > 0 {
		each = max(1, min(most, (units+jobs-1)/jobs))
	}
	u := upcoming{need: st.owed + units + own, each: each, whole: most / each * each,
		quiet: l.quiet(of, s, now)}
	var every time.Duration
	switch b := of.bound; {
	case b.Estimated:
		return of.afterEstimate(st, at, u)
	case b.Aligned:
		return of.afterWindows(st, at, u)
	case b.Window > 0:
		every = b.Window + l.guard
	default:
		u.whole = most
		every = time.Duration(min(float64(of.interval)*float64(most), math.MaxInt64/4))
		if each == most {
			every += l.guard // full each time
		}
	}
	cycles := max(0, u.need-1) / u.whole
	return nTimes(cycles, every) + of.wait(st, at, u.need-cycles*u.whole)
}

// asAnswered returns a limit's state as if all its units were answered. It is valid until the next
// change.
func (l *Limits) asAnswered(s *Set, i int, now Now) *state {
	of, st := &l.all[i], s.states[i]
	if n := of.held(&st); n > 0 {
		of.Charge(&st.State, l.asked(now).of(of), l.answers(now).of(of), n)
		st.out, st.loose = 0, 0
	}
	return &st
}

// upcoming is the demand up to and including a job.
type upcoming struct {
	need  int64 // units, including the job's
	each  int64
	whole int64         // most that such jobs use of a window
	quiet time.Duration // end of a window, without starts
}

func (l *limit) afterWindows(st *state, at time.Time, u upcoming) time.Duration {
	left, end := l.left(st, at), l.end(at)
	switch {
	case end.Sub(at) <= u.quiet:
		left = 0
	case u.need <= left:
		return l.wait(st, at, u.need)
	case left < l.Most():
		end = at.Add(l.wait(st, at, left+1))
	}
	windows := max(0, u.need-left/u.each*u.each-1) / u.whole
	for i := range windows {
		if i == mostWindows {
			return end.Sub(at) + nTimes(windows-i, l.bound.Window)
		}
		end = l.end(end)
	}
	return end.Sub(at)
}

// afterEstimate waits until the previous window's weight leaves room, if earlier windows are fully
// used.
func (l *limit) afterEstimate(st *state, at time.Time, u upcoming) time.Duration {
	window := l.bound.Window
	first, end := at, l.end(at)
	start := end.Add(-window)
	if end.Sub(at) <= u.quiet {
		first, start = end, end
	}
	cycles := max(0, u.need-1) / u.whole
	switch rest := u.need - cycles*u.whole; {
	case cycles == 0:
		return first.Sub(at) + l.wait(st, first, u.need)
	case u.each == l.Most(): // a window must follow an empty one
		return start.Sub(at) + nTimes(cycles, 2*window)
	default:
		used := max(0, 1-float64(l.Most()-rest)/float64(u.whole))
		return start.Sub(at) + nTimes(cycles, window) + time.Duration(used*float64(window))
	}
}

// nTimes returns n·d, at most about 290 years.
func nTimes(n int64, d time.Duration) time.Duration {
	if d > 0 && n > int64(math.MaxInt64/2/d) {
		return math.MaxInt64 / 2
	}
	return time.Duration(n) * d
}
