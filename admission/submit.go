package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// Submit takes a job, or says when to come back. The job is stored when Submit returns without an error and its verdict
// is not [Rejected]. Errors: [*RequestError], [ErrUnknownPolicy], [ErrConflict] (the policy has no queue),
// [*EndedError] and [ErrOtherPayload] (of a repeat), [ErrTooLarge], [ErrUnavailable] (whether the job was stored may be unknown; with an Idempotency-Key the request can
// be repeated without harm).
func (s *Service) Submit(ctx context.Context, r SubmitRequest) (Outcome, error) {
	rule, err := s.rule(r.Policy)
	if err != nil {
		return Outcome{}, err
	}
	if !rule.policy.HasQueue() {
		return Outcome{}, conflict("policy %q has no queue: it answers checks only", r.Policy)
	}
	if len(r.Body) > MaxBody {
		return Outcome{}, bodyTooLarge()
	}
	job, err := readHeader(r.Header)
	if err != nil {
		return Outcome{}, err
	}
	if err := job.fit(rule.policy, r.Body); err != nil {
		return Outcome{}, err
	}
	if err := job.startable(rule.policy, time.Now()); err != nil {
		return Outcome{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	outcome, err := s.submit(ctx, rule, r, job)
	if err == nil {
		s.metrics.Admitted(r.Policy, string(outcome.Verdict))
	}
	return outcome, err
}

func (s *Service) submit(ctx context.Context, rule *rule, r SubmitRequest, job jobHeader) (Outcome, error) {
	// A repeat of an accepted job must get its first answer even from a full bucket, and only the stream knows repeats.
	if job.idempotency == "" {
		if full := rule.refusals.recall(r.Key); full != nil {
			return rule.full(ctx, full)
		}
	}
	if rule.limit.Limiter == nil {
		return s.publish(ctx, rule, r, job, Outcome{Quota: rule.queue, Remaining: -1})
	}
	return s.admit(ctx, rule, r, job)
}

// admit asks the limiter of a door policy, and stores what it lets in.
func (s *Service) admit(ctx context.Context, rule *rule, r SubmitRequest, job jobHeader) (Outcome, error) {
	if err := rule.limit.affordable(queue.HeaderCost, job.cost); err != nil {
		return Outcome{}, err
	}
	from := Caller{r.Key, cmp.Or(job.ip, r.IP)}
	if err := rule.limit.reachable(from.IP); err != nil {
		return Outcome{}, err
	}
	repeat := repeatKey{r.Key, job.idempotency}
	if job.idempotency != "" {
		if receipt, found := rule.repeats.recall(repeat); found {
			receipt, err := s.publisher.Repeated(ctx, rule.submission(r, job), receipt)
			if err != nil {
				return s.refused(ctx, rule, r, err)
			}
			return s.accepted(ctx, rule, receipt, Outcome{Quota: rule.limit.Quota, Remaining: -1}), nil
		}
	}
	limiter := rule.limit.Limiter
	decision, err := limiter.Take(ctx, from, job.cost)
	if err != nil {
		return Outcome{}, limiterError(queue.HeaderCost, r.Policy, err)
	}
	outcome := Outcome{Quota: decision.Quota, Remaining: decision.Remaining, ResetAfter: decision.ResetAfter}
	if !decision.Allowed {
		outcome.Verdict = Rejected
		outcome.RetryAfter = max(decision.RetryAfter, time.Millisecond)
		return outcome, nil
	}
	receipt, err := s.publisher.Publish(ctx, rule.submission(r, job))
	if err == nil && !receipt.Duplicate {
		if job.idempotency != "" {
			rule.repeats.remember(repeat, receipt)
		}
		return s.accepted(ctx, rule, receipt, outcome), nil
	}
	// A repeat took nothing new, and what the queue refused, or was not sent to it, did not pass. When the result is unknown
	// the units stay taken: the job may have been stored, and the limit is a promise.
	if err == nil || errors.Is(err, queue.ErrNotSent) || errors.Is(err, queue.ErrStorage) || !errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {
		if refundErr := limiter.Refund(ctx, from, job.cost); refundErr != nil {
			return Outcome{}, unavailable("refund the limiter of "+r.Policy, refundErr)
		}
		outcome.Remaining = -1 // nobody counted again
	}
	if err == nil {
		rule.repeats.remember(repeat, receipt)
		return s.accepted(ctx, rule, receipt, outcome), nil
	}
	return s.refused(ctx, rule, r, err)
}

// publish stores a job of a queue policy.
func (s *Service) publish(ctx context.Context, rule *rule, r SubmitRequest, job jobHeader, o Outcome) (Outcome, error) {
	receipt, err := s.publisher.Publish(ctx, rule.submission(r, job))
	if err != nil {
		return s.refused(ctx, rule, r, err)
	}
	return s.accepted(ctx, rule, receipt, o), nil
}

func (r *rule) submission(req SubmitRequest, job jobHeader) queue.Submission {
	return queue.Submission{
		Policy:         req.Policy,
		Key:            req.Key,
		Admitted:       r.policy.Door(),
		Header:         job.stored,
		Body:           req.Body,
		IdempotencyKey: job.idempotency,
	}
}

// accepted completes the outcome of a stored job with when it starts.
func (s *Service) accepted(ctx context.Context, rule *rule, receipt queue.Receipt, o Outcome) Outcome {
	o.Job, o.Duplicate = fmt.Sprintf("%s:%d", rule.policy.Name, receipt.Seq), receipt.Duplicate
	if receipt.Partition >= 0 {
		start := s.expected.ask(ctx, partition{rule.policy.Name, receipt.Partition}, receipt.Seq)
		o.Delay, o.DelayKnown, o.Position = start.delay, start.known, start.position
	}
	o.Verdict = Queued
	if o.DelayKnown && o.Delay == 0 {
		o.Verdict = Allowed
	}
	return o
}

// refused translates what the queue said instead of a receipt.
func (s *Service) refused(ctx context.Context, rule *rule, r SubmitRequest, err error) (Outcome, error) {
	var ended *queue.EndedError
	switch {
	case errors.Is(err, queue.ErrFull):
		full, mine := rule.refusals.remember(r.Key)
		if mine {
			rule.refusals.settle(full, s.room(ctx, rule, r.Key))
		}
		return rule.full(ctx, full)
	case errors.Is(err, queue.ErrStreamFull):
		// Which of its jobs leaves first, and when, nobody knows.
		quota := Quota{Policy: r.Policy + "/max_bytes", Units: int64(rule.policy.MaxBytes)}
		return Outcome{Verdict: Rejected, Quota: quota, RetryAfter: time.Second}, nil
	case errors.Is(err, queue.ErrOtherPayload):
		return Outcome{}, fmt.Errorf("%w: give a job of its own key", ErrOtherPayload)
	case errors.As(err, &ended):
		return Outcome{}, &EndedError{Job: fmt.Sprintf("%s:%d", ended.Policy, ended.Seq), How: string(ended.How), Letter: ended.Letter}
	case errors.Is(err, queue.ErrTooLarge):
		return Outcome{}, fmt.Errorf("%w: the body and its headers do not fit a message", ErrTooLarge)
	case errors.Is(err, queue.ErrInvalidKey):
		return Outcome{}, InvalidKey(err)
	case errors.Is(err, queue.ErrNoStream), errors.Is(err, queue.ErrUnavailable),
		ctx.Err() != nil:
		return Outcome{}, unavailable("store a job of "+r.Policy, err)
	default:
		return Outcome{}, fmt.Errorf("store a job of %s: %w", r.Policy, err)
	}
}

// room asks the bucket's valve when there is room again. Without a valve the answer is one interval: a full bucket
// loses a job per interval once somebody drains it.
func (s *Service) room(ctx context.Context, rule *rule, key queue.Key) time.Duration {
	name := rule.policy.Name
	subject := s.names.Jobs(name, key)
	if rule.policy.Door() {
		subject = s.names.Admitted(name, key)
	}
	p := partition{name, queue.Partition(subject, rule.policy.Partitions)}
	if delay, known := s.expected.room(ctx, p, key); known {
		return delay
	}
	return rule.interval
}

// full is the outcome for a bucket that is, or a moment ago was, full.
func (r *rule) full(ctx context.Context, full *refusal) (Outcome, error) {
	select {
	case <-full.settled:
	case <-ctx.Done():
		return Outcome{}, unavailable("wait for the room of a full bucket", ctx.Err())
	}
	return Outcome{
		Verdict:    Rejected,
		Quota:      r.queue,
		RetryAfter: max(full.free.Sub(r.refusals.now()), time.Millisecond),
		ResetAfter: max(full.free.Sub(r.refusals.now()), r.queue.Window),
	}, nil
}

func bodyTooLarge() error { return fmt.Errorf("%w: a body is at most %d bytes", ErrTooLarge, MaxBody) }
