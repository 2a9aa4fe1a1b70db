package admit

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Check takes units of a door policy or a meter; a refused check takes no units. Errors:
// [*admission.RequestError] (also for a cost that can never pass), [admission.ErrUnknownPolicy],
// [admission.ErrConflict] (the policy has a queue), [admission.ErrUnavailable].
func (s *Service) Check(ctx context.Context, r CheckRequest) (admission.Checked, error) {
	checked, err := s.check(ctx, r, admission.Limiter.Take)
	if err == nil {
		s.sink.Take(queue.Event{Type: jet.EventChecked, Policy: r.Policy, Key: r.Key,
			Value: jet.Whether(checked.Allowed)})
		s.shadowed(r.Policy, checked.Shadow)
	}
	return checked, err
}

// Peek returns the decision of Check without taking units.
func (s *Service) Peek(ctx context.Context, r CheckRequest) (admission.Checked, error) {
	return s.check(ctx, r, admission.Limiter.Peek)
}

func (s *Service) check(ctx context.Context, r CheckRequest,
	ask func(admission.Limiter, context.Context, admission.Caller, int64) (
		admission.Checked, error)) (admission.Checked, error) {

	limit, err := s.limitOf(r)
	if err != nil {
		return admission.Checked{}, err
	}
	checked, err := ask(limit.Limiter, ctx, admission.Caller{Key: r.Key, IP: r.IP}, r.Cost)
	if err != nil {
		return admission.Checked{}, limiterError("cost", r.Policy, err)
	}
	return checked, nil
}

// Refund returns unused units, at most up to the key's quota.
func (s *Service) Refund(ctx context.Context, r CheckRequest) error {
	// no upper bound: the limit may have been lowered since the check
	limit, err := s.limitOf(CheckRequest{r.Policy, r.Key, min(r.Cost, 1), r.IP})
	if err != nil {
		return err
	}
	if err := limit.Limiter.Refund(ctx, admission.Caller{Key: r.Key, IP: r.IP},
		r.Cost); err != nil {
		return limiterError("cost", r.Policy, err)
	}
	return nil
}

func (s *Service) limitOf(r CheckRequest) (admission.Limit, error) {
	live, err := s.live(r.Policy)
	if err != nil {
		return admission.Limit{}, err
	}
	if live.limit.Limiter == nil {
		return admission.Limit{},
			conflict("policy %q has a queue: submit jobs instead of checking", r.Policy)
	}
	if err := affordable(live.limit, "cost", r.Cost); err != nil {
		return admission.Limit{}, err
	}
	return live.limit, reachable(live.limit, r.IP)
}

func reachable(l admission.Limit, ip string) error {
	if l.ByIP && ip == "" {
		return invalid(IPHeader,
			"is required: the policy counts by client address")
	}
	return nil
}

func affordable(l admission.Limit, field string, cost int64) error {
	switch {
	case cost < 1:
		return invalid(field, "must be a whole number of at least 1")
	case cost > l.Quota.Units && !l.Shadow:
		return invalid(field,
			fmt.Sprintf("exceeds the policy's limit of %d, so it can never pass", l.Quota.Units))
	}
	return nil
}

func limiterError(field, policy string, err error) error {
	if tooMuch, ok := errors.AsType[*algorithms.CostError](err); ok {
		return invalid(field,
			fmt.Sprintf("exceeds the policy's limit of %d, so it can never pass", tooMuch.Most))
	}
	return unavailable("ask the limiter of "+policy, err)
}

// NewLimit makes the limiter of a meter or a door policy. It keeps the states of the previous one,
// which may be nil, if the algorithm is the same.
type NewLimit func(p policy.Policy, previous admission.Limiter) (admission.Limit, error)
