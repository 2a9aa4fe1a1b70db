package admission

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue/job"
)

// Verdict is the service's answer to a submitted job.
type Verdict string

// The three verdicts. An Allowed job has started or is due now, a Queued one starts later, a
// Rejected one was not taken.
const (
	Allowed  Verdict = "allowed"
	Queued   Verdict = "queued"
	Rejected Verdict = "rejected"
)

// Quota is what a policy grants one key, as clients see it.
type Quota struct {
	// Policy is the policy's name, followed by a slash and the limit's name when the policy has
	// several.
	Policy string
	// Units is the most that one key can have at once: the limit of a window, the size of a bucket,
	// the capacity of a queue.
	Units int64
	// Window is the time in which Units are granted again: a window's length, or the time in which
	// an empty bucket fills or a full one drains. 0 when there is no such time.
	Window time.Duration
}

// FillTime returns how long n units take at a rate: the window of a bucket's quota, at most 100
// years. It is as exact as a float, which is more than clients see.
func FillTime(n int64, r algorithms.Rate) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/r.PerSecond(), longest.Seconds()) * float64(time.Second))
}

// Outcome is what became of a submitted job.
type Outcome struct {
	Verdict Verdict
	// Job is the accepted job's id, "<policy>:<stream sequence>"; empty when Rejected. A repeat
	// within the policy's duplicate window, by the same Idempotency-Key, has the id of the first,
	// or of the replay of its dead letter.
	Job string
	// Duplicate is whether the job had been accepted before.
	Duplicate bool
	// Delay is how long until the job starts, as its valve expects, and DelayKnown whether a valve
	// said so. Unknown is always Queued: there is no drainer, or none that answered in time, or the
	// start depends on what nobody can tell, such as a pause or a busy worker.
	Delay      time.Duration
	DelayKnown bool
	// Position is how many jobs of its bucket start before it, and Depth how many the bucket holds,
	// itself included, as its valve said, which also knows it where DelayKnown is false. Depth is 0
	// when the job has started, or no valve said so.
	Position, Depth int

	// Told is how the job ended, for which the caller waited; nil when it has not, or nobody
	// waited.
	Told *job.Told
	// NotWaited is why Told is not there although the caller wants to wait: one of the NotWaited
	// words.
	NotWaited string

	// Quota is that of the limiter or the queue which decided.
	Quota Quota
	// Remaining is how much of the quota is left, -1 when nobody counted: a queue's room is known
	// only when it is full.
	Remaining int64
	// ResetAfter is the time until the key has its whole quota again; 0 when nobody counted.
	ResetAfter time.Duration
	// RetryAfter is when to come back; positive exactly when Rejected.
	RetryAfter time.Duration
	// Unreachable is when the job would start that was rejected because its deadline is before
	// that; zero: it was not. RetryAfter is then when one with as long a deadline is in time.
	Unreachable time.Time
}

// Checked is the answer to a check: a rule's decision, and the quota it belongs to.
type Checked struct {
	algorithms.Decision
	Quota Quota
	// Shadow is what limits would have done that hold nothing back.
	Shadow []Shadowed
}

// Shadowed is what one limit would have done: refused or delayed the request, and by how much.
type Shadowed struct {
	Limit string
	Over  bool
	By    time.Duration
}
