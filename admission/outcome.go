package admission

import (
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue/job"
)

// Verdict is the decision on a submitted job.
type Verdict string

// The three verdicts. An Allowed job has started or is due now, a Queued job starts later, and a
// Rejected job was not accepted.
const (
	Allowed  Verdict = "allowed"
	Queued   Verdict = "queued"
	Rejected Verdict = "rejected"
)

// Quota is a policy's quota for one key, as shown to clients.
type Quota struct {
	// Policy is the policy's name, followed by a slash and the limit's name if the policy has
	// several limits.
	Policy string
	// Units is the maximum for one key at once: the limit of a window, the size of a bucket, the
	// capacity of a queue.
	Units int64
	// Window is the time in which Units are granted again: the length of a window, or the time
	// in which an empty bucket fills or a full one drains. 0 if undefined.
	Window time.Duration
}

// FillTime returns the time that n units take at a rate: the window of a bucket's quota, at most
// 100 years. Its precision is that of a float64.
func FillTime(n int64, r algorithms.Rate) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/r.PerSecond(), longest.Seconds()) * float64(time.Second))
}

// Outcome is the result of a submission.
type Outcome struct {
	Verdict Verdict
	// Job is the accepted job's id, "<policy>:<stream sequence>"; empty when Rejected. A repeat
	// within the policy's duplicate window, by the same Idempotency-Key, gets the id of the
	// original job or of the last replay of its dead letter.
	Job string
	// Duplicate means that the job had been accepted before.
	Duplicate bool
	// Delay is the expected time until the start, valid if DelayKnown. The start is unknown, and
	// the job Queued, if no drainer answered in time or the start depends on unpredictable
	// events, such as a pause or a busy worker.
	Delay      time.Duration
	DelayKnown bool
	// Position is the number of jobs in the bucket that start earlier, and Depth the number of
	// jobs in the bucket, including this one. A valve may know both even if DelayKnown is false.
	// Depth is 0 if the job has started or no valve answered.
	Position, Depth int

	// Result is the result of the job, if the caller waited for it; nil if the job has not ended
	// or the caller did not wait.
	Result *job.Result
	// NoResult is the reason why Result is nil although the caller wanted to wait: one of the
	// NoResult constants.
	NoResult string

	// Quota is the quota of the limiter or queue that decided.
	Quota Quota
	// Remaining is the rest of the quota, or -1 if unknown: the room of a queue is known only
	// when it is full.
	Remaining int64
	// ResetAfter is the time until the key has its whole quota again; 0 if unknown.
	ResetAfter time.Duration
	// RetryAfter is the time until a retry is useful; positive exactly when Rejected.
	RetryAfter time.Duration
	// Refused is why the job was Rejected: [ErrQueueFull], [ErrRateLimited] or
	// [ErrDeadlineUnreachable]; nil otherwise.
	Refused error
	// Unreachable is the expected start of a job refused with ErrDeadlineUnreachable. RetryAfter
	// is then the time after which a job with an equally long deadline can start in time.
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

// Checked is the answer to a check: the decision of a limit, and its quota.
type Checked struct {
	algorithms.Decision
	Quota Quota
	// Shadow holds the decisions of shadow limits.
	Shadow []Shadowed
}

// Shadowed is the decision of one shadow limit: whether it would have refused or delayed the
// request, and by how long.
type Shadowed struct {
	Limit string
	Over  bool
	By    time.Duration
}
