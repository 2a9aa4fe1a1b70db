package workers

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Job is one attempt of a job, as its handler sees it.
type Job struct {
	// ID is "<policy>:<stream sequence>", as in the answer to its submission.
	ID string
	// Idempotency is the submitter's Idempotency-Key or else "<policy>-<stream created, Unix
	// s>-<sequence>". It is the same for every attempt, and for those of a replay of its dead
	// letter, and unique among all other jobs of a policy, also when its stream was made anew.
	Idempotency string
	Policy      string
	Key         job.Key
	Body        []byte
	Header      nats.Header // as it was published; may be nil
	Attempt     int         // 1 is the first; only attempts that failed count
	Accepted    time.Time   // when JetStream stored the job
	// when the last check before this call passed: the start that the rate limits
	Started time.Time

	settled *settled
}

// Handler runs one attempt of a job. It must return soon after its context ends, which happens
// after the policy's timeout and when the drainer stops. nil means done; see [Permanent],
// [RetryAfter] and [Unavailable] for the errors that mean more than "try again". A panic is an
// error. A job may run twice after a crash, so a handler should be idempotent.
type Handler func(ctx context.Context, job Job) error

// call runs a handler and returns what that came to.
func call(ctx context.Context, handle Handler, seq uint64, job Job) record.Outcome {
	job.settled = &settled{}
	o := outcomeOf(seq, caught(ctx, handle, job))
	job.settled.tell(&o)
	return o
}

// caught runs a handler and turns its panic into an error.
func caught(ctx context.Context, handle Handler, job Job) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return handle(ctx, job)
}

// outcomeOf translates a handler's answer.
func outcomeOf(seq uint64, err error) record.Outcome {
	o := record.Outcome{Seq: seq, Kind: record.OutcomeFailed}
	if err == nil {
		o.Kind = record.OutcomeDone
		return o
	}
	if pause, throttled := IsRetryAfter(err); throttled {
		o.Kind, o.RetryAfter = record.OutcomeThrottled, pause
	} else if IsPermanent(err) {
		o.Kind = record.OutcomePermanent
	} else {
		o.Unavailable = IsUnavailable(err)
	}
	o.Error = valve.Clip(err.Error(), mostError)
	return o
}

// mostError is how many bytes of an error are kept, which end up in headers and records.
const mostError = 1024
