package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/files"
	"github.com/penstock-mq/penstock/internal/base/seldom"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Job is one attempt of a job.
type Job struct {
	// ID is "<policy>:<stream sequence>", as in the reply to its submission.
	ID string
	// IdempotencyKey is the submitter's, or "<policy>-<stream created, Unix ms>-<sequence>". All
	// attempts, and replays of the dead letter, share it; no other job of the policy has it, even
	// if its stream is recreated.
	IdempotencyKey string
	Policy         string
	Key            queue.Key
	Body           []byte
	Header         nats.Header // as published; may be nil
	Attempt        int         // from 1; only failed attempts count
	Accepted       time.Time   // when JetStream stored the job
	// Started is the time of the final check, which the rate limits.
	Started time.Time

	settled *settled
}

// Tags returns the submitter's tags of the job, or nil.
func (j Job) Tags() []string { return job.Tags(j.Header) }

// CoolDown reports that the target accepts no requests for d: the whole bucket starts no jobs for
// d, at most max_cooldown, even if this attempt succeeds. The longest of several calls counts. For
// a refused job use [RetryAfter].
func (j Job) CoolDown(d time.Duration) {
	j.settled.with(func(s *settled) { s.pause = max(s.pause, d) })
}

// Settle reports the actual cost for limits on a cost of this name. The last call counts, even if
// the attempt fails. An overestimate is refunded; an underestimate is charged, even beyond a limit.
// Without Settle the job's Penstock-Cost-<Name>, or its Penstock-Cost, counts.
func (j Job) Settle(cost string, used int64) {
	j.settled.with(func(s *settled) {
		name := strings.ToLower(cost)
		if _, known := s.costs[name]; !known && len(s.costs) == policy.MaxLimits {
			return
		}
		if s.costs == nil {
			s.costs = map[string]int64{}
		}
		s.costs[name] = min(max(used, 0), policy.MaxLimit)
	})
}

// Progress reports the job's progress, such as "40 %" or JSON, to be shown while it runs. The last
// call counts, up to [job.MaxProgress] bytes.
func (j Job) Progress(text string) { j.settled.advance(text) }

// Answered reports that the target's answer has begun: for a limit that counts from the answer, the
// request counts from now on, and no longer from the end of the run. A handler that makes several
// requests calls it after the last answer. HTTP and NATS targets do so themselves.
func (j Job) Answered() {
	j.settled.with(func(s *settled) {
		if s.answered = true; s.answer != nil {
			s.replied = s.answer()
			s.answer = nil
		}
	})
}

// Unanswered reports that the target gave no answer, so that the request may still arrive, although
// the run ends as if it had: with no error, or one of [Permanent] or [RetryAfter]. An example is a
// 504, which a gateway may have made. For a limit that counts from the answer the request counts
// until the policy's max_delay after the run. It has no effect if [Job.Answered] is called.
func (j Job) Unanswered() { j.settled.miss(record.AnswerNone) }

// Unsent reports that the run sent no request, because no connection could be made, for example.
// Limits that count from the answer then count nothing. Only the last call of Unsent and
// [Job.Unanswered] counts, and neither if [Job.Answered] is called.
func (j Job) Unsent() { j.settled.miss(record.AnswerUnsent) }

func (s *settled) miss(a record.Answer) { s.with(func(s *settled) { s.missed = a }) }

// close returns what is known of the answer at the end of a run, and hears no more of it.
func (s *settled) close(by record.Answer) record.Answer {
	s.with(func(s *settled) {
		if by, s.answer = cmp.Or(s.missed, by), nil; s.answered {
			by = record.AnswerSeen
		}
	})
	return by
}

// unanswered returns how long a run's request was open, as limits count it.
func (s *settled) unanswered(a record.Answer, began pace.Instant,
	took time.Duration) (open time.Duration) {
	s.with(func(s *settled) {
		switch {
		case s.replied > 0:
			open = s.replied.Since(began)
		case a == record.AnswerNone:
			open = took + s.maxDelay
		default:
			open = took
		}
	})
	return open
}

// progressEvery is the interval between reports.
const progressEvery = 100 * time.Millisecond

