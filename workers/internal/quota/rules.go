package quota

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

// state is the state of one limit for one bucket, in a form common to all rules.
type state struct {
	a, b, c int64
	times   []int64
	charged int64 // total units ever charged
	owed    int64 // units used beyond the charge, still to be charged
	out     int64 // units of starts that may still be refunded
	loose   int64 // out of the predecessor, when it recorded the state
	untold  untold
}

// rule is one of the five algorithms with its state type hidden, and operations that only
// package quota needs.
type rule interface {
	most() int64
	// clamp limits a state from before JetStream's clock was set back to one more window.
	// Otherwise a bucket would wait until the clock has caught up.
	clamp(s *state, t time.Time)
	// left returns how many units may start at t.
	left(s *state, t time.Time) int64
	// wait returns how long n units must wait at t.
	wait(s *state, t time.Time, n int64) time.Duration
	// take charges n units, and reports whether there was room. They are evaluated at t, and
	// count from at, which is not earlier.
	take(s *state, t, at time.Time, n int64) bool
	// takeUpTo charges as many of n units as there is room for.
	takeUpTo(s *state, t, at time.Time, n int64) int64
	// refund takes back n units charged at an instant. since is the number of units charged
	// later, the latest of them at last.
	refund(s *state, t, at, last time.Time, n, since int64)
	// crashed charges what another process may have started.
	crashed(s *state, c crashed)
	// within returns how many units can start within a time.
	within(d time.Duration) int64
	// resetAfter returns how long it takes until the state is as good as new.
	resetAfter(s *state, t time.Time) time.Duration
	// end returns the end of the clock window around t; zero for a rule without such windows.
	end(t time.Time) time.Time
}

// crashed bounds another process's unknown starts: at most most units between two instants,
// which count from at. Recorded charges may be older by up to slack, and loose of their units
// may have been refunded and charged again.
type crashed struct {
	from, to, at time.Time
	slack        time.Duration
	most, loose  int64
}

// ruleOf returns the rule of a limit. A leaking bucket's is its outflow rate: its contents wait
// in the queue.
func ruleOf(r policy.Rule) rule {
	window := time.Duration(r.Window)
	switch r.Algorithm {
	case policy.TokenBucket:
		return meter{algorithms.TokenBucket{Capacity: r.Capacity, Refill: r.Refill}}
	case policy.LeakingBucket:
		return meter{algorithms.TokenBucket{Capacity: max(r.Burst, 1), Refill: r.Outflow}}
	case policy.SlidingLog:
		return log{algorithms.SlidingLog{Limit: r.Limit, Window: window, CountAccepted: true}}
	case policy.SlidingCounter:
		return counter{algorithms.SlidingCounter{Limit: r.Limit, Window: window}, fixedOf(r)}
	default:
		return fixedOf(r)
	}
}

// meter is a token bucket, or a leaking bucket, which has the same arithmetic.
type meter struct{ algorithms.TokenBucket }

func (m meter) read(s *state) algorithms.TokenBucketState {
	return algorithms.TokenBucketState{FullAt: s.a, Frac: s.b}
}
func (m meter) write(s *state, of algorithms.TokenBucketState) { s.a, s.b = of.FullAt, of.Frac }

func (m meter) most() int64 { return m.Most() }

func (m meter) clamp(*state, time.Time) {} // its clock never steps

func (m meter) left(s *state, t time.Time) int64 { return m.Peek(m.read(s), t, 1).Remaining }

func (m meter) wait(s *state, t time.Time, n int64) time.Duration {
	return m.Peek(m.read(s), t, n).RetryAfter
}

// take finds room at the later instant if there was room at the earlier one.
func (m meter) take(s *state, _, at time.Time, n int64) bool {
	next, d := m.Take(m.read(s), at, n)
	m.write(s, next)
	return d.Allowed
}

func (m meter) takeUpTo(s *state, _, at time.Time, n int64) int64 {
	next, d := m.TakeUpTo(m.read(s), at, n)
	m.write(s, next)
	return d.Granted
}

// refund gives back no more than if the units had never been charged. The bucket might then
// have been full before later charges, and overflowed units are gone. As it is unknown when,
// all later charges count as charged last.
func (m meter) refund(s *state, _, _, last time.Time, n, since int64) {
	if since > m.Capacity {
		return
	}
	before, span := m.read(s), m.span(n)
	given := algorithms.TokenBucketState{FullAt: before.FullAt - span.FullAt,
		Frac: before.Frac - span.Frac}
	if given.Frac < 0 {
		given.FullAt, given.Frac = given.FullAt-1, given.Frac+m.Refill.Count
	}
	if since > 0 {
		alone, _ := m.Take(algorithms.TokenBucketState{}, last, since)
		if later(alone, before) {
			alone = before
		}
		if later(alone, given) {
			given = alone
		}
	}
	m.write(s, given)
}

func (m meter) within(d time.Duration) int64 {
	return m.Capacity + 1 + int64(min(d.Seconds()*m.Refill.PerSecond(), 1e15))
}

