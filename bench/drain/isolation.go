package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/queue"
)

const (
	manyKeys  = 10_000
	fewJobs   = 5      // see publishFew
	bigKey    = 10_000 // jobs of one key
	idleRate  = 200
	aloneKeys = 100_000
)

const (
	groupBig uint32 = iota
	groupFew
	groupIdle
)

func (b *bench) isolation(ctx context.Context) ([]figure, error) {
	var figures []figure
	for _, busy := range []bool{false, true} {
		f, err := b.manyKeys(ctx, busy)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	for _, partitions := range []int{partitions, shared} {
		f, err := b.aloneKeys(ctx, partitions)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

// manyKeys runs ten thousand keys at one job per second, spread over the second, and a key with a
// long queue, and publishes single jobs to other keys; busy adds a neighbour process.
func (b *bench) manyKeys(ctx context.Context, busy bool) ([]figure, error) {
	b.say("isolation: %d keys with %d jobs each at 1/s, one with %d, busy: %v", manyKeys, fewJobs,
		bigKey, busy)
	const limit = 50
	if busy {
		neighbour, err := b.startNeighbour(ctx, patience)
		if err != nil {
			return nil, err
		}
		defer neighbour.Kill()
	}
	const policy = "keys"
	p, err := b.startPenstock(ctx,
		fmt.Sprintf("{name: %s, algorithm: leaking_bucket, outflow: 1/s, capacity: %d}", policy,
			bigKey))
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := p.drain(ctx,
		drainerSpec{Policy: policy, Starts: manyKeys*fewJobs + bigKey,
			Profile: b.profileFile("keys.cpu")}, 1, partitions); err != nil {
		return nil, err
	}
	by, err := b.watchMachine(ctx, time.Millisecond, 2*fewJobs*time.Second)
	if err != nil {
		return nil, err
	}
	defer by.process.Kill()
	if err := fill(ctx, p.js, p.refused, func(queue.Key) string {
		return p.broker.Names().Jobs(policy, "big")
	}, bigKey, 1); err != nil {
		return nil, err
	}
	begin := monotonic()
	if err := p.publishFew(ctx, policy); err != nil {
		return nil, err
	}
	spread := time.Duration(monotonic() - begin)
	idle := monotonic()
	sent, err := p.publishIdle(ctx, policy, (fewJobs-2)*time.Second)
	if err != nil {
		return nil, err
	}
	idleEnd := monotonic()
	for group, n := range map[uint32]int{groupFew: manyKeys * fewJobs, groupIdle: sent} {
		if err := p.started(ctx, group, n); err != nil {
			return nil, err
		}
	}
	starts, err := p.starts(ctx)
	if err != nil {
		return nil, err
	}
	wakes, err := by.wakes(ctx, p.dir)
	if err != nil {
		return nil, err
	}
	_, all := stalls(wakes, by.interval)
	delays, late := isolationOf(starts, nil)
	netDelays, netLate := isolationOf(starts, all)
	what := fmt.Sprintf("%d keys at 1/s with %d jobs each, published over %v, one key with %d: ",
		manyKeys, fewJobs, spread.Round(10*time.Millisecond), bigKey)
	if busy {
		what = "the same beside a neighbour: "
	}
	var figures []figure
	for _, of := range []struct {
		what       string
		gross, net []time.Duration
	}{{"start delay of idle keys", delays, netDelays},
		{"lateness of the others", late, netLate}} {
		p99 := milliseconds("isolation", what+of.what+", p99", paper.Quantile(of.gross, 0.99))
		if !busy {
			p99 = p99.atMost(limit)
		}
		figures = append(figures,
			milliseconds("isolation", what+of.what+", p50", paper.Quantile(of.gross, 0.5)), p99,
			milliseconds("isolation", what+of.what+", p99 net of stalls",
				paper.Quantile(of.net, 0.99)).atMost(limit),
			milliseconds("isolation", what+of.what+", longest", paper.Quantile(of.gross, 1)))
	}
	wakes = within(wakes, idle, idleEnd)
	stall, _ := stalls(wakes, by.interval)
	return append(figures,
		milliseconds("isolation", what+"bystander's gap p99", paper.Quantile(gaps(wakes), 0.99)),
		milliseconds("isolation", what+"bystander's longest stall", stall)), nil
}

// publishFew gives each key its jobs over one second, which spreads their starts: two at first, one
// of them waiting, and the rest in the next second. All at once would measure the server's
// deliveries.
func (p *penstock) publishFew(ctx context.Context, policy string) error {
	begin := time.Now()
	for second, numbers := range [][]uint32{{0, 1}, {2, 3, 4}} {
		for key := range manyKeys {
			at := begin.Add(time.Duration(second*manyKeys+key) * time.Second / manyKeys)
			if err := p.keepTime(ctx, at); err != nil {
				return err
			}
			subject := p.broker.Names().Jobs(policy, queue.Key(keyName(key)))
			for _, n := range numbers {
				if err := send(p.js, subject,
					mark{Group: groupFew, Key: uint32(key), Number: n}); err != nil {
					return err
				}
			}
		}
	}
	return stored(ctx, p.js, p.refused)
}

func (p *penstock) publishIdle(ctx context.Context, policy string,
	during time.Duration) (int, error) {
	begin := time.Now()
	n := int(during.Seconds() * idleRate)
	for i := range n {
		if err := p.keepTime(ctx, begin.Add(time.Duration(i)*time.Second/idleRate)); err != nil {
			return 0, err
		}
		subject := p.broker.Names().Jobs(policy, queue.Key(fmt.Sprintf("idle-%d", i)))
		if err := send(p.js, subject, mark{Group: groupIdle, Key: uint32(i)}); err != nil {
			return 0, err
		}
	}
	return n, stored(ctx, p.js, p.refused)
}

func (p *penstock) keepTime(ctx context.Context, at time.Time) error {
	if wait := time.Until(at); wait >= time.Millisecond {
		return pass(ctx, wait)
	}
	return ctx.Err()
}

func (p *penstock) started(ctx context.Context, group uint32, n int) error {
	return until(ctx, patience, fmt.Sprintf("%d jobs of group %d started", n,
		group), func() (bool, error) {
		count, err := p.drainers[0].ask(ctx, "count", fmt.Sprint(group))
		return count == fmt.Sprint(n), err
	})
}

// isolationOf returns, sorted and without stalls, the delays of idle keys' jobs, and how late the
// others started by one per second from their key's first.
func isolationOf(starts []start, stalls []stall) (delays, late []time.Duration) {
	first := make([]int64, manyKeys)
	for _, s := range starts {
		if s.Group == groupFew && s.Number == 0 {
			first[s.Key] = s.At
		}
	}
	after := func(at, from int64) time.Duration {
		return time.Duration(at-from) - lost(stalls, from, at)
	}
	for _, s := range starts {
		switch {
		case s.Group == groupIdle:
			delays = append(delays, after(s.At, s.Published))
		case s.Group == groupFew && s.Number > 0:
			late = append(late, after(s.At, first[s.Key]+int64(s.Number)*int64(time.Second)))
		}
	}
	slices.Sort(delays)
	slices.Sort(late)
	return delays, late
}

func (b *bench) aloneKeys(ctx context.Context, partitions int) ([]figure, error) {
	b.say("isolation: %d keys with one job each, partitions: %d", aloneKeys, partitions)
	const policy = "keys"
	p, err := b.startPenstock(ctx,
		fmt.Sprintf(
			"{name: %s, algorithm: leaking_bucket, outflow: 1/s, capacity: 10, partitions: %d}",
			policy, partitions))
	if err != nil {
		return nil, err
	}
	defer p.stop()
	if err := p.fill(ctx, policy, aloneKeys, aloneKeys); err != nil {
		return nil, err
	}
	spec := drainerSpec{Policy: policy, Starts: aloneKeys,
		Profile: b.profileFile(fmt.Sprintf("alone-%d.cpu", partitions))}
	used, usedErr := p.cpu()
	if err := p.drain(ctx, spec, 1, partitions); err != nil {
		return nil, err
	}
	if err := p.drained(ctx, policy, 0, 2*patience); err != nil {
		return nil, err
	}
	now, err := p.cpu()
	if usedErr == nil {
		usedErr = err
	}
	starts, err := p.starts(ctx)
	if err != nil {
		return nil, err
	}
	at := instants(starts)
	if len(at) != aloneKeys {
		return nil, fmt.Errorf("%d of %d jobs started", len(at), aloneKeys)
	}
	what := fmt.Sprintf("%d keys with one job each, %s: ", aloneKeys,
		paper.Plural(partitions, "partition"))
	figures := []figure{
		perSecond("isolation", what+"starts",
			float64(len(at)-1)/(float64(at[len(at)-1]-at[0])/1e9)).atLeast(30_000),
	}
	if usedErr == nil {
		figures = append(figures, processorTime("isolation", what, now-used, aloneKeys))
	}
	return figures, nil
}
