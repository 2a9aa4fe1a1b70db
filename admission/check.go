package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/algorithms"
)

// Check takes units from a policy's limiter: it is for policies that decide at the door, and for meters. A check that
// is not allowed takes nothing. Errors: [*RequestError] (also for a cost that can never pass), [ErrUnknownPolicy],
// [ErrConflict] (jobs of the policy are paced by its queue), [ErrUnavailable].
func (s *Service) Check(ctx context.Context, r CheckRequest) (Checked, error) {
	checked, err := s.check(ctx, r, Limiter.Take)
	if err == nil {
		s.metrics.Checked(r.Policy, checked.Allowed)
	}
	return checked, err
}

// Peek is what [Service.Check] would answer; it takes nothing. Its errors are the same.
func (s *Service) Peek(ctx context.Context, r CheckRequest) (Checked, error) {
	return s.check(ctx, r, Limiter.Peek)
}

func (s *Service) check(ctx context.Context, r CheckRequest,
	ask func(Limiter, context.Context, string, int64) (algorithms.Decision, error)) (Checked, error) {

	rule, err := s.rule(r.Policy)
	if err != nil {
		return Checked{}, err
	}
	if rule.limit.Limiter == nil {
		return Checked{}, conflict("jobs of %q are paced by its queue: submit them instead of checking", r.Policy)
	}
	if err := rule.limit.affordable("cost", r.Cost); err != nil {
		return Checked{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	decision, err := ask(rule.limit.Limiter, ctx, string(r.Key), r.Cost)
	if err != nil {
		return Checked{}, limiterError("cost", r.Policy, err)
	}
	return Checked{decision, rule.limit.Quota}, nil
}

// affordable says what is wrong with a cost. What can never pass is a mistake and not a refusal.
func (l Limit) affordable(field string, cost int64) error {
	switch {
	case cost < 1:
		return &RequestError{field, "must be a whole number of at least 1"}
	case cost > l.Quota.Units:
		return &RequestError{field, fmt.Sprintf("can never pass: the policy's limit is %d", l.Quota.Units)}
	}
	return nil
}

// limiterError translates a limiter's error. A cost that passed [Limit.affordable] can still be too large for it: when
// a change lowered the limit in between.
func limiterError(field, policy string, err error) error {
	if tooMuch, ok := errors.AsType[*algorithms.CostError](err); ok {
		return &RequestError{field, fmt.Sprintf("can never pass: the policy's limit is %d", tooMuch.Most)}
	}
	return unavailable("ask the limiter of "+policy, err)
}
