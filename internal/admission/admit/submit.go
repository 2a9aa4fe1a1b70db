package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Submit stores a job, or returns when to retry ([admission.Rejected]). Errors:
// [*admission.RequestError], [admission.ErrUnknownPolicy], [admission.ErrConflict] (no queue),
// [*admission.EndedError] and [admission.ErrOtherPayload] (of a repeat), [admission.ErrTooLarge],
// [admission.ErrUnavailable] (the job may be stored).
func (s *Service) Submit(ctx context.Context, r SubmitRequest) (admission.Outcome, error) {
	wait, err := r.waits()
	if err != nil {
		return admission.Outcome{}, err
	}
	r.single = true
	if wait > 0 {
		return s.await(ctx, r, wait)
	}
	return s.finish(ctx, s.send(ctx, &r), true)
}

// Sound returns the headers to store of a valid submission.
func (s *Service) Sound(r SubmitRequest) (map[string][]string, error) {
	_, job, err := s.read(&r)
	return job.stored, err
}

// Sound is [Service.Sound] for given policies, without deadlines and callback addresses.
func Sound(find func(name string) (policy.Policy, error),
	r SubmitRequest) (map[string][]string, error) {
	p, err := find(r.Policy)
	if err != nil {
		return nil, err
	}
	job, err := readJob(p, &r)
	if err == nil {
		err = job.callable(p, find, func(*url.URL) error { return nil })
	}
	if err == nil {
		err = job.affordable(p)
	}
	return job.stored, err
}

// submission is a job on its way: decoded and admitted, then sent, stored and described.
type submission struct {
	r       *SubmitRequest
	live    *livePolicy
	job     jobHeader
	outcome admission.Outcome // until the job is stored, of its admission
	err     error
	full    *refusal
	taken   bool // units of the limiter
	// sent is nil if the job is not sent: it is refused, or receipt is that of an earlier one.
	sent    func(context.Context) (jet.Receipt, error)
	receipt jet.Receipt
	end     func(admission.Outcome, error)
}

// send decodes a job, admits it, and gives it to the publisher.
func (s *Service) send(ctx context.Context, r *SubmitRequest) *submission {
	x := &submission{r: r, end: func(admission.Outcome, error) {}}
	x.live, x.job, x.err = s.read(r)
	if x.err == nil && x.job.waits && !r.single {
		x.err = invalid(WaitHeader, "applies only to a single job, not to a batch")
	}
	if x.err != nil {
		return x
	}
	x.job.awaited(r.waiter)
	if s.begin != nil {
		x.job.stored, x.end = s.begin(r.Policy, maps.Clone(x.job.stored))
	}
	if s.admit(ctx, x) {
		x.sent = s.publisher.Send(ctx, x.live.submission(r, x.job))
	}
	return x
}

// finish waits until the job is stored. Only with foretell is its valve asked.
func (s *Service) finish(ctx context.Context, x *submission, foretell bool) (
	admission.Outcome, error) {
	o, err := s.store(ctx, x)
	if foretell && err == nil && o.Job != "" {
		o = s.foretold(ctx, x, o)
	}
	x.end(o, err)
	if err == nil {
		s.sink.Take(queue.Event{Type: jet.EventAdmitted, Policy: x.r.Policy, Key: x.r.Key,
			Name: string(o.Verdict)})
	}
	return o, err
}

func (s *Service) read(r *SubmitRequest) (live *livePolicy, job jobHeader, err error) {
	if live, err = s.live(r.Policy); err != nil {
		return nil, job, err
	}
	if job, err = readJob(live.policy, r); err != nil {
		return nil, job, err
	}
	if err := job.callable(live.policy, s.find, s.callback); err != nil {
		return nil, job, err
	}
	return live, job, job.startable(live.policy, time.Now())
}

func (s *Service) find(name string) (policy.Policy, error) {
	live, err := s.live(name)
	if err != nil {
		return policy.Policy{}, err
	}
	return live.policy, nil
}

