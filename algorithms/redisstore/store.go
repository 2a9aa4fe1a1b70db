package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/penstock-mq/penstock/algorithms"
)

// Store decides for a policy's keys. It is safe for concurrent use.
type Store[S any] struct {
	client   *Client
	lane     lane
	mirror   atomic.Pointer[mirror[S]]
	refusals refusals[S]
}

// New returns the store of a policy, and panics if the rule is invalid. Stores with the same policy
// and prefix share states, and should have equal rules.
func New[S any](c *Client, policy string, rule algorithms.Rule[S]) *Store[S] {
	return newStore(c, policy, "", rule)
}

func newStore[S any](c *Client, policy, suffix string, rule algorithms.Rule[S]) *Store[S] {
	s := &Store[S]{client: c}
	s.lane = lane{stem: c.stem(policy), suffix: suffix, buckets: make(map[string]*bucket)}
	s.lane.terms = func() terms { return s.mirror.Load() }
	s.refusals.init()
	if err := s.SetRule(rule); err != nil {
		panic(err)
	}
	return s
}

// SetRule changes the parameters for later calls. An invalid rule is an error and has no effect.
func (s *Store[S]) SetRule(rule algorithms.Rule[S]) error {
	if err := rule.Validate(); err != nil {
		return fmt.Errorf("rule %+v: %w", rule, err)
	}
	m, err := newMirror(s, rule)
	if err != nil {
		return err
	}
	s.mirror.Store(m)
	return nil
}

// Rule returns the rule in force.
func (s *Store[S]) Rule() algorithms.Rule[S] { return s.mirror.Load().rule }

// Take takes all n units of key, or no units. Errors: [*algorithms.CostError] if n can never pass,
// the context's error, [ErrTimeout], [ErrOverloaded], or Redis's.
func (s *Store[S]) Take(ctx context.Context, key string, n int64) (algorithms.Decision, error) {
	m := s.mirror.Load()
	if err := algorithms.CheckCost(n, m.most()); err != nil {
		return algorithms.Decision{}, err
	}
	if d, ok := s.recall(m, key, n); ok {
		return d, nil
	}
	d, _, err := s.client.ask(ctx, &s.lane, key, take, n)
	return d, err
}

// TakeUpTo takes as many of n units as pass, with the errors of Take; n may be larger than the
// largest cost.
func (s *Store[S]) TakeUpTo(ctx context.Context, key string, n int64) (algorithms.Decision, error) {
	m := s.mirror.Load()
	if n < 1 {
		return algorithms.Decision{}, algorithms.CheckCost(n, m.most())
	}
	if d, ok := s.recall(m, key, 1); ok { // if one unit is refused, all are
		return d, nil
	}
	d, _, err := s.client.ask(ctx, &s.lane, key, takeUpTo, n)
	return d, err
}

// Peek decides on n units of a key without taking them.
func (s *Store[S]) Peek(ctx context.Context, key string, n int64) (algorithms.Decision, error) {
	if err := algorithms.CheckCost(n, s.mirror.Load().most()); err != nil {
		return algorithms.Decision{}, err
	}
	d, _, err := s.client.ask(ctx, &s.lane, key, peek, n)
	return d, err
}

// Refund returns n units to a key.
func (s *Store[S]) Refund(ctx context.Context, key string, n int64) error {
	if n < 1 {
		return algorithms.CheckCost(n, s.mirror.Load().most())
	}
	_, _, err := s.client.ask(ctx, &s.lane, key, refund, n)
	return err
}
