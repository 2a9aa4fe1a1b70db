package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

const (
	tripAfter  = 5
	probeEvery = time.Second
)

// newBreaker logs changes.
func newBreaker(o Options) *gobreaker.TwoStepCircuitBreaker[struct{}] {
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
				o.storeUp(false)
				o.Logger.Warn(
					"the store of limits does not answer: policies go on by their on_store_error",
					"error", last.err())
			case to == gobreaker.StateClosed:
				o.storeUp(true)
				o.Logger.Info("the store of limits answers again")
			}
		},
	})
}

func (o Options) storeUp(up bool) {
	o.Sink.Take(queue.Event{Type: jet.EventStoreUp, Value: jet.Whether(up)})
}

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

type guarded struct {
	factory *Factory
	policy  policy.Policy
	shared  *limits
	quota   admission.Quota
	local   *share
	told    atomic.Int64 // of a foreign value, in Unix seconds
}

func (g *guarded) Take(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	return g.ask(ctx, (*limits).Take, from, n)
}

func (g *guarded) Peek(ctx context.Context, from admission.Caller,
	n int64) (admission.Checked, error) {
	return g.ask(ctx, (*limits).Peek, from, n)
}

// Refund returns units to what decides now, the store or the share. Refunds across an outage's
// start or end are lost.
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
	return fmt.Errorf("%w: %w", admit.ErrStore, err)
}

type question func(*limits, context.Context, admission.Caller, int64) (admission.Checked, error)

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

// Such errors do not concern the store.
func isOfTheRequest(ctx context.Context, err error) bool {
	_, cost := errors.AsType[*algorithms.CostError](err)
	return cost || ctx.Err() != nil
}

func (g *guarded) without(ctx context.Context, q question, from admission.Caller, n int64,
	cause error) (
	admission.Checked, error) {

	g.factory.options.Sink.Take(queue.Event{Type: jet.EventFellBack, Policy: g.policy.Name,
		Name: string(g.policy.OnStoreError)})
	g.tell(cause)
	switch {
	case g.policy.OnStoreError == policy.Open:
		return admission.Checked{Quota: g.quota, Decision: algorithms.Decision{
			// as for a new key
			Allowed: true, Granted: n, Limit: g.quota.Units, Remaining: g.quota.Units - n,
		}}, nil
	case g.local != nil:
		checked, err := q(g.local.of(g), ctx, from, n)
		if tooMuch, ok := errors.AsType[*algorithms.CostError](err); ok && n > tooMuch.Most {
			// A share can never grant a cost that only the whole limit allows.
			return admission.Checked{Quota: g.quota, Decision: algorithms.Decision{
				Limit: tooMuch.Most, RetryAfter: probeEvery, ResetAfter: probeEvery,
			}}, nil
		}
		return checked, err
	}
	return admission.Checked{}, fmt.Errorf("%w: %w", admit.ErrStore, cause)
}

// tell logs once a minute what trips no breaker: a policy's foreign values, and a cluster's servers
// that do not answer.
func (g *guarded) tell(cause error) {
	told := &g.factory.told
	if _, foreign := errors.AsType[*algorithms.StateError](cause); foreign {
		told = &g.told
	} else if !g.factory.options.Shared.Cluster || g.factory.Health() != nil {
		return
	}
	last, now := told.Load(), time.Now().Unix()
	if now-last >= 60 && told.CompareAndSwap(last, now) {
		g.factory.options.Logger.Warn("a key's decisions follow on_store_error",
			"policy", g.policy.Name, "error", cause)
	}
}

// share is the in-memory limiter of one of several admitters, without the store's counts. It
// survives outages until all its keys are as new: each of a series would grant its units again.
type share struct {
	mu      sync.Mutex
	limits  *limits
	madeFor shareOf
	last    time.Time // use
}

type shareOf struct {
	guarded *guarded
	live    int64
}

// Used units survive a change.
func (s *share) of(g *guarded) *limits {
	now := shareOf{g, g.factory.live.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
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

// tidy frees the memory after an outage.
func (s *share) tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limits == nil {
		return
	}
	for _, q := range s.limits.quotas {
		if time.Since(s.last)/2 < q.Window { // a sliding counter remembers two windows
			return
		}
	}
	s.limits, s.madeFor = nil, shareOf{}
}
