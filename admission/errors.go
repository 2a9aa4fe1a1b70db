// Package admission has what programs see of admission: outcomes of submissions and checks,
// refusals with their times to retry, errors, and the limiters that decide (package limiter).
package admission

import (
	"errors"
	"fmt"
	"time"
)

// Kinds of errors, in addition to [*RequestError].
var (
	ErrUnknownPolicy = errors.New("unknown policy")
	// for example a job for a policy without a queue
	ErrConflict     = errors.New("conflict with the policy")
	ErrTooLarge     = errors.New("too large")
	ErrOtherPayload = errors.New(
		"this Idempotency-Key was used for a job with a different body, method or path")
	ErrNotFound  = errors.New("not found")
	ErrNoDrainer = errors.New("no drainer answered") // the request may be repeated
	// The client should retry; without an Idempotency-Key the job may then run twice.
	ErrUnavailable = errors.New("temporarily unavailable")
)

// Reasons of a [*RefusedError].
var (
	ErrQueueFull           = errors.New("the queue is full")
	ErrRateLimited         = errors.New("the rate limit is reached")
	ErrDeadlineUnreachable = errors.New("the job would start after its deadline")
	ErrTooLate             = errors.New("the call would start after its wait")
	ErrPaused              = errors.New("it is paused")
	// the breaker is open, and another call is its probe
	ErrTargetDown = errors.New("the target is down")
)

// RefusedError refuses a job or a call until RetryAfter has passed.
type RefusedError struct {
	Policy     string
	Reason     error // such as [ErrQueueFull]
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("policy %s: %v: retry after %v", e.Policy, e.Reason, e.RetryAfter)
}

func (e *RefusedError) Unwrap() error { return e.Reason }

// RequestError says what is wrong with a request, so that repeating it does not help.
type RequestError struct {
	Field  string
	Reason string
}

func (e *RequestError) Error() string { return e.Field + ": " + e.Reason }

// EndedError refuses a repeat of a job that ended without success.
type EndedError struct {
	Job    string // the first job, or the last replay of its letter
	How    string // "dead", "cancelled" or "purged"
	Letter uint64 // its dead letter, or 0
}

func (e *EndedError) Error() string {
	if e.Letter > 0 {
		return fmt.Sprintf(
			"the job with this Idempotency-Key, %s, is dead letter %d: replay it, or use "+
				"another key", e.Job, e.Letter)
	}
	return fmt.Sprintf("the job with this Idempotency-Key, %s, was %s: use another key", e.Job,
		e.How)
}
