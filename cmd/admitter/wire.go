package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/algorithms/memstore"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/targets"
	"github.com/penstock-mq/penstock/internal/telemetry"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// maxLogTimes bounds the timestamps that all sliding logs of one policy can keep, at 8 bytes each: its store then holds
// fewer keys than other rules' stores do.
const maxLogTimes = 1 << 28

// newLimit makes the limiter of a policy. It is the one place that switches over the names of algorithms.
func newLimit(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	switch p.Algorithm {
	case policy.TokenBucket:
		return limit(algorithms.TokenBucket{Capacity: p.Capacity, Refill: p.Refill},
			admission.FillTime(p.Capacity, p.Refill), previous)
	case policy.LeakingBucket:
		return limit(algorithms.LeakingBucket{Capacity: p.Capacity, Outflow: p.Outflow, Burst: p.Burst},
			admission.FillTime(p.Capacity, p.Outflow), previous)
	case policy.FixedWindow:
		return limit(algorithms.FixedWindow{Limit: p.Limit, Window: time.Duration(p.Window)},
			time.Duration(p.Window), previous)
	case policy.SlidingLog:
		return limit(algorithms.SlidingLog{Limit: p.Limit, Window: time.Duration(p.Window),
			CountAccepted: p.Count == policy.CountAccepted}, time.Duration(p.Window), previous,
			memstore.MaxKeys(int(min(memstore.DefaultMaxKeys, maxLogTimes/max(p.Limit, 1)))))
	case policy.SlidingCounter:
		return limit(algorithms.SlidingCounter{Limit: p.Limit, Window: time.Duration(p.Window)},
			time.Duration(p.Window), previous)
	}
	return admission.Limit{}, fmt.Errorf("algorithm %q is not known", p.Algorithm)
}

// limit makes a limiter of a rule, or changes the rule of the previous one when it keeps the same states.
func limit[S any](rule algorithms.Rule[S], window time.Duration, previous admission.Limiter, opts ...memstore.Option) (
	admission.Limit, error) {

	if err := rule.Validate(); err != nil {
		return admission.Limit{}, err
	}
	made := admission.Limit{Quota: admission.Quota{Units: rule.Most(), Window: window}}
	if store, ok := previous.(*memstore.Store[S]); ok {
		made.Limiter = store
		made.Commit = func() { _ = store.SetRule(rule) } // its only error is that of Validate
		return made, nil
	}
	made.Limiter = memstore.New(rule, opts...)
	return made, nil
}

// newDrainer makes the drainer of --drain.
func newDrainer(nc *nats.Conn, c config.Config, metrics *telemetry.Drain, log *slog.Logger) (
	func(context.Context) error, error) {

	drainer, err := workers.New(nc, workers.Options{
		Prefix:   c.NATS.Prefix,
		Replicas: c.NATS.Replicas,
		Lease:    c.Drain.Lease,
		Policies: c.Drain.Policies,
		Target:   targets.New(nc),
		OwnAll:   true,
		Grace:    c.Grace,
		Observer: metrics,
		Logger:   log,
	})
	if err != nil {
		return nil, fmt.Errorf("make the drainer: %w", err)
	}
	return drainer.Run, nil
}
