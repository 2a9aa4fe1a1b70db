package workers

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// Reason says why a job became a dead letter.
type Reason = job.Reason

// Reasons of dead letters.
const (
	ReasonPermanent = job.ReasonPermanent
	ReasonAttempts  = job.ReasonAttempts
	ReasonDeadline  = job.ReasonDeadline
	ReasonMalformed = job.ReasonMalformed
	ReasonCrashed   = job.ReasonCrashed
)

type wrapped struct{ error }

func (e wrapped) Unwrap() error { return e.error }

type permanentError struct{ wrapped }

// Permanent marks an error that no retry can resolve: the job becomes a dead letter at once.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{wrapped{err}}
}

type retryAfterError struct {
	wrapped
	after    time.Duration
	doubtful bool
}

func (e retryAfterError) Error() string {
	return fmt.Sprintf("throttled, retry after %v: %v", e.after, e.error)
}

// RetryAfter returns an error for a throttling target: the whole bucket starts no jobs for d, the
// job returns to its head, and no attempt is counted. If d is 0 or less, the pause is the policy's
// backoff, doubled for each consecutive one. It never exceeds max_cooldown.
func RetryAfter(d time.Duration, err error) error {
	err = cmp.Or(err, errors.New("the target is throttling"))
	return retryAfterError{wrapped{err}, max(0, d), false}
}

// Doubtful marks an error of [RetryAfter] that may be the job's own fault, as of a target that says
// so in other words than 429 and 503. When the job has ended so three times, and other jobs of its
// bucket passed in between, attempts are counted. The bucket does not pause for those.
func Doubtful(err error) error {
	if e, throttled := errors.AsType[retryAfterError](err); throttled {
		e.doubtful = true
		return e
	}
	return err
}

type laterError struct {
	wrapped
	after time.Duration
}

// Later marks a failed attempt of a job that is not to start again before d, beside the policy's
// backoff. Later(d, nil) is nil.
func Later(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return laterError{wrapped{err}, max(0, d)}
}

type againError struct{ after time.Duration }

func (e againError) Error() string { return fmt.Sprintf("to run again in %v", e.after) }

// Again returns an error for a job that is to start again after d, without counting an attempt. Its
// bucket continues with other jobs. The job's deadline and the policy's max_age still apply.
func Again(d time.Duration) error { return againError{max(0, d)} }

// IsAgain reports whether an error was made by [Again], and its wait.
func IsAgain(err error) (after time.Duration, snoozed bool) {
	e, snoozed := errors.AsType[againError](err)
	return e.after, snoozed
}

// ReadAgain returns the error for an answer's Penstock-Again header, or nil without one.
func ReadAgain(h map[string][]string, now time.Time) error {
	value := job.HeaderValue(h, job.HeaderAgain)
	if value == "" {
		return nil
	}
	at, err := job.ParseInstant(value, now, 0)
	if err != nil {
		return fmt.Errorf("the answer's %s: %w", job.HeaderAgain, err)
	}
	return Again(at.Sub(now))
}

type unavailableError struct{ wrapped }

// Unavailable marks a failure of the target, not of the job. The attempt counts. But after five
// different consecutive jobs of a bucket, or jobs of three buckets, the breaker opens: the bucket,
// or this drainer's share of the policy, starts one job per backoff (at most a minute) until one
// ends otherwise, and no attempt counts. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return unavailableError{wrapped{err}}
}

// IsUnavailable reports whether an error was marked by [Unavailable].
func IsUnavailable(err error) bool {
	_, unavailable := errors.AsType[unavailableError](err)
	return unavailable
}

// IsPermanent reports whether an error was marked by [Permanent].
func IsPermanent(err error) bool {
	_, permanent := errors.AsType[permanentError](err)
	return permanent
}

// IsRetryAfter reports whether an error was made by [RetryAfter], and its pause; 0: the policy's
// backoff.
func IsRetryAfter(err error) (pause time.Duration, throttled bool) {
	e, throttled := errors.AsType[retryAfterError](err)
	return e.after, throttled
}
