package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Job is one attempt of a job, as its handler sees it.
type Job struct {
	// ID is "<policy>:<stream sequence>", as in the answer to its submission.
	ID string
	// IdempotencyKey is the submitter's Idempotency-Key or else "<policy>-<stream created, Unix
	// s>-<sequence>". It is the same for every attempt, and for those of a replay of its dead
	// letter, and unique among all other jobs of a policy, also when its stream was made anew.
	IdempotencyKey string
	Policy         string
	Key            job.Key
	Body           []byte
	Header         nats.Header // as it was published; may be nil
	Attempt        int         // 1 is the first; only attempts that failed count
	Accepted       time.Time   // when JetStream stored the job
	// when the last check before this call passed: the start that the rate limits
	Started time.Time

	settled *settled
}

// Tags are what the job belongs to, as its submitter said; nil: nothing.
func (j Job) Tags() []string { return job.Tags(j.Header) }

// CoolDown says that the other side has nothing left of what it allows, for d. The job's whole
// bucket then starts nothing for so long, or for the policy's max_cooldown if that is less, however
// the attempt ends: one that is done is done. Of several calls the longest counts, and 0 or less
// says nothing. [RetryAfter] is for a job that was refused.
func (j Job) CoolDown(d time.Duration) {
	if j.settled == nil {
		return // made by a test, and not by a drainer
	}
	j.settled.mu.Lock()
	defer j.settled.mu.Unlock()
	j.settled.pause = max(j.settled.pause, d)
}

// Settle says what the job turned out to cost, of the limits that count a cost of this name; the
// last word before the handler returns counts, however the attempt ends. What was estimated too
// high is given back to those limits. What was too low is taken, also beyond a limit, so that the
// next job waits for it. Without it the estimate stands: the job's Penstock-Cost-<Name>, or else
// its Penstock-Cost.
func (j Job) Settle(cost string, used int64) {
	if j.settled == nil {
		return // made by a test, and not by a drainer
	}
	j.settled.mu.Lock()
	defer j.settled.mu.Unlock()
	name := strings.ToLower(cost)
	if _, known := j.settled.costs[name]; !known && len(j.settled.costs) == policy.MaxLimits {
		return // no policy counts more
	}
	if j.settled.costs == nil {
		j.settled.costs = map[string]int64{}
	}
	j.settled.costs[name] = min(max(used, 0), policy.MaxLimit)
}

// Awaited reports whether somebody waits for the outcome of the job, or wants to be called with it,
// and so for all that [Job.Reply] says.
func (j Job) Awaited() bool {
	return (job.IsWaiter(job.HeaderValue(j.Header, job.HeaderWaiter)) ||
		job.HeaderValue(j.Header, job.HeaderCallback) != "") && j.settled != nil
}

// Kept reports whether the policy has a history of ended jobs (keep_done), which keeps the status
// and the first [job.KeptReply] bytes of what [Job.Reply] says.
func (j Job) Kept() bool { return j.settled != nil && j.settled.kept }

// Reply says what the job came to, for who waits for it and for the history of its policy; the last
// word before the handler returns counts, if the job is done or dead then. Where nobody does either
// it says nothing. A body of more than [job.MaxReply] bytes is left out. The status and the header
// are for what has them, such as HTTP; 0 and nil say nothing.
func (j Job) Reply(status int, header http.Header, body []byte) {
	if !j.Awaited() && !j.Kept() {
		return
	}
	r := &job.Reply{Status: status, Header: header, Body: body}
	if len(body) > job.MaxReply {
		r.Body, r.Cut = body[:job.KeptReply], true
	}
	j.settled.mu.Lock()
	defer j.settled.mu.Unlock()
	j.settled.reply = r
}

// Handler runs one attempt of a job. It must return soon after its context ends, which happens
// after the policy's timeout and when the drainer stops. nil means done; see [Permanent],
// [RetryAfter] and [Unavailable] for the errors that mean more than "try again". A panic is an
// error. A job may run twice after a crash, so a handler should be idempotent.
type Handler func(ctx context.Context, job Job) error

// Handle returns a handler of jobs whose bodies are JSON of the type T. A body that is not makes
// the job a dead letter at once.
func Handle[T any](handle func(ctx context.Context, job Job, body T) error) Handler {
	return func(ctx context.Context, job Job) error {
		var body T
		if err := json.Unmarshal(job.Body, &body); err != nil {
			return Permanent(fmt.Errorf("read the body: %w", err))
		}
		return handle(ctx, job, body)
	}
}

// call runs a handler for at most its policy's timeout and returns the outcome.
func call(ctx context.Context, timeout time.Duration, handle Handler, seq uint64,
	job Job) record.Outcome {
	if job.settled == nil {
		job.settled = &settled{}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := outcomeOf(seq, caught(ctx, handle, job))
	if over := context.DeadlineExceeded; errors.Is(ctx.Err(), over) {
		o.Error = valve.Clip(strings.ReplaceAll(o.Error, over.Error(),
			fmt.Sprintf("no answer within %v, the policy's timeout", policy.Duration(timeout))),
			mostError)
	}
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

// said is what the run replied; nil: nothing, or it did not run here.
func (s *settled) said() *job.Reply {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reply
}

// settled is what a run says of its job's costs, of what the other side has left, and to who waits
// for the job.
type settled struct {
	mu    sync.Mutex
	costs map[string]int64
	pause time.Duration
	reply *job.Reply
	kept  bool // the history of the policy keeps some of it
}

// tell adds what was settled to how the run ended.
func (s *settled) tell(o *record.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Used = maps.Clone(s.costs)
	o.RetryAfter = max(o.RetryAfter, s.pause)
}
