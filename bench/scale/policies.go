package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-mq/penstock/bench/paper"
)

// policies measures n policies of a file beside as many streams with a durable consumer each.
func (b *bench) policies(ctx context.Context, n int) ([]figure, error) {
	reached := make(chan time.Time, 1)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		reached <- time.Now()
	}))
	defer target.Close()
	ours, err := b.admitter(ctx, policyTexts(n, target.URL)...)
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
	asleep, err := ours.firstJobs(ctx, "penstock.jobs.", reached)
	if err != nil {
		return nil, err
	}
	bareAsleep, err := bare.firstMessages(ctx)
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
		{"first job of a policy at rest", "ms", asleep, bareAsleep},
	}, atRest(idle)...), err
}

// policyTexts are policies with an HTTP target.
func policyTexts(n int, target string) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("{name: p%05d, algorithm: leaking_bucket, outflow: 10/s, "+
			"capacity: 100000, target: {http: {url: %q}}}", i, target)
	}
	return texts
}

// first is how many policies get their first job, one after another.
const first = 10

// firstJobs returns the median of the milliseconds from the publish of a policy's first job to the
// call of its target.
func (n *node) firstJobs(ctx context.Context, prefix string, reached <-chan time.Time) (
	float64, error) {
	var took []float64
	for i := range first {
		from := time.Now()
		if err := n.nc.Publish(fmt.Sprintf("%sp%05d.key", prefix, i), body); err != nil {
			return 0, err
		}
		select {
		case at := <-reached:
			took = append(took, at.Sub(from).Seconds()*1e3)
		case <-time.After(patience):
			return 0, errors.New("a first job does not reach its target")
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return paper.Median(took), nil
}

// firstMessages does so with streams, whose consumers have an open pull.
func (n *node) firstMessages(ctx context.Context) (float64, error) {
	reached := make(chan time.Time, 1)
	for i := range first {
		consumer, err := n.js.Consumer(ctx, fmt.Sprintf("p%05d", i), worker.Durable)
		if err != nil {
			return 0, err
		}
		consuming, err := consumer.Consume(func(m jetstream.Msg) {
			reached <- time.Now()
			_ = m.Ack()
		})
		if err != nil {
			return 0, err
		}
		defer consuming.Stop()
	}
	return n.firstJobs(ctx, "jobs.", reached)
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
		DiscardNewPerSubject: true, AllowDirect: true, Replicas: n.replicas,
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
	from := time.Now()
	if err := ours.morePolicy(ctx, n); err != nil {
		return 0, 0, err
	}
	policy = time.Since(from).Seconds() * 1e3
	from = time.Now()
	err = bare.makeStream(ctx, fmt.Sprintf("p%05d", n))
	return policy, time.Since(from).Seconds() * 1e3, err
}

func (n *node) morePolicy(ctx context.Context, i int) error {
	return n.call(ctx, "PUT", fmt.Sprintf("policies/p%05d", i),
		`{"algorithm": "leaking_bucket", "outflow": "10/s", "capacity": 1000}`)
}

// call sends a request to an admitter's API.
func (n *node) call(ctx context.Context, method, path, body string) error {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+n.http+"/v1/"+path,
		strings.NewReader(body))
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s is answered %s", method, path, r.Status)
	}
	return nil
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
