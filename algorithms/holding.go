package algorithms

import (
	"math"
	"time"
)

// Holding counts units from their answers: where a third party counts requests as they arrive, by
// its own clock. A unit is held when its request is decided, and charged when it is answered.
// Meanwhile it lessens what is left.
//
//	passes ⇔ counted + held + n fit
//
// Bound: the rule's own, for arrivals, however long requests and answers are delayed, if a request
// arrives between its decision and its answer, decisions are made one by one, and the clock was
// read before a decision, and after an answer. The proof is the same for all rules:
//
//	Of the arrivals in an interval, take the one that was decided last. That was before the end
//	of the interval. Each of the others was held then, or charged as of an instant in the
//	interval or after it, because its answer came after its arrival. So its decision saw them all.
//
// The Charge of each rule says why that is enough, and [Bound.Arrivals] for which rule it is not.
// Only the order of decisions matters: a process may freeze between a decision and its request.
//
// The price is the time until the answer: N units per Window + latency instead of N per Window. A
// token bucket loses nothing while its capacity is more than Refill·latency.
type Holding[S any] struct{ Rule Rule[S] }

// Held is a state of a rule, with the units that are held besides. Its zero value is a fresh key.
type Held[S any] struct {
	Counted S
	Units   int64
}

// UntilAnswered is the wait for units that only an answer can make room for.
const UntilAnswered = math.MaxInt64 / time.Microsecond * time.Microsecond

// Start decides about n units, and holds them if they pass.
func (h Holding[S]) Start(s Held[S], now time.Time, n int64) (Held[S], Decision) {
	d := h.Peek(s, now, n)
	if d.Allowed {
		s.Units, d.Granted, d.Remaining = s.Units+n, n, d.Remaining-n
	}
	return s, d
}

// Peek returns the decision about n units without holding them. RetryAfter is the wait until they
// pass if units stay held, or are charged as of now; [UntilAnswered] if that takes an answer. Units
// that are given back may shorten it. ResetAfter is of the charged units.
func (h Holding[S]) Peek(s Held[S], now time.Time, n int64) Decision {
	most := h.Rule.Most()
	mustPass(n, most)
	all := s.Units + n
	d := h.Rule.Peek(s.Counted, now, min(all, most))
	if all > most {
		d.Allowed, d.RetryAfter, d.Delay = false, UntilAnswered, 0
	}
	d.Remaining = max(0, d.Remaining-s.Units)
	return d
}

// Answer charges n held units as of the instant at, read after their answer. It may be later than
// now, if that was read before, or earlier, if other answers were first.
func (h Holding[S]) Answer(s Held[S], now, at time.Time, n int64) Held[S] {
	if n = min(n, s.Units); n > 0 {
		s.Counted, s.Units = h.Rule.Charge(s.Counted, now, at, n), s.Units-n
	}
	return s
}

// GiveBack frees n held units that certainly never arrive.
func (h Holding[S]) GiveBack(s Held[S], n int64) Held[S] {
	s.Units -= min(n, s.Units)
	return s
}
