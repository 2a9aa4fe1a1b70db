package algorithmstest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/algorithmstest"
)

type mapStore[S any] struct {
	rule   algorithms.Rule[S]
	now    func() time.Time
	mu     sync.Mutex
	states map[string]S
}

func (m *mapStore[S]) Take(_ context.Context, key string,
	n int64) (d algorithms.Decision, err error) {
	if err := algorithms.CheckCost(n, m.rule.Most()); err != nil {
		return d, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[key], d = m.rule.Take(m.states[key], m.now(), n)
	return d, nil
}

func (m *mapStore[S]) TakeUpTo(_ context.Context, key string,
	n int64) (d algorithms.Decision, err error) {
	if n < 1 {
		return d, algorithms.CheckCost(n, m.rule.Most())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[key], d = m.rule.TakeUpTo(m.states[key], m.now(), n)
	return d, nil
}

func (m *mapStore[S]) Peek(_ context.Context, key string,
	n int64) (d algorithms.Decision, err error) {
	if err := algorithms.CheckCost(n, m.rule.Most()); err != nil {
		return d, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rule.Peek(m.states[key], m.now(), n), nil
}

func (m *mapStore[S]) Refund(_ context.Context, key string, n int64) error {
	if n < 1 {
		return algorithms.CheckCost(n, m.rule.Most())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[key] = m.rule.Refund(m.states[key], m.now(), n)
	return nil
}

func TestRun(t *testing.T) {
	second := algorithms.Rate{Count: 5, Per: time.Second}
	t.Run("token bucket", func(t *testing.T) {
		run(t, algorithms.TokenBucket{Capacity: 10, Refill: second})
	})
	t.Run("sliding log", func(t *testing.T) {
		run(t, algorithms.SlidingLog{Limit: 10, Window: time.Minute})
	})
}

func run[S any](t *testing.T, rule algorithms.Rule[S]) {
	algorithmstest.Run(t, rule, func(_ *testing.T, now func() time.Time) algorithmstest.Limiter {
		return &mapStore[S]{rule: rule, now: now, states: make(map[string]S)}
	})
}
