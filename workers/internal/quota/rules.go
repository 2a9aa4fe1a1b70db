package quota

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

type state struct {
	a, b, c int64
	times   []int64
	charged int64 // total units
	owed    int64 // used units that are not charged yet
	out     int64 // units of starts that may be refunded
	loose   int64
	untold  untold
}

// rule is one of the five algorithms. An operation is evaluated at t, and its units count from at,
// which is not earlier.
type rule interface {
	Most() int64
	// clamp limits a state from before the clock was set back to one more window.
	clamp(s *state, t time.Time)
	left(s *state, t time.Time) int64
	wait(s *state, t time.Time, n int64) time.Duration
	// take charges n units if there is room.
	take(s *state, t, at time.Time, n int64) bool
	takeUpTo(s *state, t, at time.Time, n int64) int64
	// refund takes back n units charged at an instant. since units were charged later, the latest
	// at last.
	refund(s *state, t, at, last time.Time, n, since int64)
	// crashed charges what another process may have started.
	crashed(s *state, c crashed)
	within(d time.Duration) int64
	resetAfter(s *state, t time.Time) time.Duration
}

type windows interface {
	end(t time.Time) time.Time
	length() time.Duration
}

// crashed bounds another process's unknown starts: most units between two instants, which count
// from at. Recorded charges may be older by up to slack, and loose of their units may have been
// charged again.
type crashed struct {
	from, to, at time.Time
	slack        time.Duration
	most, loose  int64
}

// ruleOf returns a limit's rule, and its time per unit at full use. A leaking bucket's rule is its
// outflow: its contents wait in the queue.
func ruleOf(r policy.Rule) (rule, time.Duration) {
	window := time.Duration(r.Window)
	switch r.Algorithm {
	case policy.TokenBucket:
		return meterOf(r.Capacity, r.Refill), r.Refill.Interval()
	case policy.LeakingBucket:
		return meterOf(max(r.Burst, 1), r.Outflow), r.Outflow.Interval()
	case policy.SlidingLog:
		return logOf(algorithms.SlidingLog{Limit: r.Limit, Window: window, CountAccepted: true}),
			window / time.Duration(r.Limit)
	case policy.SlidingCounter:
		return counterOf(algorithms.SlidingCounter{Limit: r.Limit, Window: window}, fixedOf(r)),
			window / time.Duration(r.Limit)
	default:
		return fixedOf(r), window / time.Duration(r.Limit)
	}
}

type adapted[S any] struct {
	algorithms.Rule[S]
	read  func(*state) S
	write func(*state, S)
}

func (r adapted[S]) clamp(s *state, t time.Time) { r.write(s, r.Clamp(r.read(s), t)) }

func (r adapted[S]) left(s *state, t time.Time) int64 { return r.Peek(r.read(s), t, 1).Remaining }

func (r adapted[S]) wait(s *state, t time.Time, n int64) time.Duration {
	return r.Peek(r.read(s), t, n).RetryAfter
}

// take finds room at the later instant if there was room at the earlier one.
func (r adapted[S]) take(s *state, _, at time.Time, n int64) bool {
	next, d := r.Take(r.read(s), at, n)
	r.write(s, next)
	return d.Allowed
}

func (r adapted[S]) takeUpTo(s *state, _, at time.Time, n int64) int64 {
	next, d := r.TakeUpTo(r.read(s), at, n)
	r.write(s, next)
	return d.Granted
}

func (r adapted[S]) crashed(s *state, c crashed) { r.takeUpTo(s, c.to, c.at, c.most) }

func (r adapted[S]) resetAfter(s *state, t time.Time) time.Duration {
	return r.Peek(r.read(s), t, 1).ResetAfter
}

// meter is a token or a leaking bucket, with the same arithmetic.
type meter struct {
	adapted[algorithms.TokenBucketState]
	of algorithms.TokenBucket
}

func meterOf(capacity int64, refill algorithms.Rate) meter {
	type bucket = algorithms.TokenBucketState
	of := algorithms.TokenBucket{Capacity: capacity, Refill: refill}
	return meter{adapted[bucket]{of,
		func(s *state) bucket { return bucket{FullAt: s.a, Frac: s.b} },
		func(s *state, to bucket) { s.a, s.b = to.FullAt, to.Frac }}, of}
}