// span returns how long it takes to refill n units.
func (m meter) span(n int64) algorithms.TokenBucketState {
	s, _ := m.Take(algorithms.TokenBucketState{}, time.Unix(0, 0), n)
	return s
}

// crashed empties the bucket if there is no room, as the remaining fraction of a unit is
// unknown.
func (m meter) crashed(s *state, c crashed) {
	if m.takeUpTo(s, c.to, c.at, c.most) < c.most {
		empty, _ := m.Take(algorithms.TokenBucketState{}, c.at, m.Capacity)
		m.write(s, empty)
	}
}

func later(a, b algorithms.TokenBucketState) bool {
	return a.FullAt > b.FullAt || a.FullAt == b.FullAt && a.Frac > b.Frac
}

func (m meter) resetAfter(s *state, t time.Time) time.Duration {
	return m.Peek(m.read(s), t, 1).ResetAfter
}

func (m meter) end(time.Time) time.Time { return time.Time{} }

// log is a sliding log.
type log struct{ algorithms.SlidingLog }

func (l log) read(s *state) algorithms.SlidingLogState {
	return algorithms.SlidingLogState{Times: s.times}
}

func (l log) most() int64 { return l.Most() }

func (l log) clamp(*state, time.Time) {} // its clock never steps

func (l log) left(s *state, t time.Time) int64 { return l.Peek(l.read(s), t, 1).Remaining }

func (l log) wait(s *state, t time.Time, n int64) time.Duration {
	return l.Peek(l.read(s), t, n).RetryAfter
}

func (l log) take(s *state, t, at time.Time, n int64) bool {
	if n > l.Peek(l.read(s), t, 1).Remaining {
		return false
	}
	l.record(s, t, at, n)
	return true
}

func (l log) takeUpTo(s *state, t, at time.Time, n int64) int64 {
	n = min(n, l.Peek(l.read(s), t, 1).Remaining)
	l.record(s, t, at, n)
	return n
}

func (l log) within(d time.Duration) int64 { return l.Limit * int64(1+d/l.Window) }

// record adds units at a later instant than the evaluation. The rule would drop entries that no
// longer count then, but still count at t.
func (l log) record(s *state, t, at time.Time, n int64) {
	oldest := t.Add(-l.Window).UnixMicro()
	old, _ := slices.BinarySearch(s.times, oldest+1)
	if s.times = s.times[old:]; len(s.times) == 0 {
		s.times = nil // release the memory
	}
	for range n {
		s.times = append(s.times, at.UnixMicro())
	}
}

func (l log) refund(s *state, _, at, _ time.Time, n, _ int64) {
	from, _ := slices.BinarySearch(s.times, at.UnixMicro())
	to := from
	for to < len(s.times) && s.times[to] == at.UnixMicro() && int64(to-from) < n {
		to++
	}
	s.times = slices.Delete(s.times, from, to)
}

// crashed replaces the oldest units in place of refunded ones, and of ones that expired earlier
// than recorded. Whichever those were, no other unit counts for longer than charged.
func (l log) crashed(s *state, c crashed) {
	before, later := l.read(s), c.to.Add(min(c.slack, l.Window))
	c.loose += l.Peek(before, later, 1).Remaining - l.Peek(before, c.to, 1).Remaining
	n := c.most - l.takeUpTo(s, c.to, c.at, c.most)
	n = min(n, c.loose, int64(len(s.times)))
	s.times = s.times[n:]
	l.record(s, c.to, c.at, n)
}

func (l log) resetAfter(s *state, t time.Time) time.Duration {
	return l.Peek(l.read(s), t, 1).ResetAfter
}

func (l log) end(time.Time) time.Time { return time.Time{} }

// fixed is a fixed window. It caches the last window, because looking up days or months of a
// time zone takes longer than the rest of a decision.
type fixed struct {
	algorithms.FixedWindow
	last span
}

func fixedOf(r policy.Rule) *fixed { return &fixed{FixedWindow: r.Fixed()} }

// span is a window, in Unix microseconds.
type span struct{ start, end int64 }

func (f *fixed) window(t time.Time) span {
	if us := t.UnixMicro(); us < f.last.start || us >= f.last.end {
		start, end := f.Bounds(t)
		f.last = span{start.UnixMicro(), end.UnixMicro()}
	}
	return f.last
}

// used returns the used units of the window at t; known is false if the clock stepped back out
// of the state's window.
func (f *fixed) used(s *state, t time.Time) (units int64, in span, known bool) {
	switch in = f.window(t); {
	case s.a < in.start || s.b <= 0:
		return 0, in, true
	case s.a < in.end:
		return s.b, in, true
	}
	return 0, in, false
}

// left returns the remaining time of the window.
func (w span) left(t time.Time) time.Duration {
	return time.Duration(w.end-t.UnixMicro()) * time.Microsecond
}

