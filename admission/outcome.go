package admission

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue"
)

// Verdict is the service's answer to a job.
type Verdict string

// Allowed: the job has started or is due now. Queued: it starts later.
const (
	Allowed  Verdict = "allowed"
	Queued   Verdict = "queued"
	Rejected Verdict = "rejected"
)

// Quota is what a key may use or hold.
type Quota struct {
	Policy string        // with a slash and the limit's name if the policy has several
	Units  int64         // limit of a window, size of a bucket, capacity of a queue
	Window time.Duration // until Units are granted again; 0 if undefined
}

// Outcome is the answer to a submission.
type Outcome struct {
	Verdict Verdict
	// Job is empty when Rejected. A repeat gets the id of the first job, or of its last replay.
	Job       string
	Duplicate bool
	// Delay is the expected time until the start. It is known (DelayKnown) if a drainer answered in
	// time, and no pause or lack of workers holds the job.
	Delay      time.Duration
	DelayKnown bool
	// Position counts the jobs of the bucket that start earlier, Depth all; 0 if the job has
	// started or no valve answered.
	Position, Depth int

	Result   *queue.Result // of a job that has ended, if the caller waited
	NoResult string        // why a caller that waited has no result
	Progress string        // of a job that runs

	Quota      Quota
	Remaining  int64         // of the quota; -1: unknown, as for a queue with room
	ResetAfter time.Duration // until the key has its whole quota; 0 if unknown
	RetryAfter time.Duration // positive exactly when Rejected
	Refused    error
	// Unreachable is the expected start if it is after the deadline ([ErrDeadlineUnreachable]).
	Unreachable time.Time
}

// String says in a sentence what became of the job.
func (o Outcome) String() string {
	delay := o.Delay.Round(time.Millisecond)
	switch {
	case o.Verdict == Rejected:
		return o.Err().Error()
	case o.Job == "":
		return "no job was submitted"
	case o.Result != nil && o.Result.Error != "":
		return fmt.Sprintf("job %s is %s: %s", o.Job, o.Result.End, o.Result.Error)
	case o.Result != nil:
		return fmt.Sprintf("job %s is %s", o.Job, o.Result.End)
	case o.Duplicate:
		return fmt.Sprintf("job %s was accepted before", o.Job)
	case o.Verdict == Allowed:
		return fmt.Sprintf("job %s starts now", o.Job)
	case !o.DelayKnown:
		return fmt.Sprintf("job %s waits for its turn", o.Job)
	case o.Position == 0:
		return fmt.Sprintf("job %s starts in %v", o.Job, delay)
	}
	return fmt.Sprintf("job %s starts in %v, number %d of its queue", o.Job, delay, o.Position+1)
}

// Err is a [*RefusedError] or nil.
func (o Outcome) Err() error {
	if o.Verdict != Rejected {
		return nil
	}
	policy, _, _ := strings.Cut(o.Quota.Policy, "/")
	return &RefusedError{Policy: policy, Reason: o.Refused, RetryAfter: o.RetryAfter}
}

// Checked is the answer to a check: the decision of a limit.
type Checked struct {
	algorithms.Decision
	Quota  Quota
	Shadow []Shadowed
}

// Shadowed is what a shadow limit would have decided.
type Shadowed struct {
	Limit string
	Over  bool
	By    time.Duration
}

// MaxBody leaves room for headers in a message of the embedded server.
const MaxBody = 1 << 20

// MaxWait bounds the time that a submission waits for its job's end.
const MaxWait = 5 * time.Minute

// Why a waiting submission has no result.
const (
	NoResultTime     = "time"   // the job did not end in time
	NoResultRepeat   = "repeat" // another submission of the job gets the result
	NoResultBusy     = "busy"   // too many wait
	NoResultStopping = "stopping"
)
