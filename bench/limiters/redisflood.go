package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

type flooding struct {
	refusals int
	elapsed  time.Duration
	calls    int64
}

func (b *bench) flood(ctx context.Context, server *redisServer) (table, error) {
	all := floodContestants(server.Addr())
	measured := make([][]flooding, len(all))
	for range b.rounds {
		for i, c := range all {
			f, err := b.floodOne(ctx, server, c)
			if err != nil {
				return table{}, fmt.Errorf("flood of %s, %s: %w", c.name, c.algorithm, err)
			}
			measured[i] = append(measured[i], f)
		}
	}
	return floodTable(all, measured), nil
}

func (b *bench) floodOne(ctx context.Context, server *redisServer,
	c contestant) (f flooding, err error) {
	if err := server.reset(ctx); err != nil {
		return f, err
	}
	l, err := c.open(1)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var (
		wait     sync.WaitGroup
		refusals [callers]int
		failed   [callers]error
		start    = time.Now()
	)
	for i := range callers {
		wait.Go(func() {
			for going := true; going; going = time.Since(start) < b.length && ctx.Err() == nil {
				switch err := l.decide(ctx, "key-00000"); {
				case errors.Is(err, errRefused):
					refusals[i]++
				case err != nil:
					failed[i] = err
					return
				}
			}
		})
	}
	wait.Wait()
	f.elapsed = time.Since(start)
	for _, n := range refusals {
		f.refusals += n
	}
	if err := errors.Join(firstCause(failed[:]), ctx.Err()); err != nil {
		return f, err
	}
	f.calls, err = server.scriptCalls(ctx)
	return f, err
}
