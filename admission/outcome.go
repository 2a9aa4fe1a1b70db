package admission

import (
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue/job"
)

type Verdict string

// Allowed: the job has started or is due now. Queued: it starts later. Rejected: it was not
// accepted.
const (
	Allowed  Verdict = "allowed"
	Queued   Verdict = "queued"
	Rejected Verdict = "rejected"
)

type Quota struct {
	// Policy is followed by a slash and the limit's name if the policy has several.
	Policy string
	// Units is the maximum at once: the limit of a window, the size of a bucket, the capacity of a
	// queue.
	Units int64
	// Window is the time in which Units are granted again; 0 if undefined.
	Window time.Duration
}

// FillTime returns the time that n units take at a rate, at most 100 years, with a float64's
// precision.
func FillTime(n int64, r algorithms.Rate) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/r.PerSecond(), longest.Seconds()) * float64(time.Second))
}

// Outcome is the result of a submission.
type Outcome struct {
	Verdict Verdict
	// Job is "<policy>:<stream sequence>"; empty when Rejected. A repeat gets the id of the
	// original job, or of the last replay of its dead letter.
	Job       string
	Duplicate bool
	// Delay is the expected time until the start, valid if DelayKnown. It is unknown if no drainer
	// answered in time, or during a pause or with busy workers.
	Delay      time.Duration
	DelayKnown bool
	// Position counts the jobs of the bucket that start earlier, Depth all of them. Depth is 0 if
	// the job has started or no valve answered.
	Position, Depth int

	// Result is nil if the job has not ended or the caller did not wait.
	Result *job.Result
	// NoResult is why Result is nil although the caller wanted to wait.
	NoResult string

	Quota Quota
	// Remaining is the rest of the quota, or -1: the room of a queue is known only when it is full.
	Remaining int64
	// ResetAfter is the time until the key has its whole quota; 0 if unknown.
	ResetAfter time.Duration
	// RetryAfter is the time until a retry is useful; positive exactly when Rejected.
	RetryAfter time.Duration
	Refused    error
	// Unreachable is the expected start of a job refused with ErrDeadlineUnreachable. After
	// RetryAfter an equally long deadline can be met.
	Unreachable time.Time
}

// Err returns a [*RefusedError] if the job was Rejected, and nil otherwise.
func (o Outcome) Err() error {
	if o.Verdict != Rejected {
		return nil
	}
	policy, _, _ := strings.Cut(o.Quota.Policy, "/")
	return &RefusedError{Policy: policy, Reason: o.Refused, RetryAfter: o.RetryAfter}
}

type Checked struct {
	algorithms.Decision
	Quota Quota
	// Shadow holds the decisions of shadow limits.
	Shadow []Shadowed
}

// Shadowed is what a shadow limit would have done.
type Shadowed struct {
	Limit string
	Over  bool
	By    time.Duration
}
