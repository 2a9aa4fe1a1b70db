package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Kinds of errors that [Service.Submit], [Service.Check], [Service.Peek] and [Service.Refund]
// return, besides [*RequestError]; admission/manage returns these kinds, too. Use errors.Is. The
// texts can be shown to clients, except the text of ErrUnavailable, which includes an internal
// cause.
var (
	// ErrUnknownPolicy: the policy does not exist, or has retired and accepts nothing new. The
	// text says which; a client reacts to both in the same way.
	ErrUnknownPolicy = errors.New("unknown policy")
	// ErrConflict: the policy does not support the request: a check on a policy with a queue, or
	// a job for a policy without one.
	ErrConflict = errors.New("conflict with the policy")
	// ErrTooLarge: the body exceeds [MaxBody], or body and headers exceed the maximum of the
	// policy's stream.
	ErrTooLarge = errors.New("too large")
	// ErrTooSlow: the request did not arrive completely within its time.
	ErrTooSlow = errors.New("too slow")
	// ErrOtherPayload: another job with the same Idempotency-Key has a different payload.
	ErrOtherPayload = errors.New(
		"another job with this Idempotency-Key has another body, method or path")
	// ErrNotFound: the policy exists, but the requested job, dead letter or override does not.
	ErrNotFound = errors.New("not found")
	// ErrPrecondition: the current state does not match the precondition of the request.
	ErrPrecondition = errors.New("precondition failed")
	// ErrForbidden: the client lacks the permission.
	ErrForbidden = errors.New("forbidden")
	// ErrNoDrainer: only the drainer that owns the partition can do this, and it did not answer.
	// The request may be repeated.
	ErrNoDrainer = errors.New("no drainer answered")
	// ErrUnavailable: the store, the broker or the policies cannot be reached now, or JetStream
	// has no room. The same request may be retried. Without an Idempotency-Key a job may then
	// run twice.
	ErrUnavailable = errors.New("temporarily unavailable")
)

// Reasons of a refusal, in the chain of a [*RefusedError].
var (
	// ErrQueueFull: the bucket or the policy's queue holds as many jobs as it may.
	ErrQueueFull = errors.New("the queue is full")
	// ErrRateLimited: a door policy has nothing left for the key.
	ErrRateLimited = errors.New("the rate limit is reached")
	// ErrDeadlineUnreachable: the job would start after its deadline.
	ErrDeadlineUnreachable = errors.New("the job would start after its deadline")
	// ErrTooLate: the call would start after its wait.
	ErrTooLate = errors.New("the call would start after its wait")
	// ErrPaused: an operator has paused the policy or the bucket.
	ErrPaused = errors.New("it is paused")
)

// RefusedError is a refusal as an error: see [Outcome.Err]. Its reason is found by errors.Is.
type RefusedError struct {
	Policy string
	// Reason is ErrQueueFull, ErrRateLimited, ErrDeadlineUnreachable, ErrTooLate or ErrPaused.
	Reason error
	// RetryAfter is the time until a retry is useful.
	RetryAfter time.Duration
}

// Error returns the policy, the reason and the time to retry.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("policy %s: %v: retry after %v", e.Policy, e.Reason, e.RetryAfter)
}

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// RequestError describes an invalid request. Repeating the request cannot help.
type RequestError struct {
	// Field names the invalid part as the client spelled it: "cost", "key", "Penstock-Deadline".
	Field string
	// Reason explains the error to the client.
	Reason string
}

// Error returns "field: reason".
func (e *RequestError) Error() string { return e.Field + ": " + e.Reason }

// EndedError refuses a repeat of a job that has ended without success, because no job would run
// for the repeat.
type EndedError struct {
	// Job is the id of the original job, or of the last replay of its dead letter.
	Job string
	// How is the job's end: "dead", "cancelled" or "purged".
	How string
	// Letter is the id of its dead letter, or 0.
	Letter uint64
}

// Error describes the job's end and the options of the client.
func (e *EndedError) Error() string {
	if e.Letter > 0 {
		return fmt.Sprintf(
			"the job of this Idempotency-Key, %s, is dead letter %d: replay it, or give "+
				"another key", e.Job, e.Letter)
	}
	return fmt.Sprintf("the job of this Idempotency-Key, %s, was %s: give another key", e.Job,
		e.How)
}

// InvalidKey returns the client's error for a key that [job.EncodeKey] or [job.ParseKey]
// refused.
func InvalidKey(err error) error {
	reason := err.Error()
	if of, ok := errors.AsType[*job.KeyError](err); ok {
		reason = of.Reason
	}
	return &RequestError{"key", reason}
}

// Causes in the chain of an [ErrUnavailable], from which [Reason] derives the reason.
var (
	// ErrStore: the store of limits does not answer. Requests need not log it, because the
	// store's health check logs each change.
	ErrStore = errors.New("the store of limits does not answer")
	// ErrBusy: this process has reached its bound of concurrent requests or of their bytes.
	ErrBusy = errors.New("too many requests are being answered")
	// ErrStarting: this process does not know the policies yet.
	ErrStarting = errors.New("the policies are not loaded yet")
	// ErrStopping: this process is about to end.
	ErrStopping = errors.New("the process is stopping")
)

// Reasons of unavailability for programs and operators: the member reason of every 503 and 507.
const (
	ReasonNATS     = "nats"     // NATS or JetStream does not answer
	ReasonStorage  = "storage"  // JetStream has no room, or cannot write
	ReasonStore    = "store"    // the store of limits does not answer
	ReasonBusy     = "busy"     // this process is overloaded
	ReasonStarting = "starting" // this process does not know the policies yet
	ReasonStopping = "stopping" // this process is about to end
	ReasonDrainer  = "drainer"  // the partition's owner did not answer
)

// reasons are tried in this order.
var reasons = []struct {
	cause  error
	reason string
}{
	{ErrNoDrainer, ReasonDrainer},
	{ErrStore, ReasonStore},
	{ErrBusy, ReasonBusy},
	{ErrStarting, ReasonStarting},
	{ErrStopping, ReasonStopping},
	{context.Canceled, ReasonStopping},
	{queue.ErrStorage, ReasonStorage},
}

// Reason returns the reason of an [ErrUnavailable] or [ErrNoDrainer], derived from the chain of
// err; default [ReasonNATS].
func Reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.cause) {
			return r.reason
		}
	}
	return ReasonNATS
}

// UnknownPolicy returns an [ErrUnknownPolicy] for a name.
func UnknownPolicy(name string) error { return fmt.Errorf("%w: %.64q", ErrUnknownPolicy, name) }

// NoQueue returns the [ErrConflict] of an operation that requires a queue.
func NoQueue(policy string) error {
	return conflict("policy %q has no queue: it answers checks only", policy)
}

// UnfitMessage returns the [ErrTooLarge] of a body and headers that do not fit in one message.
func UnfitMessage() error {
	return fmt.Errorf("%w: the body and its headers do not fit a message", ErrTooLarge)
}

func retiredPolicy(name string) error {
	return fmt.Errorf("%w: %q has retired", ErrUnknownPolicy, name)
}

func conflict(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConflict}, args...)...)
}

func unavailable(doing string, cause error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, cause)
}
