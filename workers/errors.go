package workers

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// Reason says why a job became a dead letter.
type Reason = job.Reason

// The reasons of dead letters.
const (
	ReasonPermanent = job.ReasonPermanent
	ReasonAttempts  = job.ReasonAttempts
	ReasonDeadline  = job.ReasonDeadline
	ReasonMalformed = job.ReasonMalformed
	ReasonCrashed   = job.ReasonCrashed
)

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error of a handler as one that no further attempt can mend: the job becomes a
// dead letter at once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type retryAfterError struct {
	after time.Duration
	err   error
}

func (e *retryAfterError) Error() string {
	return fmt.Sprintf("throttled, retry after %v: %v", e.after, e.err)
}
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter says that the other side is throttling. The whole bucket starts nothing for d, the job
// goes back to the head of its bucket, and no attempt is counted. With d of 0 or less the policy's
// backoff is used, doubled for each time in a row; the pause is never longer than the policy's
// max_cooldown.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("the target is throttling")
	}
	return &retryAfterError{max(0, d), err}
}

type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// Unavailable marks an error of a handler as one of the other side and not of the job: it cannot be
// reached, or it fails whatever it is asked. The attempt has failed as with any other error. But
// when five different jobs of a bucket in a row say so, or jobs of three buckets of a policy, the
// bucket, or this drainer's share of the policy, starts nothing more than one job per backoff (the
// policy's, at most a minute), until one of them ends otherwise; meanwhile no attempt is counted.
// Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

// IsUnavailable reports whether a handler's error was marked by [Unavailable]: for handlers around
// other handlers.
func IsUnavailable(err error) bool {
	var unavailable *unavailableError
	return errors.As(err, &unavailable)
}

// IsPermanent reports whether a handler's error was marked by [Permanent]: for handlers around
// other handlers.
func IsPermanent(err error) bool {
	var permanent *permanentError
	return errors.As(err, &permanent)
}

// IsRetryAfter reports whether a handler's error was made by [RetryAfter], and the pause that it
// asks for, 0 for the policy's backoff.
func IsRetryAfter(err error) (pause time.Duration, throttled bool) {
	var e *retryAfterError
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.after, true
}
