package algorithms

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// MaxLimit is the largest capacity or limit of a rule; for a [SlidingLog] see [MaxLogLimit].
const MaxLimit = 1_000_000_000_000

// MinWindow and MaxWindow bound the window of a rule.
const (
	MinWindow = time.Millisecond
	MaxWindow = 366 * day
)

// Rule is the interface of the five rules. S is the state of one key; its zero value is a fresh
// key. Methods are pure and safe for concurrent use; but see [SlidingLogState], which may share
// memory.
//
// A cost must be at least 1 and, for Take and Peek, at most [Rule.Most]; other costs panic with a
// [*CostError]. A rule that fails Validate may panic too, or return meaningless decisions.
type Rule[S any] interface {
	Parametrized
	// Take takes all n units at the instant now, or no units.
	Take(s S, now time.Time, n int64) (S, Decision)
	// TakeUpTo takes as many of n units as pass at the instant now. If it takes no units,
	// RetryAfter is the wait until one could pass.
	TakeUpTo(s S, now time.Time, n int64) (S, Decision)
	// Peek returns the decision of Take without taking units: Granted is 0, Remaining and
	// ResetAfter describe the current state.
	Peek(s S, now time.Time, n int64) Decision
	// Refund returns n units that were taken but not used.
	Refund(s S, now time.Time, n int64) S
	// Clamp pulls back a state that lies further ahead of now than the rule could have put it,
	// because the clock was set back. Take, TakeUpTo and Refund clamp too. Callers that store a
	// state and only Peek must call Clamp; otherwise the key waits until the clock has caught up.
	Clamp(s S, now time.Time) S
	// Charge counts n units as of the instant at, whether they fit or not; n above Most counts as
	// Most. It keeps what decisions at now and after need. Units count at least for as long as if
	// they had been taken at their instant. Rules with windows of the clock take it that later
	// decisions are made after that instant.
	Charge(s S, now, at time.Time, n int64) S
	// Uncharge removes units that were charged. It leaves no fewer than if they never had been; a
	// token or leaking bucket may leave more.
	Uncharge(s S, now time.Time, c Charged) S
	// ChargeUnseen counts what others may have taken without a record.
	ChargeUnseen(s S, u Unseen) S
	// Bounds returns the clock's window that contains now; zero times from rules without any.
	Bounds(now time.Time) (start, end time.Time)
}

// Charged is an earlier charge of Units as of At. Since units were charged after it, the last ones
// as of Last.
type Charged struct {
	At, Last     time.Time
	Units, Since int64
}

// Unseen bounds the units that others may have taken between From and To, without a record: at most
// Most, which count from At. Recorded charges may be older than recorded, by up to Slack, and Loose
// of their units may have been given back and taken again.
type Unseen struct {
	From, To, At time.Time
	Slack        time.Duration
	Most, Loose  int64
}

// chargeUpTo charges as many of n units as there is room for.
func chargeUpTo[S any](r Rule[S], s S, now, at time.Time, n int64) S {
	if n = min(n, r.Peek(s, now, 1).Remaining); n < 1 {
		return s
	}
	return r.Charge(s, now, at, n)
}

// CostError says that a request can never pass, because of its cost.
type CostError struct {
	Cost int64 // the requested cost
	Most int64 // the largest cost that can ever pass
}

// Error implements error.
func (e *CostError) Error() string {
	if e.Cost < 1 {
		return fmt.Sprintf("cost %d: must be at least 1", e.Cost)
	}
	return fmt.Sprintf("cost %d: can never pass, the most is %d", e.Cost, e.Most)
}

// StateError: a store's value of a key is foreign, no state of the rule.
type StateError struct {
	Name string // of the value
	Err  error
}

// Error implements error.
func (e *StateError) Error() string {
	return fmt.Sprintf("the value of %q cannot be read, and stays until it is deleted: %v", e.Name,
		e.Err)
}

// Unwrap returns the reason for [errors.Is].
func (e *StateError) Unwrap() error { return e.Err }

// CheckCost returns a [*CostError] if a request of cost n can never pass under a rule.
func CheckCost(n, most int64) error {
	if n < 1 || n > most {
		return &CostError{Cost: n, Most: most}
	}
	return nil
}

func mustPass(n, most int64) {
	if n < 1 || n > most {
		panic(&CostError{Cost: n, Most: most})
	}
}

func mustBePositive(n, most int64) {
	if n < 1 {
		panic(&CostError{Cost: n, Most: most})
	}
}

func checkLimit(name string, n, most int64) error {
	switch {
	case n < 1:
		return fmt.Errorf("the %s must be at least 1", name)
	case n > most:
		return fmt.Errorf("the %s must be at most %d", name, most)
	}
	return nil
}

func checkWindow(w time.Duration) error {
	switch {
	case w < MinWindow:
		return fmt.Errorf("the window must be at least %s", FormatDuration(MinWindow))
	case w > MaxWindow:
		return errors.New("the window must be at most 366 days")
	case w%time.Microsecond != 0:
		return errors.New("the window must be whole microseconds")
	}
	return nil
}

// lastSecond is the end of the year 9999, which keeps all instants within an int64 of microseconds.
const lastSecond = 253402300799

// unixMicros converts an instant to microseconds since 1970, rounded down.
func unixMicros(now time.Time) int64 {
	switch s := now.Unix(); {
	case s < 0:
		return 0
	case s > lastSecond:
		return lastSecond * 1e6
	default:
		return s*1e6 + int64(now.Nanosecond())/1e3
	}
}

// micros converts us microseconds; negative ones become 0.
func micros(us int64) time.Duration { return time.Duration(max(us, 0)) * time.Microsecond }

// mulDiv returns a·b/c rounded down, and the remainder. The result must fit.
func mulDiv(a, b, c int64) (quotient, remainder int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
