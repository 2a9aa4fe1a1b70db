package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Submit takes a job, or says when to come back. The job is stored when Submit returns without an
// error and its verdict is not [Rejected]. Errors: [*RequestError], [ErrUnknownPolicy],
// [ErrConflict] (the policy has no queue), [*EndedError] and [ErrOtherPayload] (of a repeat),
// [ErrTooLarge], [ErrUnavailable] (whether the job was stored may be unknown; with an
// Idempotency-Key the request can be repeated without harm).
func (s *Service) Submit(ctx context.Context, r SubmitRequest) (Outcome, error) {
	live, err := s.live(r.Policy)
	if err != nil {
		return Outcome{}, err
	}
	if !live.policy.HasQueue() {
		return Outcome{}, NoQueue(r.Policy)
	}
	if len(r.Body) > MaxBody {
		return Outcome{}, bodyTooLarge()
	}
	job, err := readHeader(r.Header)
	if err != nil {
		return Outcome{}, err
	}
	if err := job.fit(live.policy, r.Body); err != nil {
		return Outcome{}, err
	}
	if err := job.startable(live.policy, time.Now()); err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	outcome, err := s.submit(ctx, live, r, job)
	if err == nil {
		s.metrics.Admitted(r.Policy, string(outcome.Verdict))
	}
	return outcome, err
}

func (s *Service) submit(ctx context.Context, live *livePolicy, r SubmitRequest,
	job jobHeader) (Outcome, error) {
	// A repeat of an accepted job must get its first answer even from a full bucket, and only the
	// stream knows repeats.
	if job.idempotency == "" {
		if full := live.refusals.recall(r.Key); full != nil {
			return live.full(ctx, full)
		}
	}
	if live.limit.Limiter == nil {
		return s.publish(ctx, live, r, job, Outcome{Quota: live.queue, Remaining: -1})
	}
	return s.admit(ctx, live, r, job)
}

// admit asks the limiter of a door policy, and stores what it lets in.
func (s *Service) admit(ctx context.Context, live *livePolicy, r SubmitRequest,
	j jobHeader) (Outcome, error) {
	if err := live.limit.affordable(job.HeaderCost, j.cost); err != nil {
		return Outcome{}, err
	}
	from := Caller{r.Key, cmp.Or(j.ip, r.IP)}
	if err := live.limit.reachable(from.IP); err != nil {
		return Outcome{}, err
	}
	repeat := repeatKey{r.Key, j.idempotency}
	if j.idempotency != "" {
		if receipt, found := live.repeats.recall(repeat); found {
			receipt, err := s.publisher.Repeated(ctx, live.submission(r, j), receipt)
			if err != nil {
				return s.refused(ctx, live, r, err)
			}
			return s.accepted(ctx, live, receipt,
				Outcome{Quota: live.limit.Quota, Remaining: -1}), nil
		}
	}
	limiter := live.limit.Limiter
	decision, err := limiter.Take(ctx, from, j.cost)
	if err != nil {
		return Outcome{}, limiterError(job.HeaderCost, r.Policy, err)
	}
	outcome := Outcome{Quota: decision.Quota, Remaining: decision.Remaining,
		ResetAfter: decision.ResetAfter}
	if !decision.Allowed {
		outcome.Verdict = Rejected
		outcome.RetryAfter = max(decision.RetryAfter, time.Millisecond)
		return outcome, nil
	}
	receipt, err := s.publisher.Publish(ctx, live.submission(r, j))
	if err == nil && !receipt.Duplicate {
		if j.idempotency != "" {
			live.repeats.remember(repeat, receipt)
		}
		return s.accepted(ctx, live, receipt, outcome), nil
	}
	// A repeat took nothing new, and what the queue refused, or was not sent to it, did not pass.
	// When the result is unknown the units stay taken: the job may have been stored, and the limit
	// is a promise.
	if err == nil || errors.Is(err, queue.ErrNotSent) || errors.Is(err, queue.ErrStorage) ||
		!errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {
		if refundErr := limiter.Refund(ctx, from, j.cost); refundErr != nil {
			return Outcome{}, unavailable("refund the limiter of "+r.Policy, refundErr)
		}
		outcome.Remaining = -1 // it was not counted again
	}
	if err == nil {
		live.repeats.remember(repeat, receipt)
		return s.accepted(ctx, live, receipt, outcome), nil
	}
	return s.refused(ctx, live, r, err)
}