func (f *fixed) read(s *state) algorithms.FixedWindowState {
	return algorithms.FixedWindowState{Start: s.a, Used: s.b}
}
func (f *fixed) write(s *state, of algorithms.FixedWindowState) { s.a, s.b = of.Start, of.Used }

func (f *fixed) most() int64 { return f.Most() }

func (f *fixed) clamp(s *state, t time.Time) {
	f.write(s, f.Clamp(f.read(s), t))
}

func (f *fixed) left(s *state, t time.Time) int64 { return f.Peek(f.read(s), t, 1).Remaining }

func (f *fixed) wait(s *state, t time.Time, n int64) time.Duration {
	switch used, in, known := f.used(s, t); {
	case known && n <= f.Limit-used:
		return 0
	case known && n <= f.Limit:
		return in.left(t)
	}
	return f.Peek(f.read(s), t, n).RetryAfter
}

func (f *fixed) take(s *state, t, _ time.Time, n int64) bool {
	if used, in, known := f.used(s, t); known && n <= f.Limit-used {
		s.a, s.b = in.start, used+n
		return true
	}
	next, d := f.Take(f.read(s), t, n)
	f.write(s, next)
	return d.Allowed
}

func (f *fixed) takeUpTo(s *state, t, _ time.Time, n int64) int64 {
	next, d := f.TakeUpTo(f.read(s), t, n)
	f.write(s, next)
	return d.Granted
}

func (f *fixed) refund(s *state, t, at, _ time.Time, n, _ int64) {
	if f.window(at).start == s.a {
		f.write(s, f.Refund(f.read(s), t, n))
	}
}

// within assumes the shortest windows of a calendar.
func (f *fixed) within(d time.Duration) int64 { return f.Limit * int64(2+d/(f.Window*3/4)) }

func (f *fixed) crashed(s *state, c crashed) { f.takeUpTo(s, c.to, c.at, c.most) }

func (f *fixed) resetAfter(s *state, t time.Time) time.Duration {
	if used, in, known := f.used(s, t); known && used == 0 {
		return 0
	} else if known {
		return in.left(t)
	}
	return f.Peek(f.read(s), t, 1).ResetAfter
}

func (f *fixed) end(t time.Time) time.Time { return time.UnixMicro(f.window(t).end) }

// counter is a sliding counter, with windows aligned like fixed ones.
type counter struct {
	algorithms.SlidingCounter
	aligned *fixed
}

func (c counter) read(s *state) algorithms.SlidingCounterState {
	return algorithms.SlidingCounterState{Start: s.a, Previous: s.b, Current: s.c}
}
func (c counter) write(s *state, of algorithms.SlidingCounterState) {
	s.a, s.b, s.c = of.Start, of.Previous, of.Current
}

func (c counter) most() int64 { return c.Most() }

func (c counter) clamp(s *state, t time.Time) {
	c.write(s, c.Clamp(c.read(s), t))
}

func (c counter) left(s *state, t time.Time) int64 { return c.Peek(c.read(s), t, 1).Remaining }

func (c counter) wait(s *state, t time.Time, n int64) time.Duration {
	return c.Peek(c.read(s), t, n).RetryAfter
}

func (c counter) take(s *state, t, _ time.Time, n int64) bool {
	next, d := c.Take(c.read(s), t, n)
	c.write(s, next)
	return d.Allowed
}

func (c counter) takeUpTo(s *state, t, _ time.Time, n int64) int64 {
	next, d := c.TakeUpTo(c.read(s), t, n)
	c.write(s, next)
	return d.Granted
}

func (c counter) refund(s *state, _, at, _ time.Time, n, _ int64) {
	switch w := c.Window.Microseconds(); c.end(at).UnixMicro() {
	case s.a + w:
		s.c -= min(n, s.c)
	case s.a:
		s.b -= min(n, s.b)
	}
}

func (c counter) within(d time.Duration) int64 { return c.Limit * int64(2+d/c.Window) }

// crashed charges both windows, each as if the other held as little as possible.
func (c counter) crashed(s *state, by crashed) {
	ended, least := *s, *s
	least.b, least.c = least.b-min(by.loose, least.b), least.c-min(by.loose, least.c)
	c.takeUpTo(&least, by.to, by.at, min(by.most, c.Limit)+min(by.loose, c.Limit))
	was := c.read(s)
	*s = state{a: least.a, b: s.b, c: least.c, charged: s.charged, owed: s.owed}
	if least.a > was.Start { // the former current window is over
		s.b = 0
		if least.a == was.Start+c.Window.Microseconds() {
			s.b = was.Current
		}
		if last := c.end(by.to.Add(-c.Window)).Add(-1); last.After(by.from) {
			c.takeUpTo(&ended, last, last, by.most)
			s.b = ended.c
		}
	}
}

func (c counter) resetAfter(s *state, t time.Time) time.Duration {
	return c.Peek(c.read(s), t, 1).ResetAfter
}

func (c counter) end(t time.Time) time.Time { return c.aligned.end(t) }
