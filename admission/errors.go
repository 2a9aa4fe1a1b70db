package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Kinds of errors, besides [*RequestError]. Clients may see their texts, but not the
// text of ErrUnavailable, which includes an internal cause.
var (
	// ErrUnknownPolicy: the policy does not exist, or has retired.
	ErrUnknownPolicy = errors.New("unknown policy")
	// ErrConflict: a check on a policy with a queue, a job for one without, or an impossible
	// change.
	ErrConflict = errors.New("conflict with the policy")
	// ErrTooLarge: the body exceeds [MaxBody], or the message the stream's maximum.
	ErrTooLarge = errors.New("too large")
	// ErrTooSlow: the request did not arrive in time.
	ErrTooSlow = errors.New("too slow")
	// ErrOtherPayload: another job with the same Idempotency-Key has a different payload.
	ErrOtherPayload = errors.New(
		"another job with this Idempotency-Key has another body, method or path")
	// ErrNotFound: there is no such job, dead letter or override.
	ErrNotFound     = errors.New("not found")
	ErrPrecondition = errors.New("precondition failed")
	// ErrForbidden: the client lacks the permission.
	ErrForbidden = errors.New("forbidden")
	// ErrNoDrainer: the owner of the partition did not answer. The request may be repeated.
	ErrNoDrainer = errors.New("no drainer answered")
	// ErrUnavailable: the store, the broker or the policies cannot be reached, or JetStream has no
	// room. Retry; without an Idempotency-Key a job may then run twice.
	ErrUnavailable = errors.New("temporarily unavailable")
)

// Reasons of a refusal, in the chain of a [*RefusedError].
var (
	ErrQueueFull   = errors.New("the queue is full")
	ErrRateLimited = errors.New("the rate limit is reached")
	// ErrDeadlineUnreachable: the job would start after its deadline.
	ErrDeadlineUnreachable = errors.New("the job would start after its deadline")
	// ErrTooLate: the call would start after its wait.
	ErrTooLate = errors.New("the call would start after its wait")
	ErrPaused  = errors.New("it is paused")
)

// RefusedError is a refusal as an error, see [Outcome.Err], with its reason in the chain.
type RefusedError struct {
	Policy string
	// Reason is ErrQueueFull, ErrRateLimited, ErrDeadlineUnreachable, ErrTooLate or ErrPaused.
	Reason     error
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("policy %s: %v: retry after %v", e.Policy, e.Reason, e.RetryAfter)
}

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// RequestError describes an invalid request, which repeating cannot help.
type RequestError struct {
	// Field is the invalid part as the client spelled it: "cost", "Penstock-Deadline".
	Field string
	// Reason explains the error to the client.
	Reason string
}

// Error returns "field: reason".
func (e *RequestError) Error() string { return e.Field + ": " + e.Reason }

// EndedError refuses a repeat of a job that ended without success: no job would run for it.
type EndedError struct {
	// Job is the original job, or the last replay of its dead letter.
	Job string
	// How is "dead", "cancelled" or "purged".
	How string
	// Letter is its dead letter, or 0.
	Letter uint64
}

// Error also names the client's options.
func (e *EndedError) Error() string {
	if e.Letter > 0 {
		return fmt.Sprintf(
			"the job of this Idempotency-Key, %s, is dead letter %d: replay it, or give "+
				"another key", e.Job, e.Letter)
	}
	return fmt.Sprintf("the job of this Idempotency-Key, %s, was %s: give another key", e.Job,
		e.How)
}

func InvalidKey(err error) error {
	reason := err.Error()
	if of, ok := errors.AsType[*job.KeyError](err); ok {
		reason = of.Reason
	}
	return &RequestError{"key", reason}
}

// Causes in the chain of an [ErrUnavailable], from which [Reason] derives the reason.
var (
	// ErrStore: the store of limits does not answer. Its health check logs that.
	ErrStore = errors.New("the store of limits does not answer")
	// ErrBusy: too many concurrent requests, or too many bytes of them.
	ErrBusy     = errors.New("too many requests are being answered")
	ErrStarting = errors.New("the policies are not loaded yet")
	// ErrStopping: this process is about to end.
	ErrStopping = errors.New("the process is stopping")
)

// Reasons of unavailability: the member reason of every 503 and 507.
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

// Reason returns the reason of an [ErrUnavailable] or [ErrNoDrainer]; default [ReasonNATS].
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

func NoQueue(policy string) error {
	return conflict("policy %q has no queue: it answers checks only", policy)
}

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