func (s *settled) advance(text string) {
	s.with(func(s *settled) {
		if text = record.Clip(text, job.MaxProgress); text == "" || text == s.progress {
			return
		}
		if s.progress = text; !s.passing {
			s.passing = true
			time.AfterFunc(progressEvery, s.report)
		}
	})
}

func (s *settled) report() {
	s.with(func(s *settled) {
		if s.passing = false; s.pass != nil {
			s.pass(s.progress)
		}
	})
}

// Awaited reports whether a submitter or a callback waits for [Job.Reply].
func (j Job) Awaited() bool {
	return (job.IsWaiter(job.HeaderValue(j.Header, job.HeaderWaiter)) ||
		job.HeaderValue(j.Header, job.HeaderCallback) != "") && j.settled != nil
}

// Kept reports whether the policy's history keeps the status and the first [job.KeptReply] bytes of
// [Job.Reply].
func (j Job) Kept() bool { return j.settled != nil && j.settled.kept }

// Reply sets the result for waiting submitters and the policy's history. The last call counts, if
// the job then is done or dead. A body of more than [queue.MaxReply] bytes is dropped for
// submitters. Status and header are for targets that have them.
func (j Job) Reply(status int, header http.Header, body []byte) {
	j.setReply(&queue.Reply{Status: status, Header: header, Body: body})
}

func (j Job) setReply(r *queue.Reply) {
	if r == nil || !j.Awaited() && !j.Kept() {
		return
	}
	if len(r.Body) > queue.MaxReply {
		r.Body, r.Cut = r.Body[:job.KeptReply], true
	}
	j.settled.with(func(s *settled) { s.reply = r })
}

// Handler runs one attempt. It must return soon after its context ends: after the job's timeout, or
// when the drainer stops. A nil error means done; see [Permanent], [RetryAfter], [Again],
// [Unavailable] and [Misconfigured]. A panic and runtime.Goexit count as errors. A job may run
// twice after a crash.
type Handler func(ctx context.Context, job Job) error

// Handle returns a handler of JSON bodies of type T. An invalid body makes the job a dead letter at
// once.
func Handle[T any](handle func(ctx context.Context, job Job, body T) error) Handler {
	return func(ctx context.Context, job Job) error {
		var body T
		if err := json.Unmarshal(job.Body, &body); err != nil {
			return Permanent(fmt.Errorf("read the body: %w", err))
		}
		return handle(ctx, job, body)
	}
}

// coded wraps a handler of plain payloads. Without a codec a job counts no attempts, and waits for
// a worker that has one.
func coded(c queue.Codec, handle Handler) Handler {
	return func(ctx context.Context, j Job) error {
		body, err := job.Open(c, j.Header, j.Body)
		if errors.Is(err, queue.ErrNoCodec) {
			return Misconfigured(err)
		} else if err != nil {
			return err
		}
		j.Body = body
		if err = handle(ctx, j); !job.IsEncoded(j.Header) {
			return err
		}
		return cmp.Or(err, j.settled.encode(c))
	}
}

func (s *settled) encode(c queue.Codec) (err error) {
	s.with(func(s *settled) {
		if r := s.reply; r != nil {
			s.reply = nil
			if r.Header, r.Body, err = job.Seal(c, r.Header, r.Body); err == nil {
				s.reply = r
			}
		}
	})
	return err
}

