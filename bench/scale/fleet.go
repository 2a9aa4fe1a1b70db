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
	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/workers"
)

const (
	fleetJobs = 100_000
	asking    = 4 * time.Second
	clients   = 64
)

// Roles, as first arguments: a drainer with an empty handler, and a consumer of the bare server's
// stream.
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

type fleet []*proctest.Process

func (b *bench) fleet(n int, role, url string) (f fleet) {
	for range n {
		f = append(f, get(proctest.Open(exec.Command(b.self, role, url))))
		b.processes = append(b.processes, f[len(f)-1])
	}
	for _, p := range f {
		get(p.Ready(b.ctx))
	}
	return f
}

// in seconds
func (f fleet) used() (sum float64) {
	for _, p := range f {
		sum += get(usage.CPU(p.Cmd.Process.Pid)).Seconds()
	}
	return sum
}

func during(do func(), fleets ...fleet) (cpu []float64, took float64) {
	for _, f := range fleets {
		cpu = append(cpu, -f.used())
	}
	from := time.Now()
	do()
	took = time.Since(from).Seconds()
	for i, f := range fleets {
		cpu[i] += f.used()
	}
	return cpu, took
}

// drainers compares n drainers that empty a queue of n partitions to n consumers, busy and idle.
func (b *bench) drainers(n int) []figure {
	server := b.natsServer()
	admitter := b.admitterAt(server.url, 1, false, unpaced(fleetJobs, n))
	admitter.ready()
	must(admitter.tell("pause"))
	ours := b.drained(n, asDrainer, server, "penstock.jobs.", "PENSTOCK_"+policy,
		func() { must(admitter.tell("resume")) })
	plain := b.natsServer()
	must(plain.makeStream(policy))
	stream := get(plain.js.Stream(b.ctx, policy))
	must(stream.DeleteConsumer(b.ctx, worker.Durable))
	bare := b.drained(n, asPuller, plain, "jobs.", policy,
		func() { get(stream.CreateConsumer(b.ctx, worker)) })
	figures := []figure{
		{what: "full queue to empty", unit: "jobs/s"},
		{what: "processor time of all", unit: "ms/1000 jobs"},
		{what: "processor time of the server", unit: "ms/1000 jobs"},
		{what: "idle, all", unit: "% of a core"},
		{what: "idle, the server", unit: "% of a core"},
	}
	for i := range figures {
		figures[i].ours, figures[i].bare = ours[i], bare[i]
	}
	return figures
}

// drained returns jobs per second, processor time in ms per 1000 of the fleet and of the server,
// and their share of a core at rest.
func (b *bench) drained(n int, role string, server *node, prefix, stream string,
	resume func()) [5]float64 {
	drainers := b.fleet(n, role, server.url)
	b.pass(6 * time.Second)
	idle, all := during(func() { b.pass(b.idleFor / 2) }, drainers, fleet{server.Process})
	server.fill(prefix, fewKeys, fleetJobs)
	cpu, took := during(func() {
		resume()
		server.until("the queue is empty", func() error {
			s, err := server.js.Stream(b.ctx, stream)
			if err == nil && s.CachedInfo().State.Msgs > 0 {
				err = fmt.Errorf("%d wait", s.CachedInfo().State.Msgs)
			}
			return err
		})
	}, drainers, fleet{server.Process})
	return [5]float64{fleetJobs / took, cpu[0] * 1e6 / fleetJobs, cpu[1] * 1e6 / fleetJobs,
		100 * idle[0] / all, 100 * idle[1] / all}
}

func (b *bench) admitters(n int) []figure {
	server := b.natsServer()
	var admitters fleet
	for range n {
		a := b.admitterAt(server.url, 1, false, unpaced(10_000_000, 1))
		a.ready()
		admitters = append(admitters, a.Process)
	}
	ours := asked(server, admitters, submit(server, policy))
	plain := b.natsServer()
	must(plain.makeStream(policy))
	bare := asked(plain, nil, publish(plain, policy))
	return []figure{
		{"submissions", "/s", ours[0], bare[0]},
		{"p99", "ms", ours[1], bare[1]},
		{"processor time of all", "ms/1000 jobs", ours[2], math.NaN()},
		{"processor time of the server", "ms/1000 jobs", ours[3], bare[3]},
	}
}

func submit(n *node, policy string) func(key string) error {
	return func(key string) error {
		m, err := n.nc.Request("penstock.submit."+policy+"."+key, body, patience)
		if err == nil && m.Header.Get("Penstock-Status") >= "3" {
			err = fmt.Errorf("a submission is answered %s", m.Header.Get("Penstock-Status"))
		}
		return err
	}
}

func publish(n *node, policy string) func(key string) error {
	return func(key string) error {
		_, err := n.js.Publish(n.b.ctx, "jobs."+policy+"."+key, body)
		return err
	}
}

// asked returns answers per second, the p99 in ms, and processor time per 1000 of the admitters and
// of the server.
func asked(server *node, admitters fleet, ask func(key string) error) [4]float64 {
	each, errs := make([][]time.Duration, clients), make([]error, clients)
	cpu, _ := during(func() {
		var all sync.WaitGroup
		end := time.Now().Add(asking)
		for i := range clients {
			all.Go(func() {
				for from := time.Now(); from.Before(end) && errs[i] == nil; {
					errs[i] = errors.Join(ask(fmt.Sprintf("key-%d", i)), server.b.ctx.Err())
					now := time.Now()
					each[i] = append(each[i], now.Sub(from))
					from = now
				}
			})
		}
		all.Wait()
	}, admitters, fleet{server.Process})
	must(errors.Join(errs...))
	took := slices.Concat(each...)
	slices.Sort(took)
	n := float64(len(took))
	return [4]float64{n / asking.Seconds(), float64(paper.Quantile(took, 0.99)) / 1e6,
		cpu[0] * 1e6 / n, cpu[1] * 1e6 / n}
}