func readJob(p policy.Policy, r *SubmitRequest) (job jobHeader, err error) {
	if !p.HasQueue() {
		return job, NoQueue(r.Policy)
	}
	if len(r.Body) > admission.MaxBody {
		return job, fmt.Errorf("%w: a body is at most %d bytes", admission.ErrTooLarge,
			admission.MaxBody)
	}
	if job, err = readHeader(r.Header); err != nil {
		return job, err
	}
	return job, job.fit(p, r)
}

// admit reports whether the job is to be stored.
func (s *Service) admit(ctx context.Context, x *submission) bool {
	key, quota := x.r.Key, x.live.queue
	if x.live.limit.Limiter != nil {
		quota = x.live.limit.Quota
	}
	x.outcome = admission.Outcome{Quota: quota, Remaining: -1}
	if x.receipt = s.waitsAs(ctx, x.live, key, x.job); x.receipt.Duplicate {
		x.outcome.Quota = x.live.queue
		return false
	}
	// Repeats must get the first answer even from a full bucket.
	if x.job.idempotency == "" {
		if x.full = x.live.refusals.recall(key); x.full != nil {
			return false
		}
	}
	if late, ok := s.unreachable(ctx, x.live, key, x.job); ok {
		x.outcome = late
		return false
	}
	return x.live.limit.Limiter == nil || s.take(ctx, x)
}

// take takes the job's units of the limiter.
func (s *Service) take(ctx context.Context, x *submission) bool {
	limit := x.live.limit
	if x.err = affordable(limit, job.HeaderCost, x.job.cost); x.err != nil {
		return false
	}
	if x.err = reachable(limit, x.caller().IP); x.err != nil {
		return false
	}
	if receipt, found := x.live.repeats.recall(x.repeat()); found && x.job.idempotency != "" {
		x.receipt, x.err = s.publisher.Repeated(ctx, x.live.submission(x.r, x.job), receipt)
		if x.err != nil {
			x.outcome, x.err = s.refused(ctx, x.live, x.r, x.err)
		}
		return false
	}
	decision, err := limit.Limiter.Take(ctx, x.caller(), x.job.cost)
	if err != nil {
		x.err = limiterError(job.HeaderCost, x.r.Policy, err)
		return false
	}
	s.shadowed(x.r.Policy, decision.Shadow)
	x.outcome = admission.Outcome{Quota: decision.Quota, Remaining: decision.Remaining,
		ResetAfter: decision.ResetAfter}
	if x.taken = decision.Allowed; !x.taken {
		x.outcome.Verdict, x.outcome.Refused = admission.Rejected, admission.ErrRateLimited
		x.outcome.RetryAfter = max(decision.RetryAfter, time.Millisecond)
	}
	return x.taken
}

func (x *submission) caller() admission.Caller {
	return admission.Caller{Key: x.r.Key, IP: cmp.Or(x.job.ip, x.r.IP)}
}

func (x *submission) repeat() repeatKey { return repeatKey{x.r.Key, x.job.idempotency} }

func (s *Service) store(ctx context.Context, x *submission) (admission.Outcome, error) {
	switch {
	case x.full != nil:
		return x.live.full(ctx, x.r.Key, x.full)
	case x.sent == nil && (x.err != nil || x.receipt.Seq == 0):
		return x.outcome, x.err
	case x.sent != nil:
		var err error
		if x.receipt, err = x.sent(ctx); x.taken {
			if refundErr := s.settle(ctx, x, err); refundErr != nil {
				return admission.Outcome{}, unavailable("refund the limiter of "+x.r.Policy,
					refundErr)
			}
		}
		if err != nil {
			return s.refused(ctx, x.live, x.r, err)
		}
	}
	o := x.outcome
	o.Job, o.Duplicate = job.ID(x.live.policy.Name, x.receipt.Seq), x.receipt.Duplicate
	o.Verdict = admission.Queued
	return o, nil
}

// settle refunds the units of a job that was not stored. An unknown result keeps them: the job may
// be stored.
func (s *Service) settle(ctx context.Context, x *submission, err error) error {
	if err == nil && x.job.idempotency != "" {
		x.live.repeats.remember(x.repeat(), x.receipt)
	}
	if err == nil && !x.receipt.Duplicate {
		return nil
	}
	if err == nil || errors.Is(err, jet.ErrNotSent) || errors.Is(err, jet.ErrStorage) ||
		!errors.Is(err, jet.ErrUnavailable) && ctx.Err() == nil {
		x.outcome.Remaining = -1
		return x.live.limit.Limiter.Refund(ctx, x.caller(), x.job.cost)
	}
	return nil
}

