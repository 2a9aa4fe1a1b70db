package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

const (
	// tripAfter is how many flights in a row must fail before the store is no longer asked.
	tripAfter = 5
	// probeEvery is how often one flight tries a store that is not asked.
	probeEvery = time.Second
)

// newBreaker returns a breaker that keeps requests from a Redis that does not answer, and logs each
// change. It calls answers when Redis answers again.
func newBreaker(o Options, answers func()) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	var last lastError
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     probeEvery,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsSuccessful: func(err error) bool {
			last.keep(err)
			return err == nil
		},
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case from == gobreaker.StateClosed:
				o.Metrics.StoreUp(false)
				o.Logger.Warn(
					"the store of limits does not answer: policies go on by their on_store_error",
					"error", last.err())
			case to == gobreaker.StateClosed:
				o.Metrics.StoreUp(true)
				o.Logger.Info("the store of limits answers again")
				answers()
			}
		},
	})
}

// lastError is the error that a flight ended with, for the log.
type lastError struct {
	mu   sync.Mutex
	last error
}

func (l *lastError) keep(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.last = err
	}
}

func (l *lastError) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
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
func (g *guarded) Take(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	return g.ask(ctx, (*limits).Take, from, n)
}

// Peek implements [admission.Limiter].
func (g *guarded) Peek(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	return g.ask(ctx, (*limits).Peek, from, n)
}

// Refund implements [admission.Limiter]. Units go back to what decides now: to the store, to the
// share while that does not answer, to nobody where all pass then. So what was taken before an
// outage and comes back during it is lost to the limit, and the other way round.
func (g *guarded) Refund(ctx context.Context, from admission.Caller, n int64) error {
	in, cancel := context.WithTimeout(ctx, g.factory.options.Shared.Timeout)
	defer cancel()
	err := g.shared.Refund(in, from, n)
	switch {
	case err == nil || isOfTheRequest(ctx, err):
		return err
	case g.policy.OnStoreError == policy.Open:
		return nil
	case g.local != nil:
		return g.local.of(g).Refund(ctx, from, n)
	}
	return fmt.Errorf("%w: %w", admission.ErrStore, err)
}

// question is one of the two that a limiter answers.
type question func(*limits, context.Context, admission.Caller, int64) (admission.Checked, error)

// ask puts a question to the store, or decides without it.
func (g *guarded) ask(ctx context.Context, q question, from admission.Caller,
	n int64) (admission.Checked, error) {
	in, cancel := context.WithTimeout(ctx, g.factory.options.Shared.Timeout)
	defer cancel()
	checked, err := q(g.shared, in, from, n)
	if err == nil || isOfTheRequest(ctx, err) {
		return checked, err
	}
	return g.without(ctx, q, from, n, err)
}

// isOfTheRequest reports whether an error says nothing about the store: the request cannot be, or
// its caller has left.
func isOfTheRequest(ctx context.Context, err error) bool {
	_, cost := errors.AsType[*algorithms.CostError](err)
	return cost || ctx.Err() != nil
}

// without decides without the store; cause says why it could not be asked.
func (g *guarded) without(ctx context.Context, q question, from admission.Caller, n int64,
	cause error) (
	admission.Checked, error) {

	g.factory.options.Metrics.FellBack(g.policy.Name, string(g.policy.OnStoreError))
	switch {
	case g.policy.OnStoreError == policy.Open:
		return admission.Checked{Quota: g.quota, Decision: algorithms.Decision{
			// as a new key would be answered
			Allowed: true, Granted: n, Limit: g.quota.Units, Remaining: g.quota.Units - n,
		}}, nil
	case g.local != nil:
		checked, err := q(g.local.of(g), ctx, from, n)
		if tooMuch, ok := errors.AsType[*algorithms.CostError](err); ok && n > tooMuch.Most {
			// It could pass under the whole limit, but never under a share of it.
			return admission.Checked{Quota: g.quota, Decision: algorithms.Decision{
				Limit: tooMuch.Most, RetryAfter: probeEvery, ResetAfter: probeEvery,
			}}, nil
		}
		return checked, err
	}
	return admission.Checked{}, fmt.Errorf("%w: %w", admission.ErrStore, cause)
}

// share is the limiter in memory of one of several admitters that decide each by itself. It begins
// as if all keys were new, and knows nothing of what the store had counted.
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

// of returns the limiter of a policy's share among the admitters that are alive now. What keys have
// used stays used when either changes.
func (s *share) of(g *guarded) *limits {
	now := shareOf{g, g.factory.live.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.madeFor == now {
		return s.limits
	}
	p := g.policy
	p.Limits = nil
	for _, r := range g.policy.AllLimits() {
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

// drop forgets what keys have used; requests that are being decided end with it.
func (s *share) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits, s.madeFor = nil, shareOf{}
}
