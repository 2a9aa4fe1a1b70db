package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/bench/usage"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

const (
	depthPolicy = "deep"
	depthKeys   = 1000
	depthBytes  = 1 << 10
	shallowJobs = 10_000
	watchFor    = 15 * time.Second
	// mostLate is the goal for the p99 of lateness, if it is not higher with few jobs.
	mostLate = 20 * time.Millisecond
	// madeUp is the lateness that a bucket makes up in a second.
	madeUp     = 4500 * time.Microsecond
	mostDepth  = 10_000_000
	depthLease = 5 * time.Second
)

const filling = "filling"

const (
	groupDeep uint32 = iota
	groupProbe
)

type depths struct {
	*penstock
	spec    drainerSpec
	begin   int64
	mu      sync.Mutex
	samples []sample
	phases  []phase
	starts  []start
	former  []start
	filled  int
	beside  *bystander

	shallowP99 [2]time.Duration
}

type sample struct {
	at              int64
	server, drainer float64
	heap            float64
	jobs            float64
}

type phase struct {
	name     string
	from, to int64
	acks     []time.Duration // from publish to acknowledgement, sorted
}

// depth compares a policy's memory, lateness, submissions, questions and takeover with a deep
// backlog and with few jobs. A thousand keys start one job a second each.
func (b *bench) depth(ctx context.Context) (figures []figure, err error) {
	b.say("depth: %d jobs of %d bytes, %d keys at 1/s", b.deep, depthBytes, depthKeys)
	p, err := b.startPenstock(ctx, fmt.Sprintf(
		"{name: %s, algorithm: leaking_bucket, outflow: 1/s, capacity: %d, max_jobs: %d}",
		depthPolicy, mostDepth, mostDepth))
	if err != nil {
		return nil, err
	}
	defer p.stop()
	d := &depths{penstock: p, begin: monotonic(), spec: drainerSpec{Policy: depthPolicy,
		Starts: depthKeys * 600, Watch: true, Memory: b.budget}}
	if err := p.drain(ctx, d.spec, 1, partitions); err != nil {
		return nil, err
	}
	if d.beside, err = b.watchMachine(ctx, time.Millisecond, 20*time.Minute); err != nil {
		return nil, err
	}
	defer d.beside.process.Kill()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go d.watch(watching)
	for _, step := range []func(context.Context) ([]figure, error){
		d.shallow, d.fillUp, d.takeover, d.deep, d.questions,
	} {
		f, err := step(ctx)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	stop()
	pull, err := d.rawPull(ctx)
	if err != nil {
		return figures, err
	}
	for i, f := range figures {
		if f.what == firstStarts {
			figures[i] = f.atMost((depthLease + 2*time.Second).Seconds() + pull.Seconds())
		}
	}
	figures = append(figures, figure{part: "depth", what: "raw pull of the backlog",
		value: pull.Seconds(), unit: "s"})
	if b.out == "" {
		return figures, nil
	}
	return figures, d.draw(filepath.Join(b.out, b.depthPage()+".svg"))
}

const usualDepth = 1_000_000

func (b *bench) depthPage() string {
	if b.deep == usualDepth {
		return "bench-depth"
	}
	return fmt.Sprintf("bench-depth-%d", b.deep)
}

func (b *bench) depthCommand() string {
	if b.deep == usualDepth {
		return "bench-depth"
	}
	return fmt.Sprintf("bench-depth JOBS=%d", b.deep)
}

func (d *depths) watch(ctx context.Context) {
	for pass(ctx, time.Second) == nil {
		s := sample{at: monotonic()}
		s.server, _ = usage.Memory(d.admitter.Cmd.Process.Pid)
		d.mu.Lock()
		if len(d.drainers) > 0 {
			s.drainer, _ = usage.Memory(d.drainers[0].Cmd.Process.Pid)
			text, _ := d.drainers[0].heard("live")
			s.heap, _ = strconv.ParseFloat(text, 64)
		}
		d.mu.Unlock()
		n, _ := d.broker.Depth(ctx, depthPolicy)
		s.jobs = float64(n)
		d.mu.Lock()
		d.samples = append(d.samples, s)
		d.mu.Unlock()
	}
}

func (d *depths) shallow(ctx context.Context) ([]figure, error) {
	if err := d.add(ctx, shallowJobs*2); err != nil {
		return nil, err
	}
	return d.observe(ctx, fmt.Sprintf("%s jobs", paper.Grouped(shallowJobs)), false)
}

func (d *depths) deep(ctx context.Context) ([]figure, error) {
	if err := d.allArrived(ctx); err != nil {
		return nil, err
	}
	figures, err := d.observe(ctx, fmt.Sprintf("%s jobs", paper.Grouped(d.b.deep)), true)
	if err != nil {
		return nil, err
	}
	for _, ph := range d.phases {
		if ph.name == filling {
			late, _ := lateIn(d.starts, ph, nil)
			figures = append(figures,
				milliseconds("depth", "while they are submitted: lateness, p50",
					paper.Quantile(late, 0.5)),
				milliseconds("depth", "while they are submitted: lateness, p99",
					paper.Quantile(late, 0.99)))
		}
	}
	heap, err := d.heap(ctx)
	if err != nil {
		return nil, err
	}
	server, err := usage.Memory(d.admitter.Cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	return append(figures,
		figure{part: "depth", what: "heap of the drainer", value: heap / (1 << 20),
			unit: "MiB"}.atMost(1024),
		figure{part: "depth", what: "heap of the drainer per job",
			value: heap / float64(d.b.deep), unit: "bytes"},
		figure{part: "depth", what: "memory of the server per job",
			value: server / float64(d.b.deep), unit: "bytes"}), nil
}

func (d *depths) look(ctx context.Context) error {
	starts, err := d.penstock.starts(ctx)
	d.starts = append(slices.Clone(d.former), starts...)
	return err
}

func (d *depths) add(ctx context.Context, n int) error {
	subjects := make([]string, depthKeys)
	for i := range subjects {
		subjects[i] = d.broker.Names().Jobs(depthPolicy, queue.Key(keyName(i)))
	}
	body := make([]byte, depthBytes)
	for range n {
		m := mark{Group: groupDeep, Key: uint32(d.filled % depthKeys),
			Number: uint32(d.filled / depthKeys), Published: monotonic()}
		copy(body, m.body())
		if _, err := d.js.PublishAsync(subjects[m.Key], slices.Clone(body),
			jetstream.WithStallWait(patience)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		d.filled++
	}
	return stored(ctx, d.js, d.refused)
}

func (d *depths) fillUp(ctx context.Context) ([]figure, error) {
	from, n := monotonic(), d.b.deep-d.filled
	if err := d.add(ctx, n); err != nil {
		return nil, err
	}
	took := time.Duration(monotonic() - from)
	d.phases = append(d.phases, phase{name: filling, from: from, to: monotonic()})
	if err := d.allArrived(ctx); err != nil {
		return nil, err
	}
	return []figure{perSecond("depth", fmt.Sprintf("submissions of %s jobs",
		paper.Grouped(d.b.deep)), float64(n)/took.Seconds())}, nil
}

func (d *depths) allArrived(ctx context.Context) error {
	ack, err := d.js.Publish(ctx, d.broker.Names().Jobs(depthPolicy, "last"),
		mark{Group: groupProbe}.body())
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return until(ctx, 10*patience, "all has arrived", func() (bool, error) {
		a, err := d.broker.AskValve(ctx, depthPolicy, 0,
			job.Question{Op: job.OpExpect, Jobs: []uint64{ack.Sequence}})
		return err == nil && len(a.Starts) == 1 && a.Starts[0].Known, nil
	})
}

func (d *depths) observe(ctx context.Context, name string, judged bool) ([]figure, error) {
	d.b.say("depth: watching %s", name)
	ph := phase{name: name, from: monotonic()}
	for i := 0; monotonic()-ph.from < int64(watchFor); i++ {
		next := time.Now().Add(10 * time.Millisecond)
		m := mark{Group: groupProbe, Number: uint32(i), Published: monotonic()}
		subject := d.broker.Names().Jobs(depthPolicy,
			queue.Key(fmt.Sprintf("probe-%d-%d", len(d.phases), i)))
		if _, err := d.js.Publish(ctx, subject, m.body()); err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		ph.acks = append(ph.acks, time.Duration(monotonic()-m.Published))
		if err := d.keepTime(ctx, next); err != nil {
			return nil, err
		}
	}
	ph.to = monotonic()
	slices.Sort(ph.acks)
	d.phases = append(d.phases, ph)
	if err := d.look(ctx); err != nil {
		return nil, err
	}
	wakes, err := d.beside.wakes(ctx, d.dir)
	if err != nil {
		return nil, err
	}
	longest, _ := stalls(within(wakes, ph.from, ph.to), d.beside.interval)
	_, all := stalls(wakes, d.beside.interval)
	late, delays := lateIn(d.starts, ph, nil)
	net, _ := lateIn(d.starts, ph, all)
	figures := []figure{
		milliseconds("depth", name+": a submission, p50", paper.Quantile(ph.acks, 0.5)),
		milliseconds("depth", name+": a submission, p99", paper.Quantile(ph.acks, 0.99)),
		milliseconds("depth", name+": start delay of idle keys, p99", paper.Quantile(delays, 0.99)),
		milliseconds("depth", name+": lateness, p50", paper.Quantile(late, 0.5)),
		milliseconds("depth", name+": lateness, p99", paper.Quantile(late, 0.99)),
		milliseconds("depth", name+": lateness, p99 net of stalls", paper.Quantile(net, 0.99)),
		milliseconds("depth", name+": lateness, longest", paper.Quantile(late, 1)),
		milliseconds("depth", name+": bystander's longest stall", longest),
	}
	for i, late := range [][]time.Duration{late, net} {
		p99, f := paper.Quantile(late, 0.99), &figures[4+i]
		if judged {
			*f = f.atMost(float64(max(mostLate, d.shallowP99[i]*3/2).Milliseconds()))
		}
		d.shallowP99[i] = p99
	}
	return figures, nil
}

// lateIn returns the lateness of starts in a phase, from the key's first start and without stalls,
// and the delays of idle keys' jobs, both sorted.
func lateIn(starts []start, ph phase, stalls []stall) (late, delays []time.Duration) {
	for _, s := range latenesses(starts, ph.from, ph.to, stalls) {
		late = append(late, s.late)
	}
	for _, s := range starts {
		if s.Group == groupProbe && s.Published >= ph.from && s.Published < ph.to {
			delays = append(delays, time.Duration(s.At-s.Published))
		}
	}
	slices.Sort(late)
	slices.Sort(delays)
	return late, delays
}

// awake is the first instant from at that no stall covers.
func awake(stalls []stall, at int64) int64 {
	i, _ := slices.BinarySearchFunc(stalls, at, func(s stall, t int64) int {
		return cmp.Compare(s.to, t+1)
	})
	if i < len(stalls) && stalls[i].from <= at {
		return stalls[i].to
	}
	return at
}

type lateStart struct {
	at   int64
	late time.Duration
}

// latenesses returns the lateness of each start in a period. A bucket that makes up for earlier
// lateness, after a takeover for half an hour, starts as fast as its peak allows. So a key is
// judged by that schedule or by its outflow's, whichever fits better.
func latenesses(starts []start, from, to int64, stalls []stall) (all []lateStart) {
	of := map[uint32][]start{}
	for _, s := range starts {
		if s.Group == groupDeep && s.At >= from && s.At < to {
			of[s.Key] = append(of[s.Key], s)
		}
	}
	for _, starts := range of {
		slices.SortFunc(starts, func(a, b start) int { return cmp.Compare(a.Number, b.Number) })
		late, sum := behind(starts, time.Second, stalls)
		if sped, less := behind(starts, time.Second-madeUp, stalls); less < sum {
			late = sped
		}
		all = append(all, late...)
	}
	return all
}

// behind returns the lateness of a key's starts, and their sum, by the earliest schedule of one
// start an interval that no start precedes. A stall delays starts until its delay is made up.
func behind(starts []start, interval time.Duration, stalls []stall) (all []lateStart,
	sum time.Duration) {
	due := func(s start) int64 { return int64(s.Number) * int64(interval) }
	origin := starts[0].At - due(starts[0])
	for _, s := range starts {
		origin = min(origin, s.At-due(s))
	}
	excused := int64(0)
	for _, s := range starts {
		due := origin + due(s)
		excused = awake(stalls, due+max(0, excused-int64(madeUp))) - due
		late := time.Duration(max(0, s.At-due-excused))
		all, sum = append(all, lateStart{s.At, late}), sum+late
	}
	return all, sum
}

func (d *depths) questions(ctx context.Context) (figures []figure, err error) {
	for _, q := range []struct {
		what string
		job.Question
	}{
		{"the 100 deepest keys", job.Question{Op: job.OpBuckets, Limit: 100}},
		{"how a key stands", job.Question{Op: job.OpBucket, Key: "key-1"}},
		{"cancelling a job", job.Question{Op: job.OpCancel, Jobs: []uint64{uint64(d.b.deep / 2)}}},
		{"purging a key", job.Question{Op: job.OpPurge, Key: "key-2"}},
	} {
		from := time.Now()
		var a job.Answer
		if err := until(ctx, patience, q.what, func() (bool, error) {
			var err error // garbage collection of the server may delay the valve
			a, err = d.broker.AskValve(ctx, depthPolicy, 0, q.Question)
			return err == nil, nil
		}); err != nil {
			return figures, err
		}
		if q.Op == job.OpPurge || q.Op == job.OpCancel {
			d.b.say("depth: %s removed %d", q.what, a.Removed)
		}
		figures = append(figures, milliseconds("depth", q.what, time.Since(from)))
	}
	return figures, nil
}

const firstStarts = "takeover after a crash: until all keys have started a job"

func (d *depths) takeover(ctx context.Context) ([]figure, error) {
	d.b.say("depth: takeover")
	err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	d.former = d.starts
	from := monotonic()
	d.mu.Lock()
	d.dismiss()
	d.mu.Unlock()
	if err := d.begun(ctx); err != nil {
		return nil, err
	}
	if err := until(ctx, 5*patience, "all keys have started a job", func() (bool, error) {
		count, err := d.drainers[0].ask(ctx, "keys", "")
		n, _ := strconv.Atoi(count)
		return n >= depthKeys, err
	}); err != nil {
		return nil, err
	}
	to := monotonic()
	d.phases = append(d.phases, phase{name: "takeover", from: from, to: to})
	return []figure{{part: "depth", what: firstStarts,
		value: time.Duration(to - from).Seconds(), unit: "s"}}, nil
}

func (d *depths) begun(ctx context.Context) error {
	d.spec.URL = d.url
	next, err := d.b.startChild(ctx, "successor", roleDrainer, d.spec)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drainers = append(d.drainers, next)
	return nil
}

func (d *depths) rawPull(ctx context.Context) (took time.Duration, err error) {
	d.dismiss()
	stream, err := d.js.Stream(ctx, d.broker.Names().Stream(depthPolicy))
	if err != nil {
		return 0, fmt.Errorf("find the stream: %w", err)
	}
	for name := range stream.ConsumerNames(ctx).Name() {
		if err := stream.DeleteConsumer(ctx, name); err != nil {
			return 0, fmt.Errorf("delete the drainer's consumer: %w", err)
		}
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, MemoryStorage: true,
		AckWait: 24 * time.Hour,
	})
	if err != nil {
		return 0, fmt.Errorf("make a consumer: %w", err)
	}
	from, done := time.Now(), make(chan struct{}, 1)
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil && meta.NumPending == 0 {
			select {
			case done <- struct{}{}:
			default:
			}
		}
	}, jetstream.PullMaxMessages(4096))
	if err != nil {
		return 0, fmt.Errorf("pull: %w", err)
	}
	defer consuming.Stop()
	select {
	case <-done:
		return time.Since(from), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
