package quota

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// UntilAnswered is the wait of [Limits.Ask] that only an answer ends.
const UntilAnswered = algorithms.UntilAnswered

// state is a limit's usage.
type state struct {
	algorithms.State
	charged int64 // total units
	owed    int64 // used units that are not charged yet
	out     int64 // units of starts that may be refunded, or are held
	loose   int64 // units that former owners may have refunded since, or that are held until lapses
	untold  untold
}

// limit is a limit's rule. An operation is evaluated at t, and its units count from at, which is
// not earlier.
type limit struct {
	algorithms.Rule[*algorithms.State]
	bound      algorithms.Bound
	name, cost string
	// of a unit at full use
	interval time.Duration
	budget   int64
	mostOwed int64
	// it counts from the answer, or if also atEnd from the end
	arrivals, atEnd bool
}

func (l *limit) holding() algorithms.Holding[*algorithms.State] {
	return algorithms.Holding[*algorithms.State]{Rule: l.Rule}
}

// held returns the units that wait for their answer.
func (l *limit) held(s *state) int64 {
	if l.arrivals {
		return s.out + s.loose
	}
	return 0
}

func (l *limit) peek(s *state, t time.Time, n int64) algorithms.Decision {
	return l.holding().Peek(algorithms.Held[*algorithms.State]{Counted: &s.State,
		Units: l.held(s)}, t, n)
}

// clamp limits a state from before the clock was set back to one more window.
func (l *limit) clamp(s *state, t time.Time) { l.Clamp(&s.State, t) }

func (l *limit) left(s *state, t time.Time) int64 { return l.peek(s, t, 1).Remaining }

func (l *limit) wait(s *state, t time.Time, n int64) time.Duration {
	return l.peek(s, t, n).RetryAfter
}

func (l *limit) resetAfter(s *state, t time.Time) time.Duration {
	return l.peek(s, t, 1).ResetAfter
}

// end returns the end of the window of the clock that contains t.
func (l *limit) end(t time.Time) time.Time {
	_, end := l.Bounds(t)
	return end
}

// takeUpTo charges as many of n units as there is room for.
func (l *limit) takeUpTo(s *state, t, at time.Time, n int64) int64 {
	if n = min(n, l.left(s, t)); n > 0 {
		l.Charge(&s.State, t, at, n)
	}
	return n
}
