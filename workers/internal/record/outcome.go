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

// Outcome is what became of one run of a job, as reported by a worker here or, after a handover, by
// another process.
type Outcome struct {
	Seq    uint64      `json:"seq"`
	Kind   OutcomeKind `json:"kind"`
	Holder string      `json:"holder,omitempty"` // who ran it, when reported to a successor
	Error  string      `json:"error,omitempty"`
	// Unavailable says of a failed run that the target is down: see workers.Unavailable.
	Unavailable bool `json:"unavailable,omitempty"`
	// RetryAfter is for how long the bucket pauses: throttled, 0 when the target named no time;
	// any other, when the target has nothing left of what it allows.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Used is what the job turned out to cost, by the names of costs.
	Used map[string]int64 `json:"used,omitempty"`
	// failed, permanent: how many that makes, when reported to a successor
	Attempts int `json:"attempts,omitempty"`
	// permanent: of the dead letter, when reported to a successor
	Reason job.Reason `json:"reason,omitempty"`
	// of the job, when reported to a successor: see [handover]
	Stream int64 `json:"stream,omitempty"`
}

type OutcomeKind string

const (
	OutcomeDone      OutcomeKind = "done"
	OutcomeFailed    OutcomeKind = "failed"
	OutcomeThrottled OutcomeKind = "throttled"
	OutcomePermanent OutcomeKind = "permanent"
	OutcomeReturned  OutcomeKind = "returned" // never started: the last check failed
	// OutcomeUncounted is that of a job that went back after its start: the slot is spent, but no
	// attempt counts.
	OutcomeUncounted OutcomeKind = "uncounted"
	// OutcomeProgress is none yet: a job that was handed over while it ran goes on.
	OutcomeProgress OutcomeKind = "progress"
)