// refund gives back no more than if the units had never been charged, because the bucket might have
// overflowed. All later charges count as charged last.
func (m meter) refund(s *state, _, _, last time.Time, n, since int64) {
	if since > m.of.Capacity {
		return
	}
	before, span := m.read(s), m.charged(time.Unix(0, 0), n)
	given := algorithms.TokenBucketState{FullAt: before.FullAt - span.FullAt,
		Frac: before.Frac - span.Frac}
	if given.Frac < 0 {
		given.FullAt, given.Frac = given.FullAt-1, given.Frac+m.of.Refill.Count
	}
	if since > 0 {
		alone := m.charged(last, since)
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
	return m.of.Capacity + 1 + int64(min(d.Seconds()*m.of.Refill.PerSecond(), 1e15))
}

func (m meter) charged(at time.Time, n int64) algorithms.TokenBucketState {
	s, _ := m.Take(algorithms.TokenBucketState{}, at, n)
	return s
}

// crashed empties the bucket if there is no room, as the fraction left is unknown.
func (m meter) crashed(s *state, c crashed) {
	if m.takeUpTo(s, c.to, c.at, c.most) < c.most {
		m.write(s, m.charged(c.at, m.of.Capacity))
	}
}

func later(a, b algorithms.TokenBucketState) bool {
	return a.FullAt > b.FullAt || a.FullAt == b.FullAt && a.Frac > b.Frac
}

type log struct {
	adapted[algorithms.SlidingLogState]
	of algorithms.SlidingLog
}

func logOf(of algorithms.SlidingLog) log {
	type times = algorithms.SlidingLogState
	return log{adapted[times]{of, func(s *state) times { return times{Times: s.times} }, nil}, of}
}

func (l log) take(s *state, t, at time.Time, n int64) bool {
	if n > l.left(s, t) {
		return false
	}
	l.record(s, t, at, n)
	return true
}

func (l log) takeUpTo(s *state, t, at time.Time, n int64) int64 {
	n = min(n, l.left(s, t))
	l.record(s, t, at, n)
	return n
}

func (l log) within(d time.Duration) int64 { return l.of.Limit * int64(1+d/l.of.Window) }

// record adds units later than the evaluation: entries that count at t stay.
func (l log) record(s *state, t, at time.Time, n int64) {
	oldest := t.Add(-l.of.Window).UnixMicro()
	old, _ := slices.BinarySearch(s.times, oldest+1)
	if s.times = s.times[old:]; len(s.times) == 0 {
		s.times = nil
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

// crashed replaces the oldest units in place of refunded ones, and of ones that expired earlier.
func (l log) crashed(s *state, c crashed) {
	c.loose += l.left(s, c.to.Add(min(c.slack, l.of.Window))) - l.left(s, c.to)
	n := c.most - l.takeUpTo(s, c.to, c.at, c.most)
	n = min(n, c.loose, int64(len(s.times)))
	s.times = s.times[n:]
	l.record(s, c.to, c.at, n)
}

type fixed struct {
	adapted[algorithms.FixedWindowState]
	of algorithms.FixedWindow
}

func fixedOf(r policy.Rule) fixed {
	type window = algorithms.FixedWindowState
	of := r.Fixed().Caching()
	return fixed{adapted[window]{of,
		func(s *state) window { return window{Start: s.a, Used: s.b} },
		func(s *state, to window) { s.a, s.b = to.Start, to.Used }}, of}
}

func (f fixed) refund(s *state, t, at, _ time.Time, n, _ int64) {
	if start, _ := f.of.Bounds(at); start.UnixMicro() == s.a {
		f.write(s, f.Refund(f.read(s), t, n))
	}
}

// within assumes a calendar's shortest windows.
func (f fixed) within(d time.Duration) int64 { return f.of.Limit * int64(2+d/(f.of.Window*3/4)) }

func (f fixed) end(t time.Time) time.Time {
	_, end := f.of.Bounds(t)
	return end
}

func (f fixed) length() time.Duration { return f.of.Window }

type counter struct {
	adapted[algorithms.SlidingCounterState]
	windows
	limit int64
}

func counterOf(of algorithms.SlidingCounter, in windows) counter {
	type both = algorithms.SlidingCounterState
	return counter{adapted[both]{of,
		func(s *state) both { return both{Start: s.a, Previous: s.b, Current: s.c} },
		func(s *state, to both) { s.a, s.b, s.c = to.Start, to.Previous, to.Current }},
		in, of.Limit}
}

func (c counter) refund(s *state, _, at, _ time.Time, n, _ int64) {
	switch c.end(at).UnixMicro() {
	case s.a + c.length().Microseconds():
		s.c -= min(n, s.c)
	case s.a:
		s.b -= min(n, s.b)
	}
}

func (c counter) within(d time.Duration) int64 { return c.limit * int64(2+d/c.length()) }

// crashed charges both windows, each as if the other held the minimum.
func (c counter) crashed(s *state, by crashed) {
	ended, least, was := *s, *s, *s
	least.b, least.c = least.b-min(by.loose, least.b), least.c-min(by.loose, least.c)
	c.takeUpTo(&least, by.to, by.at, min(by.most, c.limit)+min(by.loose, c.limit))
	*s = state{a: least.a, b: s.b, c: least.c, charged: s.charged, owed: s.owed}
	if least.a > was.a {
		s.b = 0
		if least.a == was.a+c.length().Microseconds() {
			s.b = was.c
		}
		if last := c.end(by.to.Add(-c.length())).Add(-1); last.After(by.from) {
			c.takeUpTo(&ended, last, last, by.most)
			s.b = ended.c
		}
	}
}
