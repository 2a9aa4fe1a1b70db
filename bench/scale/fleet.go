package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/bench/usage"
	"github.com/penstock-mq/penstock/internal/proctest"
	"github.com/penstock-mq/penstock/workers"
)

const (
	fleetJobs = 100_000
	asking    = 4 * time.Second
	clients   = 64
)

// The first argument of this program as another process: one that drains the policy with a handler
// that does nothing, or one that acknowledges what it pulls of the bare server's stream.
const (
	asDrainer = "drainer"
	asPuller  = "puller"
)

func child(role, url string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	if role == asDrainer {
		d, err := workers.New(nc, workers.Options{Policies: []string{policy},
			Ready: func() { fmt.Println("ready") }})
		if err != nil {
			return err
		}
		d.Handle(policy, func(context.Context, workers.Job) error { return nil })
		return d.Run(context.Background())
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		consumer, err := js.Consumer(context.Background(), policy, worker.Durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			time.Sleep(time.Second)
			continue
		}
		if err == nil {
			_, err = consumer.Consume(func(m jetstream.Msg) { _ = m.Ack() },
				jetstream.PullMaxMessages(4096))
		}
		if err != nil {
			return err
		}
		select {}
	}
}

// fleet is processes of one kind.
type fleet []*proctest.Process

