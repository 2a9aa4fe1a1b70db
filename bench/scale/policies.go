package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// policies measures n policies of a file beside as many streams with a durable consumer each.
func (b *bench) policies(ctx context.Context, n int) ([]figure, error) {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = policyText(i)
	}
	ours, err := b.admitter(ctx, entries...)
	defer ours.stop()
	if err != nil {
		return nil, err
	}
	first, err := ours.twoTimes(ctx, n)
	if err != nil {
		return nil, err
	}
	bare, err := b.natsServer(ctx)
	defer bare.stop()
	if err != nil {
		return nil, err
	}
	bareFirst, err := bare.makeStreams(ctx, n)
	if err != nil {
		return nil, err
	}
	idle, err := b.idle(ctx, ours, bare)
	if err != nil {
		return nil, err
	}
	more, bareMore, err := oneMore(ctx, ours, bare, n)
	if err != nil {
		return nil, err
	}
	if err := ours.again(ctx); err != nil {
		return nil, err
	}
	again, err := ours.twoTimes(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := bare.again(ctx); err != nil {
		return nil, err
	}
	bareBack, err := bare.streams(ctx, n)
	if err != nil {
		return nil, err
	}
	bareAgain, err := bare.makeStreams(ctx, n)
	return append([]figure{
		{"first start: ready", "s", first[0], bareFirst},
		{"first start: all drained", "s", first[1], bareFirst},
		{"restart: ready", "s", again[0], bareBack.Seconds()},
		{"restart: all drained", "s", again[1], bareAgain},
		{"one more", "ms", more, bareMore},
	}, atRest(idle)...), err
}

func policyText(i int) string {
	return fmt.Sprintf("{name: p%05d, algorithm: leaking_bucket, outflow: 10/s, capacity: 1000, "+
		"target: {http: {url: \"http://127.0.0.1:9/\"}}}", i)
}

// twoTimes returns the seconds until an admitter is ready with the streams of all policies, and
// until it drains them.
func (n *node) twoTimes(ctx context.Context, policies int) (at [2]float64, err error) {
	for i, wait := range []func() (time.Duration, error){
		func() (time.Duration, error) { return n.ready(ctx) },
		func() (time.Duration, error) {
			if _, err := n.streams(ctx, policies); err != nil {
				return 0, err
			}
			return n.drains(ctx, policies)
		},
	} {
		took, err := wait()
		if err != nil {
			return at, err
		}
		at[i] = took.Seconds()
	}
	return at, nil
}

// makeStreams makes streams as policies have them, each with a durable consumer, many at a time,
// and returns the seconds since the start of the server.
func (n *node) makeStreams(ctx context.Context, streams int) (float64, error) {
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(32)
	for i := range streams {
		making.Go(func() error { return n.makeStream(ctx, fmt.Sprintf("p%05d", i)) })
	}
	err := making.Wait()
	return time.Since(n.began).Seconds(), err
}

func (n *node) makeStream(ctx context.Context, name string) error {
	stream, err := n.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{"jobs." + name + ".>"}, MaxMsgsPerSubject: 10_000_000,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
		DiscardNewPerSubject: true, AllowDirect: true,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "jobs." + name + ".>",
			Destination: "queue." + name + ".{{partition(1)}}.>"},
	})
	if err == nil {
		_, err = stream.CreateOrUpdateConsumer(ctx, worker)
	}
	return err
}

// worker is the consumer of a bare server's stream.
var worker = jetstream.ConsumerConfig{Durable: "worker", MemoryStorage: true, MaxAckPending: -1,
	AckPolicy: jetstream.AckExplicitPolicy, AckWait: 24 * time.Hour}

// oneMore returns the milliseconds that one more policy takes over the API, and one more stream.
func oneMore(ctx context.Context, ours, bare *node, n int) (policy, stream float64, err error) {
	body := `{"algorithm": "leaking_bucket", "outflow": "10/s", "capacity": 1000}`
	q, err := http.NewRequestWithContext(ctx, http.MethodPut,
		fmt.Sprintf("http://%s/v1/policies/p%05d", ours.http, n), strings.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	from := time.Now()
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, 0, err
	}
	defer r.Body.Close()
	if r.StatusCode/100 != 2 {
		return 0, 0, fmt.Errorf("one more policy is answered %s", r.Status)
	}
	policy = time.Since(from).Seconds() * 1e3
	from = time.Now()
	err = bare.makeStream(ctx, fmt.Sprintf("p%05d", n))
	return policy, time.Since(from).Seconds() * 1e3, err
}

// atRest are the figures of a process of ours and a bare server that have nothing to do.
func atRest(of []taken) []figure {
	return []figure{
		{"idle", "% of a core", of[0].cpu, of[1].cpu},
		{"memory", "MB", of[0].memory / 1e6, of[1].memory / 1e6},
		{"heap in use", "MB", of[0].heap / 1e6, of[1].heap / 1e6},
		{"goroutines", "", of[0].goroutines, of[1].goroutines},
	}
}
