package algorithms

import "time"

// Decision is a rule's answer to one question. A refusal is a decision, not an error. Its durations
// are whole microseconds.
type Decision struct {
	// Allowed says that the request passes: all of its cost for Take, at least one unit for
	// TakeUpTo.
	Allowed bool
	// Granted is how many units were taken: the cost or 0 for Take, 0 to n for TakeUpTo, 0 for
	// Peek.
	Granted int64
	// Limit is the most units that a fresh key could take at once.
	Limit int64
	// Remaining is how many units could be taken right after this decision; never negative.
	Remaining int64
	// RetryAfter is the wait until this same request could pass, if nobody else comes first; 0 when
	// it was allowed.
	RetryAfter time.Duration
	// ResetAfter is the wait until the key is as good as new.
	ResetAfter time.Duration
	// Delay is how long the caller must wait before it goes ahead with what was granted: the time
	// until departure from a leaking bucket, 0 for every other rule.
	Delay time.Duration
}
