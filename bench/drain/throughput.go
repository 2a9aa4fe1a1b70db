package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/bench/usage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

const (
	throughputKeys = 1000
	samples        = 2000
	pauseBetween   = 2 * time.Millisecond
	// timesRequest bounds the p99 of publish-to-start as a multiple of a request's p99.
	timesRequest = 5
	// littleMemory holds few jobs whole; the others wait deep and are read again.
	littleMemory = 16 << 20
)

type throughputSpec struct {
	Jobs       int
	Partitions int
	Memory     int64
	Profile    string
	Raw, Idle  bool
}

type throughputResult struct {
	Drained, Raw   float64 // jobs per second, from a full queue to acknowledged
	CPU            time.Duration
	Start, Request [2]time.Duration // p50 and p99 of publish-to-start and of request/reply
}

func (b *bench) throughput(ctx context.Context) (figures []figure, err error) {
	for _, spec := range []throughputSpec{{Partitions: partitions, Raw: true, Idle: true},
		{Partitions: shared}, {Partitions: partitions, Memory: littleMemory}} {
		main := len(figures) == 0
		spec.Jobs = b.jobs
		what := fmt.Sprintf("%d jobs of %d keys, %s", spec.Jobs, throughputKeys,
			paper.Plural(spec.Partitions, "partition"))
		if spec.Memory != 0 {
			what += fmt.Sprintf(", nearly all of them deep in %d MiB", spec.Memory>>20)
		}
		what += ": "
		b.say("throughput: %s", what)
		spec.Profile = b.profileFile(fmt.Sprintf("throughput-%d-%d.cpu", spec.Partitions,
			spec.Memory>>20))
		r, err := b.throughputOf(ctx, spec)
		if err != nil {
			return nil, err
		}
		drained := perSecond("throughput", what+"full queue to acknowledged", r.Drained)
		if main {
			drained = drained.atLeast(r.Raw / 2)
		}
		figures = append(figures, drained)
		if r.CPU >= 0 {
			figures = append(figures, processorTime("throughput", what, r.CPU, spec.Jobs))
		}
		if !main {
			continue
		}
		figures = append(figures,
			perSecond("throughput",
				fmt.Sprintf("the same %d messages, raw pull and acknowledge", spec.Jobs), r.Raw),
			milliseconds("throughput", "idle: request/reply, p50", r.Request[0]),
			milliseconds("throughput", "idle: request/reply, p99", r.Request[1]),
			milliseconds("throughput", "idle: publish to start, p50", r.Start[0]),
			milliseconds("throughput", "idle: publish to start, p99", r.Start[1]).
				atMost(timesRequest*float64(r.Request[1])/1e6))
	}
	return figures, nil
}

func (b *bench) throughputOf(ctx context.Context,
	spec throughputSpec) (r throughputResult, err error) {
	p, err := b.startChild(ctx, "throughput", roleThroughput, spec)
	if err != nil {
		return r, err
	}
	defer p.Kill()
	var text string
	err = until(ctx, 5*patience, "the throughput is measured", func() (bool, error) {
		var ok bool
		if text, ok = p.heard("result"); ok {
			return true, nil
		}
		select {
		case <-p.Exited:
			return false, fmt.Errorf("%s\n%s", p.Cmd.ProcessState, p.Log)
		default:
			return false, nil
		}
	})
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("read the result: %w", err)
	}
	return r, nil
}

func runThroughput(spec throughputSpec) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_ = obey(nil)
		cancel()
	}()
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	fmt.Println("ready")
	t := &throughputRun{throughputSpec: spec, server: server}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	defer t.nc.Close()
	r, err := t.measure(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	fmt.Printf("result %s\n", text)
	return nil
}

type throughputRun struct {
	throughputSpec
	server  *embedded.Server
	nc      *nats.Conn
	js      jetstream.JetStream
	refused chan error
	broker  *jet.Broker
}

const (
	drainedPolicy = "drained"
	rawPolicy     = "raw"
)

