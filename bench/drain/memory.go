package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

const memoryKeys = 1000

func (b *bench) memory(ctx context.Context) (figures []figure, err error) {
	const policy = "slow"
	p, err := b.startPenstock(ctx,
		fmt.Sprintf(
			"{name: %s, algorithm: leaking_bucket, outflow: 1/d, capacity: %d, partitions: 1}",
			policy, 2*mostWaiting/memoryKeys))
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := p.drain(ctx, drainerSpec{Policy: policy, Starts: memoryKeys}, 1, 1); err != nil {
		return nil, err
	}
	// Each key's first job starts at once; the others wait for a day.
	if err := p.fill(ctx, policy, memoryKeys, memoryKeys); err != nil {
		return nil, err
	}
	if err := p.drained(ctx, policy, 0, patience); err != nil {
		return nil, err
	}
	zero, err := p.heap(ctx)
	if err != nil {
		return nil, err
	}
	waiting := 0
	for _, n := range b.waiting {
		b.say("memory: %d waiting jobs", n)
		if err := p.fill(ctx, policy, n-waiting, memoryKeys); err != nil {
			return nil, err
		}
		waiting = n
		if err := p.arrived(ctx, policy, uint64(memoryKeys+n)); err != nil {
			return nil, err
		}
		heap, err := p.heap(ctx)
		if err != nil {
			return nil, err
		}
		if b.profile != "" {
			if _, err := p.drainers[0].ask(ctx, "profile",
				filepath.Join(b.profile, fmt.Sprintf("memory-%d.heap", n))); err != nil {
				return nil, err
			}
		}
		figures = append(figures,
			figure{part: "memory", unit: "bytes", value: (heap - zero) / float64(n),
				what: fmt.Sprintf("%d waiting jobs of %d keys: heap of the drainer per job", n,
					memoryKeys)}.atMost(600))
	}
	return figures, nil
}

func (p *penstock) heap(ctx context.Context) (float64, error) {
	text, err := p.drainers[0].ask(ctx, "heap", "")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("read the size of the heap: %w", err)
	}
	return n, nil
}

func (p *penstock) arrived(ctx context.Context, policy string, seq uint64) error {
	return until(ctx, patience, fmt.Sprintf("job %d has arrived", seq), func() (bool, error) {
		a, err := p.broker.AskValve(ctx, policy, 0,
			job.Question{Op: job.OpExpect, Jobs: []uint64{seq}})
		return err == nil && len(a.Starts) == 1 && a.Starts[0].Known, nil
	})
}
