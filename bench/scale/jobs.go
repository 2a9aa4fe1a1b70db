package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// policy is the one whose jobs wait, and the bare server's stream. It is not paced.
	policy     = "p"
	fewKeys    = 1000
	jobsPerKey = 2
	inFlight   = 8192
)

var body = make([]byte, 128)

// unpaced is the policy with room for a number of jobs.
func unpaced(jobs, partitions int) string {
	return fmt.Sprintf("{name: %s, algorithm: leaking_bucket, outflow: 1000000/s, capacity: %d, "+
		"max_jobs: %d, partitions: %d}", policy, jobs, jobs, partitions)
}

// keys measures waiting jobs of n keys, and waiting n jobs of a thousand keys.
func (b *bench) keys(ctx context.Context, n int) ([]figure, error) {
	return b.backlog(ctx, n, jobsPerKey*n)
}

func (b *bench) waiting(ctx context.Context, n int) ([]figure, error) {
	return b.backlog(ctx, fewKeys, n)
}

// backlog measures jobs that wait behind a pause, beside as many messages of a stream.
func (b *bench) backlog(ctx context.Context, keys, jobs int) ([]figure, error) {
	ours, err := b.admitter(ctx, strings.TrimSuffix(unpaced(10_000_000, 1), "}")+
		", target: {http: {url: \"http://127.0.0.1:9/\"}}}")
	defer ours.stop()
	if err != nil {
		return nil, err
	}
	if _, err := ours.drains(ctx, 1); err != nil {
		return nil, err
	}
	if err := ours.tell(ctx, "pause"); err != nil {
		return nil, err
	}
	bare, err := b.natsServer(ctx)
	defer bare.stop()
	if err == nil {
		err = bare.makeStream(ctx, policy)
	}
	if err != nil {
		return nil, err
	}
	published, err := ours.fill(ctx, "penstock.jobs.", keys, jobs)
	if err != nil {
		return nil, err
	}
	if err := ours.holds(ctx, jobs); err != nil {
		return nil, err
	}
	bareFilled, err := bare.fill(ctx, "jobs.", keys, jobs)
	if err != nil {
		return nil, err
	}
	idle, err := b.idle(ctx, ours, bare)
	if err != nil {
		return nil, err
	}
	if err := ours.again(ctx); err != nil {
		return nil, err
	}
	ready, err := ours.ready(ctx)
	if err == nil {
		err = ours.holds(ctx, jobs)
	}
	if err != nil {
		return nil, err
	}
	all := time.Since(ours.began).Seconds()
	if err := bare.again(ctx); err != nil {
		return nil, err
	}
	back, err := bare.streams(ctx, 1)
	if err == nil {
		err = bare.pull(ctx, jobs)
	}
	return append([]figure{
		{"submissions", "/s", published, bareFilled},
		{"restart: ready", "s", ready.Seconds(), back.Seconds()},
		{"restart: all jobs held", "s", all, time.Since(bare.began).Seconds()},
		{"memory per job", "bytes", idle[0].memory / float64(jobs), idle[1].memory / float64(jobs)},
	}, atRest(idle)...), err
}

// tell asks an admitter to pause the policy, or to resume it.
func (n *node) tell(ctx context.Context, what string) error {
	return n.call(ctx, "POST", what+"/"+policy, "")
}

// fill publishes jobs over the keys in turn, and returns how many are stored in a second.
func (n *node) fill(ctx context.Context, prefix string, keys, jobs int) (float64, error) {
	failed := make(chan error, 1)
	js, err := jetstream.New(n.nc, jetstream.WithPublishAsyncMaxPending(inFlight),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			select {
			case failed <- fmt.Errorf("publish to %s: %w", m.Subject, err):
			default:
			}
		}))
	if err != nil {
		return 0, err
	}
	from := time.Now()
	for i := range jobs {
		if _, err := js.PublishAsync(prefix+policy+".key-"+strconv.Itoa(i%keys), body,
			jetstream.WithStallWait(patience)); err != nil {
			return 0, err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case err = <-failed:
	default:
	}
	return float64(jobs) / time.Since(from).Seconds(), err
}

// holds waits until the policy's valve holds so many jobs.
func (n *node) holds(ctx context.Context, jobs int) error {
	broker, err := queue.NewBroker(n.nc, queue.Options{})
	if err != nil {
		return err
	}
	return n.until(ctx, glance, "the valve holds all jobs", func() bool {
		a, err := broker.AskValve(ctx, policy, 0,
			job.Question{Op: job.OpJob, Jobs: []uint64{uint64(jobs)}})
		return err == nil && a.Job != nil
	})
}

// pull takes messages of the bare server's stream, as a worker that has to know all of them, and
// acknowledges none.
func (n *node) pull(ctx context.Context, messages int) error {
	stream, err := n.js.Stream(ctx, policy)
	if err != nil {
		return err
	}
	consumer, err := stream.CreateOrUpdateConsumer(ctx, worker)
	if err != nil {
		return err
	}
	all := make(chan struct{})
	got := 0
	consuming, err := consumer.Consume(func(jetstream.Msg) {
		if got++; got == messages {
			close(all)
		}
	}, jetstream.PullMaxMessages(4096))
	if err != nil {
		return err
	}
	defer consuming.Stop()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