// publish stores a job of a queue policy.
func (s *Service) publish(ctx context.Context, live *livePolicy, r SubmitRequest, job jobHeader,
	o Outcome) (Outcome, error) {
	receipt, err := s.publisher.Publish(ctx, live.submission(r, job))
	if err != nil {
		return s.refused(ctx, live, r, err)
	}
	return s.accepted(ctx, live, receipt, o), nil
}

func (l *livePolicy) submission(req SubmitRequest, job jobHeader) queue.Submission {
	return queue.Submission{
		Policy:         req.Policy,
		Key:            req.Key,
		Admitted:       l.policy.Door(),
		Header:         job.stored,
		Body:           req.Body,
		IdempotencyKey: job.idempotency,
	}
}

// accepted completes the outcome of a stored job with when it starts.
func (s *Service) accepted(ctx context.Context, live *livePolicy, receipt queue.Receipt,
	o Outcome) Outcome {
	o.Job, o.Duplicate = job.ID(live.policy.Name, receipt.Seq), receipt.Duplicate
	if receipt.Partition >= 0 {
		start := s.expected.ask(ctx, partition{live.policy.Name, receipt.Partition}, receipt.Seq)
		o.Delay, o.DelayKnown = start.delay, start.known
		o.Position, o.Depth = start.position, start.depth
	}
	o.Verdict = Queued
	if o.DelayKnown && o.Delay == 0 {
		o.Verdict = Allowed
	}
	return o
}

// refused translates the error that the queue returned instead of a receipt.
func (s *Service) refused(ctx context.Context, live *livePolicy, r SubmitRequest,
	err error) (Outcome, error) {
	var ended *queue.EndedError
	switch {
	case errors.Is(err, queue.ErrFull):
		full, mine := live.refusals.remember(r.Key)
		if mine {
			live.refusals.settle(full, s.room(ctx, live, r.Key))
		}
		return live.full(ctx, full)
	case errors.Is(err, queue.ErrStreamFull):
		// Nobody knows which of its jobs leaves first, and when.
		quota := Quota{Policy: r.Policy + "/max_bytes", Units: int64(live.policy.MaxBytes)}
		return Outcome{Verdict: Rejected, Quota: quota, RetryAfter: time.Second}, nil
	case errors.Is(err, queue.ErrOtherPayload):
		return Outcome{}, fmt.Errorf("%w: give a job of its own key", ErrOtherPayload)
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

// room returns when the bucket has room again, as its valve expects. Without a valve that is one
// interval: a full bucket loses a job per interval once it is drained.
func (s *Service) room(ctx context.Context, live *livePolicy, key job.Key) time.Duration {
	name := live.policy.Name
	subject := s.names.Jobs(name, key)
	if live.policy.Door() {
		subject = s.names.Admitted(name, key)
	}
	p := partition{name, job.Partition(subject, live.policy.Partitions)}
	if delay, known := s.expected.room(ctx, p, key); known {
		return delay
	}
	return live.interval
}

// full returns the outcome for a bucket that is full, or was a moment ago.
func (l *livePolicy) full(ctx context.Context, full *refusal) (Outcome, error) {
	select {
	case <-full.settled:
	case <-ctx.Done():
		return Outcome{}, unavailable("wait for the room of a full bucket", ctx.Err())
	}
	return Outcome{
		Verdict:    Rejected,
		Quota:      l.queue,
		RetryAfter: max(full.free.Sub(l.refusals.now()), time.Millisecond),
		ResetAfter: max(full.free.Sub(l.refusals.now()), l.queue.Window),
	}, nil
}

func bodyTooLarge() error {
	return fmt.Errorf("%w: a body is at most %d bytes", ErrTooLarge, MaxBody)
}
