package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/policy"
)

const (
	// starts are not measured at first, longer when busy: what publishing delayed is made up
	settling     = 2 * time.Second
	settlingBusy = 6 * time.Second
	lasting      = 10 * time.Second
)

type setting struct {
	rate, drainers int
	peak, burst    int
	busy           bool
}

func (s setting) ratio() float64 {
	if s.peak == 0 {
		return policy.DefaultPeak
	}
	return float64(s.peak) / float64(s.rate)
}

// mostIn1s is law 2's bound for any second.
func (s setting) mostIn1s() int {
	return int(math.Floor(s.ratio()*1.002*float64(s.rate)+1e-9)) + max(s.burst, 1)
}

// makesUp is the largest share of stalls that the peak can make up for, with the tolerance of 10
// ms.
func (s setting) makesUp() float64 { return max(0, s.ratio()*1.002/1.010-1) }

func (s setting) String() string {
	text := fmt.Sprintf("%d/s", s.rate)
	if s.peak != 0 {
		text += fmt.Sprintf(", peak %d/s", s.peak)
	}
	if s.burst != 0 {
		text += fmt.Sprintf(", burst %d", s.burst)
	}
	return text
}

// parseSetting parses outflow/peak/burst; missing and 0 mean the default.
func parseSetting(text string) (s setting, ok bool) {
	numbers := []*int{&s.rate, &s.peak, &s.burst}
	parts := strings.Split(text, "/")
	if len(parts) > len(numbers) {
		return s, false
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 2*mostRate {
			return s, false
		}
		*numbers[i] = n
	}
	return s, s.rate >= 1 && s.rate <= mostRate && (s.peak == 0 || s.peak >= s.rate)
}

const mostRate = 20_000

func (s setting) policy(name string, capacity, partitions int, target string) string {
	text := fmt.Sprintf("{name: %s, algorithm: leaking_bucket, outflow: %d/s, capacity: %d, "+
		"partitions: %d", name, s.rate, capacity, partitions)
	if s.peak != 0 {
		text += fmt.Sprintf(", peak: %d/s", s.peak)
	}
	if s.burst != 0 {
		text += fmt.Sprintf(", burst: %d", s.burst)
	}
	if target != "" {
		text += fmt.Sprintf(", target: {http: {url: %q}}", target)
	}
	return text + "}"
}

type row struct {
	setting

	pace         pace
	net          float64 // in percent, except for stalls
	in1s, in100  int
	gap          [3]time.Duration // p50, p99, maximum
	late         [2]time.Duration // p50, p99
	cpu          time.Duration    // per 1000 jobs; negative: unknown
	bystanderGap time.Duration
	stall        time.Duration
	stalled      float64
	returned     float64 // share of starts undone

	at   []int64
	from int64
}

// missed returns the goals that a row misses. A busy row must be exact while its peak can make up
// for the stalls.
func (r row) missed() (which []string) {
	wrong := r.net
	if r.busy && r.stalled <= r.makesUp() {
		wrong = r.pace.err(float64(r.rate))
	}
	if wrong < -0.5 || wrong > 0.5 {
		which = append(which, "error")
	}
	if r.in1s > r.mostIn1s() {
		which = append(which, "1 s")
	}
	if !r.busy && r.rate <= 100 && r.gap[1] > r.bystanderGap+2*time.Millisecond {
		which = append(which, "gap p99")
	}
	return which
}

func (b *bench) rate(ctx context.Context, s setting) (r row, err error) {
	const policy = "paced"
	settle, owned, target := settling, shared, ""
	what := fmt.Sprintf("rate: %s, %s", s, paper.Plural(s.drainers, "drainer"))
	if s.busy {
		settle, owned, what = settlingBusy, partitions, "busy: "+s.String()
		beside, err := b.startBusy(ctx, settle+lasting+b.duration)
		if err != nil {
			return r, err
		}
		defer beside.stop()
		target = beside.url
	}
	b.say("%s", what)
	backlog := s.rate * int((settle+lasting+b.duration)/time.Second)
	p, err := b.startPenstock(ctx, s.policy(policy, backlog, owned, target))
	if err != nil {
		return r, err
	}
	defer p.stop()
	if err := p.drain(ctx, drainerSpec{Policy: policy, Starts: backlog, Target: s.busy},
		s.drainers, owned); err != nil {
		return r, err
	}
	by, err := b.watchMachine(ctx, max(time.Second/time.Duration(s.rate), time.Millisecond),
		settle+b.duration)
	if err != nil {
		return r, err
	}
	defer by.process.Kill()
	if err := p.fill(ctx, policy, backlog, 1); err != nil {
		return r, err
	}
	if err := pass(ctx, settle); err != nil {
		return r, err
	}
	returned, err := p.returned(ctx)
	if err != nil {
		return r, err
	}
	from := monotonic()
	cpuFrom, cpuErr := p.cpu()
	if err := pass(ctx, b.duration); err != nil {
		return r, err
	}
	returnedTo, err := p.returned(ctx)
	if err != nil {
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
	at := instants(starts)
	wakes, err := by.wakes(ctx, p.dir)
	if err != nil {
		return r, err
	}
	began := max(1, len(within(at, from, to)))
	if s.busy {
		from = caughtUp(at, float64(s.rate), from, to)
	}
	r = rowOf(s, within(at, from, to), within(wakes, from, to), by.interval)
	if r.pace.starts < 2 {
		return r, fmt.Errorf("%d starts in %v", r.pace.starts, b.duration)
	}
	r.from, r.cpu = from, -1
	r.returned = float64(returnedTo-returned) / float64(began)
	if cpuErr == nil {
		r.cpu = (cpuTo - cpuFrom) * 1000 / time.Duration(began)
	}
	b.say("%s: %.3f/s, error %+.3f %%, most in 1 s %d, stalled %.2f %%", what, r.pace.measured,
		r.pace.err(float64(s.rate)), r.in1s, 100*r.stalled)
	return r, nil
}

func instants(starts []start) []int64 {
	at := make([]int64, len(starts))
	for i, s := range starts {
		at[i] = s.At
	}
	slices.Sort(at)
	return at
}

func rowOf(s setting, at, wakes []int64, interval time.Duration) row {
	rate := float64(s.rate)
	r := row{setting: s, at: at, pace: paceOf(at, rate)}
	g, late := gaps(at), lateness(at, rate)
	r.gap = [3]time.Duration{paper.Quantile(g, 0.5), paper.Quantile(g, 0.99), paper.Quantile(g, 1)}
	r.late = [2]time.Duration{paper.Quantile(late, 0.5), paper.Quantile(late, 0.99)}
	r.in1s, r.in100 = most(at, time.Second), most(at, 100*time.Millisecond)
	r.bystanderGap = paper.Quantile(gaps(wakes), 0.99)
	longest, all := stalls(wakes, interval)
	r.stall = longest
	if len(wakes) > 1 {
		from, to := wakes[0], wakes[len(wakes)-1]
		sum := lost(all, from, to).Seconds()
		r.stalled = sum / time.Duration(to-from).Seconds()
		r.net = r.pace.net(rate, sum)
	}
	return r
}

type bystander struct {
	process  *process
	interval time.Duration
}

func (b *bench) watchMachine(ctx context.Context,
	interval, about time.Duration) (*bystander, error) {
	p, err := b.startChild(ctx, "bystander", roleBystander,
		bystanderSpec{Interval: interval, Wakes: int((about + settling + lasting) / interval)})
	if err != nil {
		return nil, err
	}
	return &bystander{p, interval}, nil
}

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
