package algorithms

import "time"

// State is the state of any rule: its numbers and, of a [SlidingLog], its earlier instants. Its
// zero value is a fresh key.
type State struct {
	A, B, C int64
	Log     []LogEntry
}

// Parametrized is a rule without the type of its state.
type Parametrized interface {
	// Most returns the largest cost that can ever pass.
	Most() int64
	// Validate returns an error that lists all invalid parameters.
	Validate() error
	// Bound returns the promise of the rule.
	Bound() Bound
	// Erased returns the rule over states of one type, which it changes in place: for one goroutine
	// with rules of several kinds.
	Erased() Rule[*State]
}

// erased is a rule over [State].
type erased[S any] struct {
	rule Rule[S]
	load func(*State) S
	keep func(*State, S)
}

func (e erased[S]) keeps(s *State, next S) *State {
	e.keep(s, next)
	return s
}

func (e erased[S]) Take(s *State, now time.Time, n int64) (*State, Decision) {
	next, d := e.rule.Take(e.load(s), now, n)
	return e.keeps(s, next), d
}

func (e erased[S]) TakeUpTo(s *State, now time.Time, n int64) (*State, Decision) {
	next, d := e.rule.TakeUpTo(e.load(s), now, n)
	return e.keeps(s, next), d
}

func (e erased[S]) Peek(s *State, now time.Time, n int64) Decision {
	return e.rule.Peek(e.load(s), now, n)
}

func (e erased[S]) Refund(s *State, now time.Time, n int64) *State {
	return e.keeps(s, e.rule.Refund(e.load(s), now, n))
}

func (e erased[S]) Clamp(s *State, now time.Time) *State {
	return e.keeps(s, e.rule.Clamp(e.load(s), now))
}

func (e erased[S]) Charge(s *State, now, at time.Time, n int64) *State {
	return e.keeps(s, e.rule.Charge(e.load(s), now, at, n))
}

func (e erased[S]) Uncharge(s *State, now time.Time, c Charged) *State {
	return e.keeps(s, e.rule.Uncharge(e.load(s), now, c))
}

func (e erased[S]) ChargeUnseen(s *State, u Unseen) *State {
	return e.keeps(s, e.rule.ChargeUnseen(e.load(s), u))
}

func (e erased[S]) Bounds(now time.Time) (start, end time.Time) { return e.rule.Bounds(now) }
func (e erased[S]) Bound() Bound                                { return e.rule.Bound() }
func (e erased[S]) Most() int64                                 { return e.rule.Most() }
func (e erased[S]) Validate() error                             { return e.rule.Validate() }
func (e erased[S]) Erased() Rule[*State]                        { return e }
