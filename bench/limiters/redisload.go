package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

const callers = 64

type serving struct {
	perSecond float64
	p50, p99  time.Duration
	perCall   float64
}

func (s turns) perSecond() float64 {
	return paper.MedianBy(s, func(x serving) float64 { return x.perSecond })
}
func (s turns) perCall() float64 {
	return paper.MedianBy(s, func(x serving) float64 { return x.perCall })
}
func (s turns) p50() float64 {
	return paper.MedianBy(s, func(x serving) float64 { return float64(x.p50) })
}
func (s turns) p99() float64 {
	return paper.MedianBy(s, func(x serving) float64 { return float64(x.p99) })
}

type turns []serving

func (b *bench) serve(ctx context.Context, server *redisServer, c contestant,
	set keySet) (s serving, err error) {
	if err := server.reset(ctx); err != nil {
		return s, err
	}
	l, err := c.open(set.keys)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	requests := set.names(1)
	if _, err := load(ctx, l, requests, b.length); err != nil {
		return s, err
	}
	before, err := server.scriptCalls(ctx)
	if err != nil {
		return s, err
	}
	runtime.GC()
	start := time.Now()
	took, err := load(ctx, l, requests, b.length*redisTurn)
	if err != nil {
		return s, err
	}
	elapsed := time.Since(start)
	after, err := server.scriptCalls(ctx)
	if err != nil {
		return s, err
	}
	slices.Sort(took)
	return serving{
		perSecond: float64(len(took)) / elapsed.Seconds(),
		p50:       paper.Quantile(took, 0.5), p99: paper.Quantile(took, 0.99),
		perCall: float64(len(took)) / float64(after-before),
	}, nil
}

// load returns each decision's time. Callers go through the same requests from distant offsets.
func load(ctx context.Context, l openLimiter, requests []string,
	length time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wait   sync.WaitGroup
		took   [callers][]time.Duration
		failed [callers]error
		start  = time.Now()
	)
	for i := range callers {
		wait.Go(func() {
			var mine []time.Duration
			next := i * len(requests) / callers
			for asked := start; asked.Sub(start) < length; {
				if err := l.decide(ctx, requests[next]); err != nil {
					failed[i] = err
					cancel()
					return
				}
				answered := time.Now()
				mine = append(mine, answered.Sub(asked))
				asked = answered
				if next++; next == len(requests) {
					next = 0
				}
			}
			took[i] = mine
		})
	}
	wait.Wait()
	if err := firstCause(failed[:]); err != nil {
		return nil, err
	}
	return slices.Concat(took[:]...), nil
}

func firstCause(failed []error) (cause error) {
	for _, err := range failed {
		if err != nil && (cause == nil || errors.Is(cause, context.Canceled)) {
			cause = err
		}
	}
	return cause
}

func askEach(ctx context.Context, l openLimiter, names []string) error {
	var (
		wait   sync.WaitGroup
		failed [callers]error
	)
	for i := range callers {
		wait.Go(func() {
			for _, name := range names[i*len(names)/callers : (i+1)*len(names)/callers] {
				if failed[i] = l.decide(ctx, name); failed[i] != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	return firstCause(failed[:])
}