func (l *livePolicy) submission(req *SubmitRequest, job jobHeader) jet.Submission {
	return jet.Submission{
		Policy:         req.Policy,
		Key:            req.Key,
		Admitted:       l.policy.Door(),
		Header:         job.stored,
		Body:           req.Body,
		IdempotencyKey: job.idempotency,
	}
}

func (s *Service) foretold(ctx context.Context, x *submission,
	o admission.Outcome) admission.Outcome {
	start := s.expected.ask(ctx, s.partition(x.live, x.r.Key), x.receipt.Seq)
	o.Delay, o.DelayKnown = start.delay, start.known
	o.Position, o.Depth, o.Progress = start.position, start.depth, start.progress
	if o.DelayKnown && o.Delay == 0 {
		o.Verdict = admission.Allowed
	}
	return o
}

func (s *Service) refused(ctx context.Context, live *livePolicy, r *SubmitRequest,
	err error) (admission.Outcome, error) {
	var ended *jet.EndedError
	switch {
	case errors.Is(err, jet.ErrFull):
		full, mine := live.refusals.remember(r.Key)
		if mine {
			live.refusals.settle(full, s.room(ctx, live, r.Key))
		}
		return live.full(ctx, r.Key, full)
	case errors.Is(err, jet.ErrStreamFull):
		// unknown when the stream has room again
		quota := admission.Quota{Policy: r.Policy + "/max_bytes",
			Units: int64(live.policy.MaxBytes)}
		if errors.Is(err, jet.ErrMostJobs) {
			quota = admission.Quota{Policy: r.Policy + "/max_jobs", Units: live.policy.QueueJobs()}
		}
		return admission.Outcome{Verdict: admission.Rejected, Refused: admission.ErrQueueFull,
			Quota:      quota,
			RetryAfter: time.Second}, nil
	case errors.Is(err, jet.ErrOtherPayload):
		return admission.Outcome{}, fmt.Errorf("%w: use a new key for a new job",
			admission.ErrOtherPayload)
	case errors.As(err, &ended):
		return admission.Outcome{}, &admission.EndedError{Job: job.ID(ended.Policy, ended.Seq),
			How: string(ended.How), Letter: ended.Letter}
	case errors.Is(err, jet.ErrTooLarge):
		return admission.Outcome{}, UnfitMessage()
	case errors.Is(err, queue.ErrInvalidKey):
		return admission.Outcome{}, InvalidKey(err)
	case errors.Is(err, jet.ErrNoStream), errors.Is(err, jet.ErrUnavailable),
		ctx.Err() != nil:
		return admission.Outcome{}, unavailable("store a job of "+r.Policy, err)
	default:
		return admission.Outcome{}, fmt.Errorf("store a job of %s: %w", r.Policy, err)
	}
}

func (s *Service) partition(live *livePolicy, key queue.Key) partition {
	name := live.policy.Name
	subject := s.names.Jobs(name, key)
	if live.policy.Door() {
		subject = s.names.Admitted(name, key)
	}
	return partition{name, job.Partition(subject, live.policy.Partitions)}
}

// unreachable refuses a job whose deadline its bucket cannot meet, unless it may be a repeat, which
// must get its first answer.
func (s *Service) unreachable(ctx context.Context, live *livePolicy, key queue.Key,
	j jobHeader) (o admission.Outcome, ok bool) {
	if j.deadline.IsZero() || j.idempotency != "" {
		return o, false
	}
	delay, known := s.expected.start(ctx, s.partition(live, key), job.Question{Key: key,
		Priority: j.priority, Cost: j.cost, Costs: j.costs})
	now := time.Now()
	late := now.Add(delay).Sub(j.deadline)
	if !known || late <= 0 {
		return o, false
	}
	return admission.Outcome{Verdict: admission.Rejected, Refused: admission.ErrDeadlineUnreachable,
		Quota:     live.queue,
		Remaining: -1, ResetAfter: live.queue.Window, RetryAfter: max(late, time.Millisecond),
		Unreachable: now.Add(delay)}, true
}

