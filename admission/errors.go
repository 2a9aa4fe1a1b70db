package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// The kinds of error that [Service.Submit], [Service.Check], [Service.Peek] and [Service.Refund]
// return, besides [*RequestError]; those of admission/manage are of these kinds, too. Use
// errors.Is. All texts are composed here and can be shown to clients, but that of
// ErrUnavailable, which carries a cause from the inside.
var (
	// ErrUnknownPolicy: there is no policy of that name, or it has retired and takes nothing new.
	// The two are one kind, because a client can do the same about either; the text says which
	// it is.
	ErrUnknownPolicy = errors.New("unknown policy")
	// ErrConflict: the policy does not do what was asked: a check on a policy whose jobs its queue
	// paces, or a job for a policy without a queue.
	ErrConflict = errors.New("conflict with the policy")
	// ErrTooLarge: the body is over [MaxBody], or with its headers over what the policy's stream
	// takes.
	ErrTooLarge = errors.New("too large")
	// ErrTooSlow: the request did not arrive as a whole within the time that it has.
	ErrTooSlow = errors.New("too slow")
	// ErrOtherPayload: the Idempotency-Key is that of a job with another payload.
	ErrOtherPayload = errors.New(
		"another job with this Idempotency-Key has another body, method or path")
	// ErrNotFound: the policy is known, but not the job, the dead letter or the override that was
	// asked for.
	ErrNotFound = errors.New("not found")
	// ErrPrecondition: what is there now is not what the caller demands of it.
	ErrPrecondition = errors.New("precondition failed")
	// ErrForbidden: the client has no right to what it asks for.
	ErrForbidden = errors.New("forbidden")
	// ErrNoDrainer: only the drainer that owns a partition can do this, and none answered. The
	// request may be repeated.
	ErrNoDrainer = errors.New("no drainer answered")
	// ErrUnavailable: the store, the broker or the policies cannot be reached now, or JetStream has
	// no room. Nothing is wrong with the request; the same one may be tried again. Without an
	// Idempotency-Key a job may then run twice.
	ErrUnavailable = errors.New("temporarily unavailable")
)

// RequestError says what is wrong with a request. Repeating the request cannot help.
type RequestError struct {
	// Field is what is wrong, as the client spelled it: "cost", "key", "Penstock-Deadline".
	Field string
	// Reason says why, in words for the client.
	Reason string
}

// Error is "field: reason".
func (e *RequestError) Error() string { return e.Field + ": " + e.Reason }

// EndedError refuses the repeat of a job that is gone and did not succeed: nothing would run for
// it.
type EndedError struct {
	// Job is the id of the first, or of the last replay of its dead letter.
	Job string
	// How it ended: "dead", "cancelled" or "purged".
	How string
	// Letter is the id of its dead letter; 0 when it has none.
	Letter uint64
}

// Error says how the job ended, and what the client can do.
func (e *EndedError) Error() string {
	if e.Letter > 0 {
		return fmt.Sprintf(
			"the job of this Idempotency-Key, %s, is dead letter %d: replay it, or give "+
				"another key", e.Job, e.Letter)
	}
	return fmt.Sprintf("the job of this Idempotency-Key, %s, was %s: give another key", e.Job,
		e.How)
}

// InvalidKey returns the error for a client whose key [job.EncodeKey] or [job.ParseKey] refused.
func InvalidKey(err error) error {
	reason := err.Error()
	if of, ok := errors.AsType[*job.KeyError](err); ok {
		reason = of.Reason
	}
	return &RequestError{"key", reason}
}

// What is in the chain of an [ErrUnavailable], so that [Reason] finds it.
var (
	// ErrStore: the store of limits does not answer. Whatever watches the store logs each change of
	// that, so a request is not worth a line.
	ErrStore = errors.New("the store of limits does not answer")
	// ErrBusy: this process answers as many requests, or holds as many bytes of them, as it may.
	ErrBusy = errors.New("too many requests are being answered")
	// ErrStarting: this process does not know the policies yet.
	ErrStarting = errors.New("the policies are not loaded yet")
	// ErrStopping: this process is about to end.
	ErrStopping = errors.New("the process is stopping")
)

// Why something is unavailable, in a word that programs and operators can tell apart: the member
// reason of every 503 and 507.
const (
	ReasonNATS     = "nats"     // NATS or JetStream does not answer
	ReasonStorage  = "storage"  // JetStream has no room, or cannot write
	ReasonStore    = "store"    // the store of limits does not answer
	ReasonBusy     = "busy"     // this process has too much to do
	ReasonStarting = "starting" // this process does not know the policies yet
	ReasonStopping = "stopping" // this process is about to end
	ReasonDrainer  = "drainer"  // only a partition's owner can do this, and none answered
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

// Reason returns why an error is [ErrUnavailable] or [ErrNoDrainer], by what is in its chain;
// [ReasonNATS] when nothing there says otherwise.
func Reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.cause) {
			return r.reason
		}
	}
	return ReasonNATS
}

// UnknownPolicy returns the [ErrUnknownPolicy] of a name.
func UnknownPolicy(name string) error { return fmt.Errorf("%w: %.64q", ErrUnknownPolicy, name) }

// NoQueue returns the [ErrConflict] of what only a policy with a queue can do.
func NoQueue(policy string) error {
	return conflict("policy %q has no queue: it answers checks only", policy)
}

// UnfitMessage returns the [ErrTooLarge] of a body that does not fit with its headers.
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