func call(ctx context.Context, lines *seldom.Log, timeout time.Duration, handle Handler,
	seq uint64, job Job) record.Outcome {
	if job.settled == nil {
		job.settled = &settled{}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := caught(ctx, handle, job)
	if p, ok := errors.AsType[*panicked](err); ok {
		lines.Log("panic "+job.Policy, slog.LevelError, "a handler panicked", "policy", job.Policy,
			"job", job.ID, "key", job.Key.Raw(), "attempt", job.Attempt, "panic",
			record.Clip(fmt.Sprint(p.value), record.MostError), "stack", p.stack)
	}
	o := outcomeOf(seq, err)
	if files.Short(err) { // says nothing about the job or its target
		lines.Log("files", slog.LevelWarn, "no free file descriptor: jobs wait, which counts no "+
			"attempt; "+files.Advice, "policy", job.Policy, "limit", files.Limit(), "error", err)
		select { // with its worker, or others would have no descriptors either
		case <-time.After(filesPause):
		case <-ctx.Done():
		}
		o = record.Outcome{Seq: seq, Kind: record.OutcomeUncounted, Answer: record.AnswerNone,
			Error: record.Clip(err.Error(), record.MostError)}
	} else if IsMisconfigured(err) {
		lines.Log("misconfigured "+job.Policy, slog.LevelWarn, "a mistake of this process keeps "+
			"it from running jobs: they wait, which counts no attempt", "policy", job.Policy,
			"error", err)
	}
	if over := context.DeadlineExceeded; errors.Is(ctx.Err(), over) {
		o.Error = record.Clip(strings.ReplaceAll(o.Error, over.Error(),
			fmt.Sprintf("no answer within %v, the timeout", policy.Duration(timeout))),
			record.MostError)
	}
	job.settled.with(func(s *settled) {
		o.Used, o.RetryAfter = maps.Clone(s.costs), max(o.RetryAfter, s.pause)
	})
	o.Answer = job.settled.close(o.Answer)
	return o
}

// unlessInterrupted: a run that was interrupted counts no attempt, and says nothing of its target.
func unlessInterrupted(ctx context.Context, o record.Outcome) record.Outcome {
	if o.Kind == record.OutcomeFailed && ctx.Err() != nil {
		o.Kind, o.Unavailable = record.OutcomeUncounted, false
	}
	return o
}

type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

func caught(ctx context.Context, handle Handler, job Job) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicked{r, string(debug.Stack())}
		}
	}()
	err = handle(ctx, job)
	outcomeOf(0, err) // panics here if the error's methods do, as of a nil pointer
	return err
}

// exited is the outcome of a handler that ends its goroutine, as t.FailNow does in a test.
func exited(seq uint64) record.Outcome {
	return record.Outcome{Seq: seq, Kind: record.OutcomeFailed, Answer: record.AnswerNone,
		Error: "the handler called runtime.Goexit"}
}

func outcomeOf(seq uint64, err error) record.Outcome {
	o := record.Outcome{Seq: seq, Kind: record.OutcomeFailed}
	if err == nil {
		o.Kind = record.OutcomeDone
		return o
	}
	if after, snoozed := IsAgain(err); snoozed {
		o.Kind, o.Again = record.OutcomeUncounted, after
	} else if IsMisconfigured(err) {
		o.Kind, o.Unavailable = record.OutcomeUncounted, true
		err = fmt.Errorf("a mistake at the drainer, not the target's: %w", err)
	} else if pause, throttled := IsRetryAfter(err); throttled {
		e, _ := errors.AsType[retryAfterError](err)
		o.Kind, o.RetryAfter, o.Doubtful = record.OutcomeThrottled, pause, e.doubtful
	} else if IsPermanent(err) {
		o.Kind = record.OutcomePermanent
	} else {
		e, _ := errors.AsType[laterError](err)
		o.Unavailable, o.Again = IsUnavailable(err), e.after
	}
	if o.Answer = o.Kind.Answer(); IsMisconfigured(err) {
		o.Answer = record.AnswerUnsent
	}
	o.Error = record.Clip(err.Error(), record.MostError)
	return o
}

// filesPause is the wait for a file descriptor before a job is tried again.
const filesPause = 500 * time.Millisecond

type settled struct {
	mu    sync.Mutex
	costs map[string]int64
	pause time.Duration
	reply *queue.Reply
	kept  bool

	progress string
	pass     func(progress string) // nil: not shown, or the run is over
	passing  bool

	answered bool
	answer   func() pace.Instant // reports it; nil: no limit asks, or the run is over
	replied  pace.Instant        // as answer said; 0: not called
	missed   record.Answer       // that there was none; empty: as the end says
	maxDelay time.Duration       // after an end without an answer; 0: no limit asks
}

// with calls do under the lock, unless a test made the job.
func (s *settled) with(do func(s *settled)) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		do(s)
	}
}

func (s *settled) said() (r *queue.Reply) {
	s.with(func(s *settled) { r = s.reply })
	return r
}