// waitsAs returns the job that already waits under the unique name of another, if any. Of jobs
// submitted at the same time, the valve drops all except the first.
func (s *Service) waitsAs(ctx context.Context, live *livePolicy, key queue.Key,
	j jobHeader) jet.Receipt {
	name, replaces := job.Unique(j.stored)
	if name == "" || replaces {
		return jet.Receipt{}
	}
	a, _ := s.expected.room(ctx, s.partition(live, key), job.Question{Key: key, Unique: name})
	return jet.Receipt{Seq: a.Waits, Duplicate: a.Waits > 0}
}

// room defaults to one interval.
func (s *Service) room(ctx context.Context, live *livePolicy, key queue.Key) time.Duration {
	if a, known := s.expected.room(ctx, s.partition(live, key), job.Question{Key: key}); known {
		return max(0, time.Duration(a.DelayMS)*time.Millisecond)
	}
	return live.interval
}

func (l *livePolicy) full(ctx context.Context, key queue.Key, full *refusal) (
	admission.Outcome, error) {
	select {
	case <-full.settled:
	case <-ctx.Done():
		return admission.Outcome{}, unavailable("wait for the room of a full bucket", ctx.Err())
	}
	now, free := l.refusals.now(), l.refusals.place(key, full)
	return admission.Outcome{
		Verdict:    admission.Rejected,
		Refused:    admission.ErrQueueFull,
		Quota:      l.queue,
		RetryAfter: max(free.Sub(now), time.Millisecond),
		ResetAfter: max(free.Sub(now), l.queue.Window),
	}, nil
}

// Callback jobs, which are signed, cannot be submitted.
func (j jobHeader) callable(p policy.Policy, find func(string) (policy.Policy, error),
	permitted func(*url.URL) error) error {
	if p.Target.Calls() {
		return fmt.Errorf("%w %q: only drainers submit its jobs, which are callbacks of other jobs",
			admission.ErrConflict, p.Name)
	}
	to := job.HeaderValue(j.stored, job.HeaderCallback)
	if to == "" {
		return nil
	}
	if p.Callbacks == "" {
		return invalid(job.HeaderCallback, "the policy has no callbacks")
	}
	through, err := find(p.Callbacks)
	if err != nil || !through.Target.Calls() || !through.Paced() {
		return fmt.Errorf("%w %q: its callbacks policy %q does not exist or cannot post "+
			"callbacks", admission.ErrConflict, p.Name, p.Callbacks)
	}
	u, err := job.ParseCallback(to)
	if err == nil {
		err = permitted(u)
	}
	if err != nil {
		return invalid(job.HeaderCallback, err.Error())
	}
	return nil
}

// Bounds of a batch, in jobs and in bytes.
const (
	MaxBatch      = 10_000
	MaxBatchBytes = 16 << 20
	batchInFlight = 2048 // leaves others room in a producer
)

// SubmitBatch submits jobs, in order per bucket, and calls tell with each outcome, in order, on
// another goroutine than requests. No valve is asked, so no outcome is [admission.Allowed]. An
// error of tell ends the batch; accepted jobs stay accepted.
func (s *Service) SubmitBatch(ctx context.Context, requests iter.Seq2[SubmitRequest, error],
	tell func(admission.Outcome, error) error) error {

	under := make(chan *submission, batchInFlight)
	ended := make(chan struct{})
	var panicked any
	go func() {
		defer close(under)
		defer func() { panicked = recover() }()
		for r, err := range requests {
			x := &submission{r: &r, err: err, end: func(admission.Outcome, error) {}}
			if err == nil {
				x = s.send(ctx, &r)
			}
			under <- x
			select {
			case <-ended:
				return
			default:
			}
		}
	}()
	var failed error
	for x := range under {
		o, err := s.finish(ctx, x, false)
		if failed == nil {
			if failed = tell(o, err); failed != nil {
				close(ended)
			}
		}
	}
	if panicked != nil {
		panic(panicked) // on the transport's goroutine, which recovers
	}
	return failed
}
