package algorithms

import "time"

// Decision is a rule's answer to one request. All durations are whole microseconds.
type Decision struct {
	// Allowed reports whether the request passes: with its full cost for Take, with at least one
	// unit for TakeUpTo.
	Allowed bool
	// Granted is the number of units taken: the cost or 0 for Take, 0 to n for TakeUpTo, 0 for
	// Peek.
	Granted int64
	// Limit is the largest number of units that a fresh key could take at once.
	Limit int64
	// Remaining is the number of units that could be taken now; never negative.
	Remaining int64
	// RetryAfter is the wait until the same request could pass; 0 if it was allowed.
	RetryAfter time.Duration
	// ResetAfter is the wait until the key is back in its initial state.
	ResetAfter time.Duration
	// Delay is the caller's wait before it proceeds: the time until departure from a leaking
	// bucket, 0 for every other rule.
	Delay time.Duration
}