func (t *throughputRun) prepare(ctx context.Context) (err error) {
	if t.nc, err = t.server.Connect(); err != nil {
		return err
	}
	if t.js, t.refused, err = newPublisher(t.nc); err != nil {
		return err
	}
	if t.broker, err = jet.NewBroker(t.nc, jet.Options{}); err != nil {
		return err
	}
	if err := t.broker.Setup(ctx); err != nil {
		return err
	}
	for _, name := range []string{drainedPolicy, rawPolicy} {
		p := policy.Policy{
			Name: name,
			Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 1_000_000_000,
				Window: policy.Duration(time.Hour)},
			Queue: &policy.Queue{Capacity: int64(t.Jobs)}, Partitions: t.Partitions,
		}.WithDefaults()
		if _, err := store.New(t.broker, nil).Put(ctx, p); err != nil {
			return err
		}
		if err := t.broker.Apply(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (t *throughputRun) fill(ctx context.Context, policy string) error {
	return fill(ctx, t.js, t.refused, func(k queue.Key) string {
		return t.broker.Names().Admitted(policy, k)
	}, t.Jobs, throughputKeys)
}

func (t *throughputRun) measure(ctx context.Context) (r throughputResult, err error) {
	if t.Raw {
		if err := t.fill(ctx, rawPolicy); err != nil {
			return r, err
		}
		if r.Raw, err = t.raw(ctx); err != nil {
			return r, err
		}
	}
	if err := t.fill(ctx, drainedPolicy); err != nil {
		return r, err
	}
	return t.drained(ctx, r)
}

func (t *throughputRun) raw(ctx context.Context) (float64, error) {
	nc, err := t.server.Connect()
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("use JetStream: %w", err)
	}
	consumer, err := js.CreateConsumer(ctx, t.broker.Names().
		Stream(rawPolicy), jetstream.ConsumerConfig{
		Durable: "raw", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1,
		MemoryStorage: true})
	if err != nil {
		return 0, fmt.Errorf("create a consumer: %w", err)
	}
	begin := time.Now()
	messages, err := consumer.Messages(jetstream.PullMaxMessages(4096))
	if err != nil {
		return 0, fmt.Errorf("pull: %w", err)
	}
	defer messages.Stop()
	for range t.Jobs {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err == nil {
			err = m.Ack()
		}
		if err != nil {
			return 0, fmt.Errorf("pull and acknowledge: %w", err)
		}
	}
	if err := t.emptied(ctx, rawPolicy); err != nil {
		return 0, err
	}
	return float64(t.Jobs) / time.Since(begin).Seconds(), nil
}

func (t *throughputRun) emptied(ctx context.Context, policy string) error {
	return until(ctx, 3*patience, "the queue is empty", func() (bool, error) {
		n, err := t.broker.Depth(ctx, policy)
		return n == 0, err
	})
}

func (t *throughputRun) drained(ctx context.Context, r throughputResult) (throughputResult, error) {
	nc, err := t.server.Connect()
	if err != nil {
		return r, err
	}
	defer nc.Close()
	d, err := workers.New(nc, workers.Options{Policies: []string{drainedPolicy},
		Memory: t.Memory})
	if err != nil {
		return r, err
	}
	first := make(chan time.Time, 1)
	single := make(chan time.Time, 1)
	alone := false
	d.Handle(drainedPolicy, func(_ context.Context, job workers.Job) error {
		if alone {
			single <- job.Started
			return nil
		}
		select {
		case first <- job.Started:
		default:
		}
		return nil
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	endProfile, err := profileProcessor(t.Profile)
	if err != nil {
		return r, err
	}
	used, usedErr := usage.CPU(os.Getpid())
	go func() { ended <- d.Run(ctx) }()
	if err := t.emptied(ctx, drainedPolicy); err != nil {
		return r, err
	}
	r.Drained = float64(t.Jobs) / time.Since(<-first).Seconds()
	if err := endProfile(); err != nil {
		return r, fmt.Errorf("write the profile: %w", err)
	}
	r.CPU = -1
	if now, err := usage.CPU(os.Getpid()); usedErr == nil && err == nil {
		r.CPU = now - used
	}
	if t.Idle {
		alone = true
		if r, err = t.idle(ctx, nc, single, r); err != nil {
			return r, err
		}
	}
	stop()
	return r, <-ended
}

// idle takes turns: a request, and a job to an idle queue, between the same two connections.
func (t *throughputRun) idle(ctx context.Context, other *nats.Conn, started chan time.Time,
	r throughputResult) (throughputResult, error) {
	const subject = "bench.echo"
	echo, err := other.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(m.Data) })
	if err != nil {
		return r, fmt.Errorf("answer requests: %w", err)
	}
	defer func() { _ = echo.Unsubscribe() }()
	if err := other.Flush(); err != nil {
		return r, fmt.Errorf("answer requests: %w", err)
	}
	body := mark{}.body()
	var starts, requests []time.Duration
	for i := range samples {
		begin := time.Now()
		if _, err := t.nc.RequestWithContext(ctx, subject, body); err != nil {
			return r, fmt.Errorf("request: %w", err)
		}
		requests = append(requests, time.Since(begin))
		if err := pass(ctx, pauseBetween); err != nil {
			return r, err
		}
		begin = time.Now()
		if err := t.nc.Publish(t.broker.Names().Admitted(drainedPolicy,
			queue.Key(keyName(i%throughputKeys))), body); err != nil {
			return r, fmt.Errorf("publish: %w", err)
		}
		select {
		case at := <-started:
			starts = append(starts, at.Sub(begin))
		case <-time.After(patience):
			return r, errors.New("a job did not start")
		case <-ctx.Done():
			return r, ctx.Err()
		}
		if err := pass(ctx, pauseBetween); err != nil {
			return r, err
		}
	}
	slices.Sort(starts)
	slices.Sort(requests)
	r.Start = [2]time.Duration{paper.Quantile(starts, 0.5), paper.Quantile(starts, 0.99)}
	r.Request = [2]time.Duration{paper.Quantile(requests, 0.5), paper.Quantile(requests, 0.99)}
	return r, nil
}
