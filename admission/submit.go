package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Submit stores a job, or returns when to retry ([Rejected]). Errors: [*RequestError],
// [ErrUnknownPolicy], [ErrConflict] (no queue), [*EndedError] and [ErrOtherPayload] (of a repeat),
// [ErrTooLarge], [ErrUnavailable] (the job may be stored).
func (s *Service) Submit(ctx context.Context, r SubmitRequest) (Outcome, error) {
	wait, err := r.waits()
	if err != nil {
		return Outcome{}, err
	}
	r.single = true
	if wait > 0 {
		return s.await(ctx, r, wait)
	}
	return s.send(ctx, &r, s.foretold)()
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

type sent func() (Outcome, error)

func decided(o Outcome, err error) sent { return func() (Outcome, error) { return o, err } }

type accepting func(ctx context.Context, live *livePolicy, r queue.Receipt, o Outcome) Outcome

func (s *Service) send(ctx context.Context, r *SubmitRequest, complete accepting) sent {
	live, job, err := s.read(r)
	if err == nil && job.waits && !r.single {
		err = &RequestError{WaitHeader, "applies only to a single job, not to a batch"}
	}
	if err != nil {
		return decided(Outcome{}, err)
	}
	job.awaited(r.waiter)
	end := func(Outcome, error) {}
	if s.begin != nil {
		job.stored, end = s.begin(r.Policy, maps.Clone(job.stored))
	}
	wait := s.submit(ctx, live, r, job, complete)
	return func() (Outcome, error) {
		outcome, err := wait()
		end(outcome, err)
		if err == nil {
			s.sink.Take(queue.Event{Type: queue.EventAdmitted, Policy: r.Policy, Key: r.Key,
				Name: string(outcome.Verdict)})
		}
		return outcome, err
	}
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
	if len(r.Body) > MaxBody {
		return job, fmt.Errorf("%w: a body is at most %d bytes", ErrTooLarge, MaxBody)
	}
	if job, err = readHeader(r.Header); err != nil {
		return job, err
	}
	return job, job.fit(p, r)
}

func (s *Service) submit(ctx context.Context, live *livePolicy, r *SubmitRequest, job jobHeader,
	complete accepting) sent {
	if first, waits := s.waitsAs(ctx, live, r.Key, job); waits {
		return decided(complete(ctx, live, first, Outcome{Quota: live.queue, Remaining: -1}), nil)
	}
	// Repeats must get the first answer even from a full bucket.
	if job.idempotency == "" {
		if full := live.refusals.recall(r.Key); full != nil {
			return func() (Outcome, error) { return live.full(ctx, r.Key, full) }
		}
	}
	if late, ok := s.unreachable(ctx, live, r.Key, job); ok {
		return decided(late, nil)
	}
	if live.limit.Limiter == nil {
		return s.publish(ctx, live, r, job, complete)
	}
	return s.admit(ctx, live, r, job, complete)
}

func (s *Service) admit(ctx context.Context, live *livePolicy, r *SubmitRequest, j jobHeader,
	complete accepting) sent {
	if err := live.limit.affordable(job.HeaderCost, j.cost); err != nil {
		return decided(Outcome{}, err)
	}
	from := Caller{r.Key, cmp.Or(j.ip, r.IP)}
	if err := live.limit.reachable(from.IP); err != nil {
		return decided(Outcome{}, err)
	}
	repeat := repeatKey{r.Key, j.idempotency}
	if j.idempotency != "" {
		if receipt, found := live.repeats.recall(repeat); found {
			receipt, err := s.publisher.Repeated(ctx, live.submission(r, j), receipt)
			if err != nil {
				return decided(s.refused(ctx, live, r, err))
			}
			return decided(complete(ctx, live, receipt,
				Outcome{Quota: live.limit.Quota, Remaining: -1}), nil)
		}
	}
	limiter := live.limit.Limiter
	decision, err := limiter.Take(ctx, from, j.cost)
	if err != nil {
		return decided(Outcome{}, limiterError(job.HeaderCost, r.Policy, err))
	}
	s.shadowed(r.Policy, decision.Shadow)
	outcome := Outcome{Quota: decision.Quota, Remaining: decision.Remaining,
		ResetAfter: decision.ResetAfter}
	if !decision.Allowed {
		outcome.Verdict, outcome.Refused = Rejected, ErrRateLimited
		outcome.RetryAfter = max(decision.RetryAfter, time.Millisecond)
		return decided(outcome, nil)
	}
	wait := s.publisher.Send(ctx, live.submission(r, j))
	return func() (Outcome, error) {
		receipt, err := wait(ctx)
		if err == nil && !receipt.Duplicate {
			if j.idempotency != "" {
				live.repeats.remember(repeat, receipt)
			}
			return complete(ctx, live, receipt, outcome), nil
		}
		// An unknown result keeps the units: the job may be stored.
		if err == nil || errors.Is(err, queue.ErrNotSent) || errors.Is(err, queue.ErrStorage) ||
			!errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {
			if refundErr := limiter.Refund(ctx, from, j.cost); refundErr != nil {
				return Outcome{}, unavailable("refund the limiter of "+r.Policy, refundErr)
			}
			outcome.Remaining = -1
		}
		if err == nil {
			live.repeats.remember(repeat, receipt)
			return complete(ctx, live, receipt, outcome), nil
		}
		return s.refused(ctx, live, r, err)
	}
}

func (s *Service) publish(ctx context.Context, live *livePolicy, r *SubmitRequest, job jobHeader,
	complete accepting) sent {
	wait := s.publisher.Send(ctx, live.submission(r, job))
	return func() (Outcome, error) {
		receipt, err := wait(ctx)
		if err != nil {
			return s.refused(ctx, live, r, err)
		}
		return complete(ctx, live, receipt, Outcome{Quota: live.queue, Remaining: -1}), nil
	}
}

func (l *livePolicy) submission(req *SubmitRequest, job jobHeader) queue.Submission {
	return queue.Submission{
		Policy:         req.Policy,
		Key:            req.Key,
		Admitted:       l.policy.Door(),
		Header:         job.stored,
		Body:           req.Body,
		IdempotencyKey: job.idempotency,
	}
}

func (s *Service) stored(_ context.Context, live *livePolicy, receipt queue.Receipt,
	o Outcome) Outcome {
	o.Job, o.Duplicate = job.ID(live.policy.Name, receipt.Seq), receipt.Duplicate
	o.Verdict = Queued
	return o
}

func (s *Service) foretold(ctx context.Context, live *livePolicy, receipt queue.Receipt,
	o Outcome) Outcome {
	o = s.stored(ctx, live, receipt, o)
	if receipt.Partition >= 0 {
		start := s.expected.ask(ctx, partition{live.policy.Name, receipt.Partition}, receipt.Seq)
		o.Delay, o.DelayKnown = start.delay, start.known
		o.Position, o.Depth, o.Progress = start.position, start.depth, start.progress
	}
	if o.DelayKnown && o.Delay == 0 {
		o.Verdict = Allowed
	}
	return o
}

func (s *Service) refused(ctx context.Context, live *livePolicy, r *SubmitRequest,
	err error) (Outcome, error) {
	var ended *queue.EndedError
	switch {
	case errors.Is(err, queue.ErrFull):
		full, mine := live.refusals.remember(r.Key)
		if mine {
			live.refusals.settle(full, s.room(ctx, live, r.Key))
		}
		return live.full(ctx, r.Key, full)
	case errors.Is(err, queue.ErrStreamFull):
		// unknown when the stream has room again
		quota := Quota{Policy: r.Policy + "/max_bytes", Units: int64(live.policy.MaxBytes)}
		if errors.Is(err, queue.ErrMostJobs) {
			quota = Quota{Policy: r.Policy + "/max_jobs", Units: live.policy.QueueJobs()}
		}
		return Outcome{Verdict: Rejected, Refused: ErrQueueFull, Quota: quota,
			RetryAfter: time.Second}, nil
	case errors.Is(err, queue.ErrOtherPayload):
		return Outcome{}, fmt.Errorf("%w: use a new key for a new job", ErrOtherPayload)
	case errors.As(err, &ended):
		return Outcome{}, &EndedError{Job: job.ID(ended.Policy, ended.Seq),
			How: string(ended.How), Letter: ended.Letter}
	case errors.Is(err, queue.ErrTooLarge):
		return Outcome{}, UnfitMessage()
	case errors.Is(err, job.ErrInvalidKey):
		return Outcome{}, InvalidKey(err)
	case errors.Is(err, queue.ErrNoStream), errors.Is(err, queue.ErrUnavailable),
		ctx.Err() != nil:
		return Outcome{}, unavailable("store a job of "+r.Policy, err)
	default:
		return Outcome{}, fmt.Errorf("store a job of %s: %w", r.Policy, err)
	}
}

func (s *Service) partition(live *livePolicy, key job.Key) partition {
	name := live.policy.Name
	subject := s.names.Jobs(name, key)
	if live.policy.Door() {
		subject = s.names.Admitted(name, key)
	}
	return partition{name, job.Partition(subject, live.policy.Partitions)}
}

// unreachable refuses a job whose deadline its bucket cannot meet, unless it may be a repeat, which
// must get its first answer.
func (s *Service) unreachable(ctx context.Context, live *livePolicy, key job.Key,
	j jobHeader) (o Outcome, ok bool) {
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
	return Outcome{Verdict: Rejected, Refused: ErrDeadlineUnreachable, Quota: live.queue,
		Remaining: -1, ResetAfter: live.queue.Window, RetryAfter: max(late, time.Millisecond),
		Unreachable: now.Add(delay)}, true
}

// waitsAs returns the job that already waits under the unique name of another. Of jobs submitted at
// the same time, the valve drops all except the first.
func (s *Service) waitsAs(ctx context.Context, live *livePolicy, key job.Key,
	j jobHeader) (first queue.Receipt, waits bool) {
	name, replaces := job.Unique(j.stored)
	if name == "" || replaces {
		return first, false
	}
	p := s.partition(live, key)
	a, _ := s.expected.room(ctx, p, job.Question{Key: key, Unique: name})
	return queue.Receipt{Seq: a.Waits, Partition: p.number, Duplicate: true}, a.Waits > 0
}

// room defaults to one interval.
func (s *Service) room(ctx context.Context, live *livePolicy, key job.Key) time.Duration {
	if a, known := s.expected.room(ctx, s.partition(live, key), job.Question{Key: key}); known {
		return max(0, time.Duration(a.DelayMS)*time.Millisecond)
	}
	return live.interval
}

func (l *livePolicy) full(ctx context.Context, key job.Key, full *refusal) (Outcome, error) {
	select {
	case <-full.settled:
	case <-ctx.Done():
		return Outcome{}, unavailable("wait for the room of a full bucket", ctx.Err())
	}
	now, free := l.refusals.now(), l.refusals.place(key, full)
	return Outcome{
		Verdict:    Rejected,
		Refused:    ErrQueueFull,
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
			ErrConflict, p.Name)
	}
	to := job.HeaderValue(j.stored, job.HeaderCallback)
	if to == "" {
		return nil
	}
	if p.Callbacks == "" {
		return &RequestError{job.HeaderCallback, "the policy has no callbacks"}
	}
	through, err := find(p.Callbacks)
	if err != nil || !through.Target.Calls() || !through.Paced() {
		return fmt.Errorf("%w %q: its callbacks policy %q does not exist or cannot post "+
			"callbacks", ErrConflict, p.Name, p.Callbacks)
	}
	u, err := job.ParseCallback(to)
	if err == nil {
		err = permitted(u)
	}
	if err != nil {
		return &RequestError{job.HeaderCallback, err.Error()}
	}
	return nil
}
