package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

const (
	// settling is how long starts go on before they are measured.
	settling = 2 * time.Second
	// lasting is for how much longer than that the backlog is there, for slow publishing and slow
	// ends.
	lasting = 10 * time.Second
)

// row is one rate with one number of drainers.
type row struct {
	rate, drainers int

	pace         pace
	net          float64 // error in percent, without what the machine's stalls explain
	in1s, in100  int
	gap          [3]time.Duration // p50, p99, max
	late         [2]time.Duration // p50, p99
	cpu          time.Duration    // per 1000 jobs; negative: not known
	bystanderGap time.Duration    // p99
	stall        time.Duration    // longest
	stalled      time.Duration    // sum of those that count

	at   []int64 // the starts
	from int64
}

// missed says which goals a row does not reach; none when it is as it must be.
func (r row) missed() (which []string) {
	if r.net < -0.5 || r.net > 0.5 {
		which = append(which, "error")
	}
	if r.in1s > mostIn1s(float64(r.rate), 1) {
		which = append(which, "1 s")
	}
	if r.rate <= 100 && r.gap[1] > r.bystanderGap+2*time.Millisecond {
		which = append(which, "gap p99")
	}
	return which
}

// rate measures one row.
func (b *bench) rate(ctx context.Context, rate, drainers int) (r row, err error) {
	b.say("rate: %d/s, %d drainers", rate, drainers)
	const policy = "paced"
	backlog := rate * int((settling+lasting+b.duration)/time.Second)
	p, err := b.startPenstock(ctx,
		fmt.Sprintf("{name: %s, algorithm: leaking_bucket, outflow: %d/s, capacity: %d, "+
			"partitions: %d}", policy, rate, backlog, shared))
	if err != nil {
		return r, err
	}
	defer p.stop()
	if err := p.drain(ctx, drainerSpec{Policy: policy, Starts: backlog}, drainers,
		shared); err != nil {
		return r, err
	}
	by, err := b.watchMachine(ctx, max(time.Second/time.Duration(rate), time.Millisecond),
		b.duration)
	if err != nil {
		return r, err
	}
	defer by.process.Kill()
	if err := p.fill(ctx, policy, backlog, 1); err != nil {
		return r, err
	}
	if err := pass(ctx, settling); err != nil {
		return r, err
	}
	from := monotonic()
	cpuFrom, cpuErr := p.cpu()
	if err := pass(ctx, b.duration); err != nil {
		return r, err
	}
	cpuTo, err := p.cpu()
	to := monotonic()
	if cpuErr == nil {
		cpuErr = err
	}
	if left, err := p.broker.Depth(ctx, policy); err != nil {
		return r, err
	} else if left == 0 {
		return r, fmt.Errorf("the backlog of %d jobs did not last", backlog)
	}
	starts, err := p.starts(ctx)
	if err != nil {
		return r, err
	}
	at := make([]int64, len(starts))
	for i, s := range starts {
		at[i] = s.At
	}
	slices.Sort(at)
	wakes, err := by.wakes(ctx, p.dir)
	if err != nil {
		return r, err
	}
	r = rowOf(rate, drainers, within(at, from, to), within(wakes, from, to), by.interval)
	if r.pace.starts < 2 {
		return r, fmt.Errorf("%d starts in %v", r.pace.starts, b.duration)
	}
	r.from, r.cpu = from, -1
	if cpuErr == nil {
		r.cpu = (cpuTo - cpuFrom) * 1000 / time.Duration(r.pace.starts)
	}
	b.say("rate: %d/s, %d drainers: %.3f/s, error %+.3f %%, most in 1 s %d", rate, drainers,
		r.pace.measured, r.pace.err(float64(rate)), r.in1s)
	return r, nil
}

// rowOf computes a row from the starts and the bystander's wakes of the time that was measured.
func rowOf(rate, drainers int, at, wakes []int64, interval time.Duration) row {
	r := row{rate: rate, drainers: drainers, at: at, pace: paceOf(at, float64(rate))}
	g, late := gaps(at), lateness(at, float64(rate))
	r.gap = [3]time.Duration{paper.Quantile(g, 0.5), paper.Quantile(g, 0.99), paper.Quantile(g, 1)}
	r.late = [2]time.Duration{paper.Quantile(late, 0.5), paper.Quantile(late, 0.99)}
	r.in1s, r.in100 = most(at, time.Second), most(at, 100*time.Millisecond)
	r.bystanderGap = paper.Quantile(gaps(wakes), 0.99)
	r.stall, r.stalled = stalls(wakes, interval)
	r.net = r.pace.net(float64(rate), r.stalled.Seconds())
	return r
}

// bystander is a process with an empty timer loop.
type bystander struct {
	process  *process
	interval time.Duration
}

// watchMachine starts a bystander that records for about a time.
func (b *bench) watchMachine(ctx context.Context,
	interval, about time.Duration) (*bystander, error) {
	p, err := b.startChild(ctx, "bystander", roleBystander,
		bystanderSpec{Interval: interval, Wakes: int((about + settling + lasting) / interval)})
	if err != nil {
		return nil, err
	}
	return &bystander{p, interval}, nil
}

// wakes are the instants at which the bystander woke.
func (b *bystander) wakes(ctx context.Context, dir string) ([]int64, error) {
	file := filepath.Join(dir, "wakes")
	if _, err := b.process.ask(ctx, "dump", file); err != nil {
		return nil, err
	}
	wakes, err := load[int64](file)
	if err != nil {
		return nil, fmt.Errorf("read the bystander's wakes: %w", err)
	}
	return wakes, nil
}