func (b *bench) fleet(ctx context.Context, n int, role, url string) (f fleet, err error) {
	for range n {
		p, err := proctest.Open(exec.Command(b.self, role, url))
		if err != nil {
			return f, err
		}
		f = append(f, p)
	}
	for _, p := range f {
		if _, err := p.Ready(ctx); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f fleet) kill() {
	for _, p := range f {
		p.Kill()
	}
}

// used is the processor time of all.
func (f fleet) used() (sum time.Duration, err error) {
	for _, p := range f {
		t, err := usage.CPU(p.Cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// drainers measures how fast n drainers empty a full queue of n partitions, beside n consumers of a
// stream, and what they take while nothing happens.
func (b *bench) drainers(ctx context.Context, n int) ([]figure, error) {
	server, err := b.natsServer(ctx)
	defer server.stop()
	if err != nil {
		return nil, err
	}
	admitter, err := b.admitterAt(ctx, server.url, unpaced(fleetJobs, n))
	defer admitter.stop()
	if err == nil {
		err = admitter.tell(ctx, "pause")
	}
	if err != nil {
		return nil, err
	}
	ours, err := b.drained(ctx, n, asDrainer, server, "penstock.jobs.", "PENSTOCK_"+policy,
		func() error { return admitter.tell(ctx, "resume") })
	if err != nil {
		return nil, err
	}
	plain, err := b.natsServer(ctx)
	defer plain.stop()
	if err == nil {
		err = plain.makeStream(ctx, policy)
	}
	if err != nil {
		return nil, err
	}
	stream, err := plain.js.Stream(ctx, policy)
	if err == nil {
		err = stream.DeleteConsumer(ctx, worker.Durable)
	}
	if err != nil {
		return nil, err
	}
	bare, err := b.drained(ctx, n, asPuller, plain, "jobs.", policy, func() error {
		_, err := stream.CreateConsumer(ctx, worker)
		return err
	})
	return []figure{
		{"full queue to empty", "jobs/s", ours[0], bare[0]},
		{"processor time of all", "ms/1000 jobs", ours[1], bare[1]},
		{"processor time of the server", "ms/1000 jobs", ours[2], bare[2]},
		{"idle, all", "% of a core", ours[3], bare[3]},
		{"idle, the server", "% of a core", ours[4], bare[4]},
	}, err
}

// during returns the processor time that each fleet takes while something is done, and how long
// that is.
func during(do func() error, fleets ...fleet) (cpu []time.Duration, took time.Duration, err error) {
	for _, f := range fleets {
		used, err := f.used()
		if err != nil {
			return nil, 0, err
		}
		cpu = append(cpu, -used)
	}
	from := time.Now()
	if err := do(); err != nil {
		return nil, 0, err
	}
	took = time.Since(from)
	for i, f := range fleets {
		used, err := f.used()
		if err != nil {
			return nil, 0, err
		}
		cpu[i] += used
	}
	return cpu, took, nil
}

// drained returns jobs a second, processor time in ms per 1000 of them, of the fleet and of the
// server, and what share of a core both take while nothing happens.
func (b *bench) drained(ctx context.Context, n int, role string, server *node, prefix,
	stream string, resume func() error) (measured [5]float64, err error) {
	drainers, err := b.fleet(ctx, n, role, server.url)
	defer drainers.kill()
	if err == nil {
		err = pass(ctx, 6*time.Second) // until they share the partitions
	}
	if err != nil {
		return measured, err
	}
	cpu, took, err := during(func() error { return pass(ctx, b.idleFor/2) }, drainers,
		fleet{server.Process})
	if err != nil {
		return measured, err
	}
	measured[3], measured[4] = 100*cpu[0].Seconds()/took.Seconds(),
		100*cpu[1].Seconds()/took.Seconds()
	if _, err := server.fill(ctx, prefix, fewKeys, fleetJobs); err != nil {
		return measured, err
	}
	cpu, took, err = during(func() error {
		if err := resume(); err != nil {
			return err
		}
		return server.until(ctx, glance, "the queue is empty", func() bool {
			s, err := server.js.Stream(ctx, stream)
			return err == nil && s.CachedInfo().State.Msgs == 0
		})
	}, drainers, fleet{server.Process})
	if err != nil {
		return measured, err
	}
	measured[0] = fleetJobs / took.Seconds()
	measured[1], measured[2] = cpu[0].Seconds()*1e6/fleetJobs, cpu[1].Seconds()*1e6/fleetJobs
	return measured, nil
}

// admitters measures submissions over NATS to n admitters, beside plain publishes.
func (b *bench) admitters(ctx context.Context, n int) ([]figure, error) {
	server, err := b.natsServer(ctx)
	defer server.stop()
	if err != nil {
		return nil, err
	}
	var admitters fleet
	for range n {
		a, err := b.admitterAt(ctx, server.url, unpaced(10_000_000, 1))
		defer a.stop()
		if err != nil {
			return nil, err
		}
		admitters = append(admitters, a.Process)
	}
	ours, err := asked(ctx, server, admitters, submit(server, policy))
	if err != nil {
		return nil, err
	}
	plain, err := b.natsServer(ctx)
	defer plain.stop()
	if err == nil {
		err = plain.makeStream(ctx, policy)
	}
	if err != nil {
		return nil, err
	}
	bare, err := asked(ctx, plain, nil, publish(ctx, plain, policy))
	return []figure{
		{"submissions", "/s", ours[0], bare[0]},
		{"p99", "ms", ours[1], bare[1]},
		{"processor time of all", "ms/1000 jobs", ours[2], math.NaN()},
		{"processor time of the server", "ms/1000 jobs", ours[3], bare[3]},
	}, err
}

// submit submits a job to a policy over NATS; publish publishes to a stream.
func submit(n *node, policy string) func(key string) error {
	return func(key string) error {
		m, err := n.nc.Request("penstock.submit."+policy+"."+key, body, patience)
		if err == nil && m.Header.Get("Penstock-Status") >= "3" {
			err = fmt.Errorf("a submission is answered %s", m.Header.Get("Penstock-Status"))
		}
		return err
	}
}

func publish(ctx context.Context, n *node, policy string) func(key string) error {
	return func(key string) error {
		_, err := n.js.Publish(ctx, "jobs."+policy+"."+key, body)
		return err
	}
}

// asked has clients ask for a while, and returns answers a second, the p99 of an answer in ms, and
// processor time per 1000, of the admitters and of the server.
func asked(ctx context.Context, server *node, admitters fleet, ask func(key string) error) (
	measured [4]float64, err error) {
	each, errs := make([][]time.Duration, clients), make([]error, clients)
	cpu, _, err := during(func() error {
		var all sync.WaitGroup
		end := time.Now().Add(asking)
		for i := range clients {
			all.Go(func() {
				for from := time.Now(); from.Before(end) && ctx.Err() == nil; {
					if errs[i] = ask(fmt.Sprintf("key-%d", i)); errs[i] != nil {
						return
					}
					now := time.Now()
					each[i] = append(each[i], now.Sub(from))
					from = now
				}
			})
		}
		all.Wait()
		return errors.Join(append(errs, ctx.Err())...)
	}, admitters, fleet{server.Process})
	if err != nil {
		return measured, err
	}
	took := slices.Concat(each...)
	slices.Sort(took)
	n := float64(len(took))
	return [4]float64{n / asking.Seconds(), float64(paper.Quantile(took, 0.99)) / 1e6,
		cpu[0].Seconds() * 1e6 / n, cpu[1].Seconds() * 1e6 / n}, nil
}
