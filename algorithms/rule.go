package algorithms

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// MaxLimit is the largest capacity or limit of a rule, except that of a [SlidingLog].
const MaxLimit = 1_000_000_000_000

// The shortest and longest window that a rule accepts.
const (
	MinWindow = time.Millisecond
	MaxWindow = 366 * day
)

// Rule is what the five rules have in common. S is what is remembered for one key; its zero value
// is a key that was never seen. All methods are pure and may be called from many goroutines at
// once, but see [SlidingLogState] for the one state that has a single future.
//
// A cost must be at least 1 and, for Take and Peek, at most [Rule.Most]: anything else is a mistake
// of the caller and panics with a [*CostError]. So does a rule whose Validate returns an error, or
// it answers nonsense.
type Rule[S any] interface {
	// Take asks for n units at the instant now: all of them or none. A refusal leaves the state
	// unchanged in meaning, except that a sliding log may record it.
	Take(s S, now time.Time, n int64) (S, Decision)
	// TakeUpTo asks for n units one by one, all at the instant now, and takes as many as it can. n
	// has no upper limit. When none passes, RetryAfter is the wait until one could.
	TakeUpTo(s S, now time.Time, n int64) (S, Decision)
	// Peek says what Take would say, and takes nothing: Granted is 0, Remaining and ResetAfter are
	// as they stand.
	Peek(s S, now time.Time, n int64) Decision
	// Refund gives n units back that were taken and not used, at most until the key is as good as
	// new.
	Refund(s S, now time.Time, n int64) S
	// Clamp pulls a state in that lies further ahead of now than the rule could have put it, since
	// the clock was set back; any other state it returns unchanged. Take, TakeUpTo and Refund do so
	// themselves; callers that keep a state and only Peek must call it, or the key waits until the
	// clock has caught up.
	Clamp(s S, now time.Time) S
	// Most is the largest cost that can ever pass: what a fresh key could take at once.
	Most() int64
	// Validate says what is wrong with the rule's parameters, all of it at once.
	Validate() error
}

// CostError says that a cost can never pass under a rule.
type CostError struct {
	Cost int64 // what was asked for
	Most int64 // the largest cost that can ever pass
}

func (e *CostError) Error() string {
	if e.Cost < 1 {
		return fmt.Sprintf("cost %d: must be at least 1", e.Cost)
	}
	return fmt.Sprintf("cost %d: can never pass, the most is %d", e.Cost, e.Most)
}

// CheckCost returns a [*CostError] when a request of cost n can never pass under a rule, and nil
// otherwise.
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

// lastSecond is the end of the year 9999. Every instant and span of the rules then fits an int64 of
// microseconds.
const lastSecond = 253402300799

// unixMicros is the instant in microseconds since 1970, rounded down.
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

// micros is a span of us microseconds, or none if it is negative.
func micros(us int64) time.Duration { return time.Duration(max(us, 0)) * time.Microsecond }

// mulDiv is a·b/c rounded down, and what remains of a·b. The result must fit.
func mulDiv(a, b, c int64) (quotient, remainder int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}
