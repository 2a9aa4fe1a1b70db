package admission

import (
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue/job"
)

type Verdict string

// Allowed: the job has started or is due now. Queued: it starts later.
const (
	Allowed  Verdict = "allowed"
	Queued   Verdict = "queued"
	Rejected Verdict = "rejected"
)

type Quota struct {
	// with a slash and the limit's name if the policy has several
	Policy string
	// at once: the limit of a window, the size of a bucket, the capacity of a queue
	Units int64
	// time in which Units are granted again; 0 if undefined
	Window time.Duration
}

// FillTime returns the time that n units take at a rate, at most 100 years.
func FillTime(n int64, r algorithms.Rate) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/r.PerSecond(), longest.Seconds()) * float64(time.Second))
}

type Outcome struct {
	Verdict Verdict
	// Job is "<policy>:<stream sequence>"; empty when Rejected. A repeat gets the id of the
	// original job, or of its last replay.
	Job       string
	Duplicate bool
	// Delay is the expected time until the start, if DelayKnown: a drainer answered in time, and
	// neither a pause nor busy workers hold the job.
	Delay      time.Duration
	DelayKnown bool
	// Position counts the jobs of the bucket that start earlier, Depth all; 0 if the job has
	// started or no valve answered.
	Position, Depth int

	// nil if the job has not ended or the caller did not wait
	Result *job.Result
	// why a caller that waits has no Result, and the latest report of the job that still runs
	NoResult, Progress string

	Quota Quota
	// of the quota; -1: unknown, as for a queue that is not full
	Remaining int64
	// until the key has its whole quota; 0 if unknown
	ResetAfter time.Duration
	// positive exactly when Rejected
	RetryAfter time.Duration
	Refused    error
	// the expected start, for ErrDeadlineUnreachable; after RetryAfter an equally long deadline can
	// be met
	Unreachable time.Time
}

// Err returns a [*RefusedError] if the job was Rejected.
func (o Outcome) Err() error {
	if o.Verdict != Rejected {
		return nil
	}
	policy, _, _ := strings.Cut(o.Quota.Policy, "/")
	return &RefusedError{Policy: policy, Reason: o.Refused, RetryAfter: o.RetryAfter}
}

type Checked struct {
	algorithms.Decision
	Quota  Quota
	Shadow []Shadowed
}

type Shadowed struct {
	Limit string
	Over  bool
	By    time.Duration
}
