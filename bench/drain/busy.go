package main

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

const busySeed = 1

// busy loads a machine: a target, and a neighbour that takes its processors.
type busy struct {
	target, neighbour *process
	url               string
}

func (b *bench) startBusy(ctx context.Context, about time.Duration) (*busy, error) {
	target, err := b.startChild(ctx, "target", roleTarget, nil)
	if err != nil {
		return nil, err
	}
	neighbour, err := b.startNeighbour(ctx, about)
	if err != nil {
		target.Kill()
		return nil, err
	}
	return &busy{target, neighbour, target.ready["url"]}, nil
}

func (b *bench) startNeighbour(ctx context.Context, about time.Duration) (*process, error) {
	return b.startChild(ctx, "neighbour", roleNeighbour,
		neighbourSpec{Seed: busySeed, Time: about + patience})
}

func (b *busy) stop() {
	b.neighbour.Kill()
	b.target.Kill()
}

// busyShare is the largest part of the pipeline's maximum that a rate may be.
const busyShare = 0.75

// busyRows measures, with a neighbour process, rates that the pipeline reaches with a target on the
// same machine.
func (b *bench) busyRows(ctx context.Context) (rows []row, figures []figure, err error) {
	most, err := b.pipeline(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("the most that the pipeline starts: %w", err)
	}
	figures = append(figures, perSecond("busy", "most that the pipeline starts", most))
	for _, s := range b.busy {
		if float64(s.rate) > busyShare*most {
			figures = append(figures, perSecond("busy",
				fmt.Sprintf("%s: not measured, above %.0f %% of that", s, 100*busyShare),
				busyShare*most))
			continue
		}
		row, err := b.rate(ctx, s)
		if err != nil {
			return rows, figures, fmt.Errorf("%s: %w", s, err)
		}
		rows = append(rows, row)
	}
	return rows, figures, nil
}

// pipeline measures the maximum rate from a full queue to the target.
func (b *bench) pipeline(ctx context.Context) (float64, error) {
	const policy, jobs = "unpaced", 40_000
	b.say("busy: the most that the pipeline starts")
	beside, err := b.startBusy(ctx, patience)
	if err != nil {
		return 0, err
	}
	defer beside.stop()
	unpaced := setting{rate: 1_000_000}
	p, err := b.startPenstock(ctx, unpaced.policy(policy, jobs, partitions, beside.url))
	if err != nil {
		return 0, err
	}
	defer p.stop()
	if err := p.fill(ctx, policy, jobs, 1); err != nil {
		return 0, err
	}
	if err := p.drain(ctx, drainerSpec{Policy: policy, Starts: jobs, Target: true}, 1,
		partitions); err != nil {
		return 0, err
	}
	if err := p.drained(ctx, policy, 0, patience); err != nil {
		return 0, err
	}
	starts, err := p.starts(ctx)
	if err != nil {
		return 0, err
	}
	at := instants(starts)
	if len(at) < jobs {
		return 0, fmt.Errorf("%d of %d jobs started", len(at), jobs)
	}
	most := paceOf(at[jobs/10:jobs-jobs/10], 1).measured // without both ends
	b.say("busy: the pipeline starts %s/s at most", paper.Grouped(int(most)))
	return most, nil
}
