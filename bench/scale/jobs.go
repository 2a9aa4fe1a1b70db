package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

const (
	// policy has the waiting jobs, unpaced; the bare server's stream has its name.
	policy     = "p"
	fewKeys    = 1000
	jobsPerKey = 2
	inFlight   = 8192
)

var body = make([]byte, 128)

func unpaced(jobs, partitions int) string {
	return fmt.Sprintf("{name: %s, algorithm: leaking_bucket, outflow: 1000000/s, capacity: %d, "+
		"max_jobs: %d, partitions: %d}", policy, jobs, jobs, partitions)
}

func (b *bench) keys(n int) []figure    { return b.backlog(n, jobsPerKey*n) }
func (b *bench) waiting(n int) []figure { return b.backlog(fewKeys, n) }

func (b *bench) backlog(keys, jobs int) []figure {
	ours := b.admitter(strings.TrimSuffix(unpaced(10_000_000, 1), "}") +
		", target: {http: {url: \"http://127.0.0.1:9/\"}}}")
	ours.drains(1)
	must(ours.tell("pause"))
	bare := b.natsServer()
	must(bare.makeStream(policy))
	published := ours.fill("penstock.jobs.", keys, jobs)
	ours.holds(jobs)
	bareFilled := bare.fill("jobs.", keys, jobs)
	idle := b.idle(ours, bare)
	ours.again()
	ready, all := ours.ready(), ours.holds(jobs)
	bare.again()
	back, bareAll := bare.streams(1), bare.pull(jobs)
	return append([]figure{
		{"submissions", "/s", published, bareFilled},
		{"restart: ready", "s", ready, back},
		{"restart: all jobs held", "s", all, bareAll},
		{"memory per job", "bytes", idle[0].memory / float64(jobs), idle[1].memory / float64(jobs)},
	}, atRest(idle[0], idle[1])...)
}

func (n *node) tell(what string) error { return n.call("POST", what+"/"+policy, "") }

func (n *node) fill(prefix string, keys, jobs int) float64 {
	failed := make(chan error, 1)
	js := get(jetstream.New(n.nc, jetstream.WithPublishAsyncMaxPending(inFlight),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			select {
			case failed <- fmt.Errorf("publish to %s: %w", m.Subject, err):
			default:
			}
		})))
	from := time.Now()
	for i := range jobs {
		get(js.PublishAsync(prefix+policy+".key-"+strconv.Itoa(i%keys), body,
			jetstream.WithStallWait(patience)))
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-n.b.ctx.Done():
		must(n.b.ctx.Err())
	}
	select {
	case err := <-failed:
		must(err)
	default:
	}
	return float64(jobs) / time.Since(from).Seconds()
}

func (n *node) holds(jobs int) float64 {
	broker := get(jet.NewBroker(n.nc, jet.Options{}))
	return n.until("the valve holds all jobs", func() error {
		a, err := broker.AskValve(n.b.ctx, policy, 0,
			job.Question{Op: job.OpJob, Jobs: []uint64{uint64(jobs)}})
		if err == nil && a.Job == nil {
			err = errors.New("it does not know the last")
		}
		return err
	})
}

// pull takes all messages of the bare server's stream, without acknowledgements.
func (n *node) pull(messages int) float64 {
	stream := get(n.js.Stream(n.b.ctx, policy))
	consumer := get(stream.CreateOrUpdateConsumer(n.b.ctx, worker))
	all, got := make(chan struct{}), 0
	consuming := get(consumer.Consume(func(jetstream.Msg) {
		if got++; got == messages {
			close(all)
		}
	}, jetstream.PullMaxMessages(4096)))
	defer consuming.Stop()
	select {
	case <-all:
	case <-n.b.ctx.Done():
		must(n.b.ctx.Err())
	}
	return time.Since(n.began).Seconds()
}
