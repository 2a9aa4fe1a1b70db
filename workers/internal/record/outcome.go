package record

import (
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// Report is an outcome for a partition's new owner.
type Report struct {
	Policy    string
	Partition int
	Outcome   Outcome
}

// Outcome is the result of one run. Fields marked "handed over" are for a successor only.
type Outcome struct {
	Seq    uint64      `json:"seq"`
	Kind   OutcomeKind `json:"kind"`
	Holder string      `json:"holder,omitempty"` // its process, handed over
	Error  string      `json:"error,omitempty"`
	// Progress, of progress, is the run's latest report.
	Progress string `json:"progress,omitempty"`
	// Unavailable marks a failure because the target is down; of uncounted, it could not be called.
	Unavailable bool `json:"unavailable,omitempty"`
	// RetryAfter is the bucket's pause. For throttled: 0 if the target named no time.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Doubtful, of throttled, may be the job's own fault.
	Doubtful bool `json:"doubtful,omitempty"`
	// Again is the job's wait, for failed the least.
	Again time.Duration `json:"again,omitempty"`
	// Answer says how the run's end stands to the target's answer.
	Answer Answer `json:"answer,omitempty"`
	// Answered: it counted from its answer before the partition was handed over; handed over.
	Answered bool `json:"answered,omitempty"`
	// Ended: so did its end, and it holds no unit; handed over.
	Ended bool `json:"ended,omitempty"`
	// Used is the actual cost, by name.
	Used map[string]int64 `json:"used,omitempty"`
	// failed, permanent: resulting attempts, handed over
	Attempts int `json:"attempts,omitempty"`
	// permanent: of the dead letter, handed over
	Reason queue.Reason `json:"reason,omitempty"`
	// of the job, handed over: see [Handover]
	Stream int64 `json:"stream,omitempty"`
}

// Answer is what is known of the answer to a run's request, for limits that count from it.
type Answer string

const (
	// AnswerSeen: it had begun by the end of the run.
	AnswerSeen Answer = ""
	// AnswerNone: there was none, so the request may still arrive.
	AnswerNone Answer = job.SettledUnanswered
	// AnswerUnsent: no request was sent.
	AnswerUnsent Answer = job.SettledUnsent
)

// Answer is what an end of this kind says of the answer, unless more is known.
func (k OutcomeKind) Answer() Answer {
	if k == OutcomeFailed || k == OutcomeUncounted {
		return AnswerNone
	}
	return AnswerSeen
}

type OutcomeKind string

const (
	OutcomeDone      OutcomeKind = "done"
	OutcomeFailed    OutcomeKind = "failed"
	OutcomeThrottled OutcomeKind = "throttled"
	OutcomePermanent OutcomeKind = "permanent"
	OutcomeReturned  OutcomeKind = "returned" // the final check failed
	// OutcomeUncounted: a started job counts no attempt.
	OutcomeUncounted OutcomeKind = "uncounted"
	// OutcomeProgress: a handed-over job continues.
	OutcomeProgress OutcomeKind = "progress"
)
