package limiter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

const (
	// tripAfter is how many decisions in a row must fail before the store is no longer asked.
	tripAfter = 5
	// probeEvery is how often one decision tries a store that is not asked.
	probeEvery = time.Second
)

// breaker knows whether the store answers, from all policies' decisions.
type breaker struct {
	circuit *gobreaker.CircuitBreaker[admission.Checked]
	timeout time.Duration
}

func newBreaker(o Options) *breaker {
	var last lastError
	return &breaker{timeout: o.Timeout, circuit: gobreaker.NewCircuitBreaker[admission.Checked](gobreaker.Settings{
		Timeout:     probeEvery,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsSuccessful: func(err error) bool {
			last.keep(err)
			return err == nil
		},
		IsExcluded: notOfTheStore,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case from == gobreaker.StateClosed:
				o.Metrics.StoreUp(false)
				o.Logger.Warn("the store of limits does not answer: policies go on by their on_store_error",
					slog.Any("error", last.error()))
			case to == gobreaker.StateClosed:
				o.Metrics.StoreUp(true)
				o.Logger.Info("the store of limits answers again")
			}
		},
	})}
}

// lastError is the error that is told when the store is given up.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) keep(err error) {
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = err
	}
}

func (l *lastError) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// notOfTheStore reports whether an error says nothing about the store: the request cannot be, or its client went away.
func notOfTheStore(err error) bool {
	_, cost := errors.AsType[*algorithms.CostError](err)
	return cost || errors.Is(err, context.Canceled)
}

// ask puts a question to the store, within its time, unless it is known not to answer.
func (b *breaker) ask(ctx context.Context, question func(context.Context) (admission.Checked, error)) (
	admission.Checked, error) {

	return b.circuit.Execute(func() (admission.Checked, error) {
		ctx, cancel := context.WithTimeout(ctx, b.timeout)
		defer cancel()
		return question(ctx)
	})
}

// guarded is a limiter over a shared store, with what its policy does without the store.
type guarded struct {
	factory *Factory
	policy  policy.Policy
	shared  *limits
	quota   admission.Quota
	local   *share // nil unless on_store_error is local
}

// Take implements [admission.Limiter].
func (g *guarded) Take(ctx context.Context, from admission.Caller, n int64) (admission.Checked, error) {
	checked, err := g.factory.breaker.ask(ctx, func(ctx context.Context) (admission.Checked, error) {
		return g.shared.Take(ctx, from, n)
	})
	if err == nil || notOfTheStore(err) {
		return checked, err
	}
	return g.without(ctx, (*limits).Take, from, n, err)
}

// Peek implements [admission.Limiter].
func (g *guarded) Peek(ctx context.Context, from admission.Caller, n int64) (admission.Checked, error) {
	checked, err := g.factory.breaker.ask(ctx, func(ctx context.Context) (admission.Checked, error) {
		return g.shared.Peek(ctx, from, n)
	})
	if err == nil || notOfTheStore(err) {
		return checked, err
	}
	return g.without(ctx, (*limits).Peek, from, n, err)
}

// Refund implements [admission.Limiter]. Without the store there is nothing to give back to, unless it was taken locally.
func (g *guarded) Refund(ctx context.Context, from admission.Caller, n int64) error {
	_, err := g.factory.breaker.ask(ctx, func(ctx context.Context) (admission.Checked, error) {
		return admission.Checked{}, g.shared.Refund(ctx, from, n)
	})
	switch {
	case err == nil || notOfTheStore(err):
		return err
	case g.policy.OnStoreError == policy.Open:
		return nil
	case g.local != nil:
		return g.local.of(g).Refund(ctx, from, n)
	}
	return err
}

// without decides without the store; cause says why it could not be asked.
func (g *guarded) without(ctx context.Context,
	ask func(*limits, context.Context, admission.Caller, int64) (admission.Checked, error),
	from admission.Caller, n int64, cause error) (admission.Checked, error) {

	g.factory.options.Metrics.FellBack(g.policy.Name, string(g.policy.OnStoreError))
	switch {
	case g.policy.OnStoreError == policy.Open:
		return admission.Checked{Quota: g.quota, Decision: algorithms.Decision{ // as a new key would be answered
			Allowed: true, Granted: n, Limit: g.quota.Units, Remaining: g.quota.Units - n,
		}}, nil
	case g.local != nil:
		checked, err := ask(g.local.of(g), ctx, from, n)
		if tooMuch, ok := errors.AsType[*algorithms.CostError](err); ok && n > tooMuch.Most {
			// It could pass under the whole limit, but never under a share of it.
			return admission.Checked{Quota: g.quota, Decision: algorithms.Decision{
				Limit: tooMuch.Most, RetryAfter: probeEvery, ResetAfter: probeEvery,
			}}, nil
		}
		return checked, err
	}
	return admission.Checked{}, cause
}

// share is the limiter in memory of one of several admitters that decide each by itself. It begins as if all keys were new,
// and knows nothing of what the store had counted.
type share struct {
	mu      sync.Mutex
	limits  *limits
	madeFor shareOf
}

// shareOf is what a share was made for.
type shareOf struct {
	guarded *guarded
	live    int64
}

// of returns the limiter of a policy's share among the admitters that are alive now. What keys have used stays used when
// either changes.
func (s *share) of(g *guarded) *limits {
	now := shareOf{g, g.factory.live.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.madeFor == now {
		return s.limits
	}
	p := g.policy
	p.Limits = nil
	for _, r := range g.policy.Rules() {
		p.Limits = append(p.Limits, r.Share(int(now.live)))
	}
	made, err := makeLimit(p, memory{}, s.limits)
	if err != nil {
		panic("limiter: the share of a valid rule is not valid: " + err.Error())
	}
	made.Commit()
	s.limits, s.madeFor = made.Limiter.(*limits), now
	return s.limits
}
