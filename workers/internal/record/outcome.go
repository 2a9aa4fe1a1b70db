package record

import (
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// Report is an outcome of a job whose partition was handed over.
type Report struct {
	Policy    string
	Partition int
	Outcome   Outcome
}

// Outcome is the result of one run of a job.
type Outcome struct {
	Seq    uint64      `json:"seq"`
	Kind   OutcomeKind `json:"kind"`
	Holder string      `json:"holder,omitempty"` // its process, when reported to a successor
	Error  string      `json:"error,omitempty"`
	// Progress, of progress, is the latest report of the run.
	Progress string `json:"progress,omitempty"`
	// Unavailable marks a failure because the target is down: see workers.Unavailable.
	Unavailable bool `json:"unavailable,omitempty"`
	// RetryAfter is how long the bucket pauses. For throttled: 0 if the target named no time.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Again, of uncounted, is how long the job itself waits before it starts again.
	Again time.Duration `json:"again,omitempty"`
	// Used is the actual cost of the job, by cost name.
	Used map[string]int64 `json:"used,omitempty"`
	// failed, permanent: the resulting number of attempts, when reported to a successor
	Attempts int `json:"attempts,omitempty"`
	// permanent: the reason of the dead letter, when reported to a successor
	Reason job.Reason `json:"reason,omitempty"`
	// of the job, when reported to a successor: see [Handover]
	Stream int64 `json:"stream,omitempty"`
}

type OutcomeKind string

const (
	OutcomeDone      OutcomeKind = "done"
	OutcomeFailed    OutcomeKind = "failed"
	OutcomeThrottled OutcomeKind = "throttled"
	OutcomePermanent OutcomeKind = "permanent"
	OutcomeReturned  OutcomeKind = "returned" // never started: the final check failed
	// OutcomeUncounted is for a job that returned after its start: no attempt counts.
	OutcomeUncounted OutcomeKind = "uncounted"
	// OutcomeProgress is no outcome yet: a job that was handed over while it ran continues.
	OutcomeProgress OutcomeKind = "progress"
)
