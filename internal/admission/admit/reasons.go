package admit

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

// Kinds of errors, in addition to those of package admission. Clients see the texts of all, except
// for the cause of an [admission.ErrUnavailable].
var (
	ErrTooSlow      = errors.New("too slow")
	ErrPrecondition = errors.New("precondition failed")
	ErrForbidden    = errors.New("forbidden")
)

// InvalidKey returns a [*admission.RequestError] about the key.
func InvalidKey(err error) error {
	reason := err.Error()
	if of, ok := errors.AsType[*queue.KeyError](err); ok {
		reason = of.Reason
	}
	return invalid("key", reason)
}

// Causes of an [admission.ErrUnavailable]; [Reason] maps them to reasons.
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
	{admission.ErrNoDrainer, ReasonDrainer},
	{ErrStore, ReasonStore},
	{ErrBusy, ReasonBusy},
	{ErrStarting, ReasonStarting},
	{ErrStopping, ReasonStopping},
	{access.ErrProvider, ReasonOpenID},
	{context.Canceled, ReasonStopping},
	{jet.ErrStorage, ReasonStorage},
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

func invalid(field, reason string) error {
	return &admission.RequestError{Field: field, Reason: reason}
}

// UnknownPolicy returns an [admission.ErrUnknownPolicy] that names the policy.
func UnknownPolicy(name string) error {
	return fmt.Errorf("%w: %.64q", admission.ErrUnknownPolicy, name)
}

// NoQueue returns an [admission.ErrConflict]: the policy takes no jobs.
func NoQueue(policy string) error {
	return conflict("policy %q has no queue and only answers checks", policy)
}

// UnfitMessage returns an [admission.ErrTooLarge].
func UnfitMessage() error {
	return fmt.Errorf("%w: the body and headers do not fit into a message", admission.ErrTooLarge)
}

func conflict(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{admission.ErrConflict}, args...)...)
}

func unavailable(doing string, cause error) error {
	return fmt.Errorf("%w: %s: %w", admission.ErrUnavailable, doing, cause)
}
