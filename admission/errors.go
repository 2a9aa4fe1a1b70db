package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Kinds of errors, in addition to [*RequestError]. Clients see their texts, except for the cause of
// an ErrUnavailable.
var (
	ErrUnknownPolicy = errors.New("unknown policy")
	// for example a job for a policy without a queue
	ErrConflict     = errors.New("conflict with the policy")
	ErrTooLarge     = errors.New("too large")
	ErrTooSlow      = errors.New("too slow")
	ErrOtherPayload = errors.New(
		"this Idempotency-Key was used for a job with a different body, method or path")
	ErrNotFound     = errors.New("not found")
	ErrPrecondition = errors.New("precondition failed")
	ErrForbidden    = errors.New("forbidden")
	ErrNoDrainer    = errors.New("no drainer answered") // the request may be repeated
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

// InvalidKey returns a [*RequestError] about the key.
func InvalidKey(err error) error {
	reason := err.Error()
	if of, ok := errors.AsType[*job.KeyError](err); ok {
		reason = of.Reason
	}
	return &RequestError{"key", reason}
}

// Causes of an [ErrUnavailable]; [Reason] maps them to reasons.
var (
	ErrStore    = errors.New("the store of limits does not answer") // its health check logs why
	ErrBusy     = errors.New("too many requests are being answered")
	ErrStarting = errors.New("the policies are not loaded yet")
	ErrStopping = errors.New("the process is stopping")
)

// Reasons of answers 503 and 507.
const (
	ReasonNATS     = "nats"    // NATS or JetStream does not answer
	ReasonStorage  = "storage" // JetStream cannot write
	ReasonStore    = "store"   // the store of limits does not answer
	ReasonBusy     = "busy"
	ReasonStarting = "starting" // policies are not known yet
	ReasonStopping = "stopping"
	ReasonDrainer  = "drainer"
	ReasonOpenID   = "openid" // the provider's keys are not known
)

var reasons = []struct {
	cause  error
	reason string
}{
	{ErrNoDrainer, ReasonDrainer},
	{ErrStore, ReasonStore},
	{ErrBusy, ReasonBusy},
	{ErrStarting, ReasonStarting},
	{ErrStopping, ReasonStopping},
	{access.ErrProvider, ReasonOpenID},
	{context.Canceled, ReasonStopping},
	{queue.ErrStorage, ReasonStorage},
}

// Reason defaults to [ReasonNATS].
func Reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.cause) {
			return r.reason
		}
	}
	return ReasonNATS
}

// UnknownPolicy returns an [ErrUnknownPolicy] that names the policy.
func UnknownPolicy(name string) error { return fmt.Errorf("%w: %.64q", ErrUnknownPolicy, name) }

// NoQueue returns an [ErrConflict]: the policy takes no jobs.
func NoQueue(policy string) error {
	return conflict("policy %q has no queue and only answers checks", policy)
}

// UnfitMessage returns an [ErrTooLarge].
func UnfitMessage() error {
	return fmt.Errorf("%w: the body and headers do not fit into a message", ErrTooLarge)
}

func conflict(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConflict}, args...)...)
}

func unavailable(doing string, cause error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, cause)
}
