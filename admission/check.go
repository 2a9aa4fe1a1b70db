package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

// Check takes units of a door policy or a meter; a refused check takes no units. Errors:
// [*RequestError] (also for a cost that can never pass), [ErrUnknownPolicy], [ErrConflict] (the
// policy has a queue), [ErrUnavailable].
func (s *Service) Check(ctx context.Context, r CheckRequest) (Checked, error) {
	checked, err := s.check(ctx, r, Limiter.Take)
	if err == nil {
		s.sink.Take(queue.Event{Type: queue.EventChecked, Policy: r.Policy, Key: r.Key,
			Value: queue.Whether(checked.Allowed)})
		s.shadowed(r.Policy, checked.Shadow)
	}
	return checked, err
}

// Peek returns the decision of Check without taking units.
func (s *Service) Peek(ctx context.Context, r CheckRequest) (Checked, error) {
	return s.check(ctx, r, Limiter.Peek)
}

func (s *Service) check(ctx context.Context, r CheckRequest,
	ask func(Limiter, context.Context, Caller, int64) (Checked, error)) (Checked, error) {

	limit, err := s.limitOf(r)
	if err != nil {
		return Checked{}, err
	}
	checked, err := ask(limit.Limiter, ctx, Caller{r.Key, r.IP}, r.Cost)
	if err != nil {
		return Checked{}, limiterError("cost", r.Policy, err)
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
	if err := limit.Limiter.Refund(ctx, Caller{r.Key, r.IP}, r.Cost); err != nil {
		return limiterError("cost", r.Policy, err)
	}
	return nil
}

func (s *Service) limitOf(r CheckRequest) (Limit, error) {
	live, err := s.live(r.Policy)
	if err != nil {
		return Limit{}, err
	}
	if live.limit.Limiter == nil {
		return Limit{},
			conflict("policy %q has a queue: submit jobs instead of checking", r.Policy)
	}
	if err := live.limit.affordable("cost", r.Cost); err != nil {
		return Limit{}, err
	}
	return live.limit, live.limit.reachable(r.IP)
}

func (l Limit) reachable(ip string) error {
	if l.ByIP && ip == "" {
		return &RequestError{IPHeader,
			"is required: the policy counts by client address"}
	}
	return nil
}

func (l Limit) affordable(field string, cost int64) error {
	switch {
	case cost < 1:
		return &RequestError{field, "must be a whole number of at least 1"}
	case cost > l.Quota.Units && !l.Shadow:
		return &RequestError{field,
			fmt.Sprintf("exceeds the policy's limit of %d, so it can never pass", l.Quota.Units)}
	}
	return nil
}

func limiterError(field, policy string, err error) error {
	if tooMuch, ok := errors.AsType[*algorithms.CostError](err); ok {
		return &RequestError{field,
			fmt.Sprintf("exceeds the policy's limit of %d, so it can never pass", tooMuch.Most)}
	}
	return unavailable("ask the limiter of "+policy, err)
}

// Caller is whose requests are counted.
type Caller struct {
	Key job.Key
	IP  string // see [ClientIP]; may be empty
}

// Limiter decides for the callers of one policy. It is safe for concurrent use, and bounds its
// store's time. An error means that the store cannot be reached.
type Limiter interface {
	Take(ctx context.Context, from Caller, n int64) (Checked, error)
	Peek(ctx context.Context, from Caller, n int64) (Checked, error)
	Refund(ctx context.Context, from Caller, n int64) error
}

// Limit is the limiter of a policy, with what it tells callers.
type Limit struct {
	Limiter Limiter
	Quota   Quota  // of a key; of several limits, the smallest
	ByIP    bool   // callers must have an IP
	Shadow  bool   // refuses nothing
	Commit  func() // applies changed numbers to a reused limiter; may be nil
}

// NewLimit makes the limiter of a meter or a door policy. It keeps the states of the previous one,
// which may be nil, if the algorithm is the same.
type NewLimit func(p policy.Policy, previous Limiter) (Limit, error)
