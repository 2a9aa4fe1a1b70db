package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-mq/penstock/bench/paper"
	"github.com/penstock-mq/penstock/internal/queue/store"
)

func (b *bench) policies(n int) []figure {
	n = min(n, store.MaxPolicies-first)
	reached := make(chan time.Time, 1)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		reached <- time.Now()
	}))
	defer target.Close()
	ours := b.admitter(policyTexts(n, target.URL)...)
	first, drained := ours.ready(), ours.drainsAll(n)
	bare := b.natsServer()
	bareFirst := bare.each(n, bare.makeStream)
	idle := b.idle(ours, bare)
	more := oneMore(n, ours.morePolicy)
	bareMore := oneMore(n, func(i int) error { return bare.makeStream(policyName(i)) })
	asleep, bareAsleep := ours.firstJobs("penstock.jobs.", reached), bare.firstMessages()
	ours.again()
	again, drainedAgain := ours.ready(), ours.drainsAll(n)
	bare.again()
	bareBack, bareAgain := bare.streams(n), bare.each(n, bare.findStream)
	return append([]figure{
		{"first start: ready", "s", first, bareFirst},
		{"first start: all drained", "s", drained, bareFirst},
		{"restart: ready", "s", again, bareBack},
		{"restart: all drained", "s", drainedAgain, bareAgain},
		{"one more", "ms", more, bareMore},
		{"first job of a policy at rest", "ms", asleep, bareAsleep},
	}, atRest(idle[0], idle[1])...)
}

func (n *node) drainsAll(policies int) float64 {
	n.streams(policies)
	return n.drains(policies)
}

func policyName(i int) string { return fmt.Sprintf("p%05d", i) }

func policyTexts(n int, target string) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("{name: %s, algorithm: leaking_bucket, outflow: 10/s, "+
			"capacity: 100000, target: {http: {url: %q}}}", policyName(i), target)
	}
	return texts
}

// number of first jobs, and of additional policies
const first = 10

func oneMore(n int, makeOne func(i int) error) float64 {
	var took []float64
	for i := range first {
		from := time.Now()
		must(makeOne(n + i))
		took = append(took, time.Since(from).Seconds()*1e3)
	}
	return paper.Median(took)
}

func (n *node) firstJobs(prefix string, reached <-chan time.Time) float64 {
	var took []float64
	for i := range first {
		from := time.Now()
		must(n.nc.Publish(prefix+policyName(i)+".key", body))
		select {
		case at := <-reached:
			took = append(took, at.Sub(from).Seconds()*1e3)
		case <-time.After(patience):
			must(errors.New("a first job does not reach its target"))
		}
	}
	return paper.Median(took)
}

func (n *node) firstMessages() float64 {
	reached := make(chan time.Time, 1)
	for i := range first {
		consumer := get(n.js.Consumer(n.b.ctx, policyName(i), worker.Durable))
		consuming := get(consumer.Consume(func(m jetstream.Msg) {
			reached <- time.Now()
			_ = m.Ack()
		}))
		defer consuming.Stop()
	}
	return n.firstJobs("jobs.", reached)
}

// each makes or finds streams with a durable consumer each, concurrently, and returns the seconds
// since the server's start.
func (n *node) each(streams int, do func(name string) error) float64 {
	var doing errgroup.Group
	doing.SetLimit(32)
	for i := range streams {
		doing.Go(func() error { return do(policyName(i)) })
	}
	must(doing.Wait())
	return time.Since(n.began).Seconds()
}

// findStream makes a stream's consumer again, which a restart ends.
func (n *node) findStream(name string) error {
	stream, err := n.js.Stream(n.b.ctx, name)
	if err == nil {
		_, err = stream.CreateOrUpdateConsumer(n.b.ctx, worker)
	}
	return err
}

func (n *node) makeStream(name string) error {
	stream, err := n.js.CreateOrUpdateStream(n.b.ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{"jobs." + name + ".>"}, MaxMsgsPerSubject: 10_000_000,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
		DiscardNewPerSubject: true, AllowDirect: true, Replicas: n.replicas,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "jobs." + name + ".>",
			Destination: "queue." + name + ".{{partition(1)}}.>"},
	})
	if err == nil {
		_, err = stream.CreateOrUpdateConsumer(n.b.ctx, worker)
	}
	return err
}

var worker = jetstream.ConsumerConfig{Durable: "worker", MemoryStorage: true, MaxAckPending: -1,
	AckPolicy: jetstream.AckExplicitPolicy, AckWait: 24 * time.Hour}

func (n *node) morePolicy(i int) error {
	return n.call("PUT", "policies/"+policyName(i),
		`{"algorithm": "leaking_bucket", "outflow": "10/s", "capacity": 1000}`)
}

func atRest(ours, bare taken) []figure {
	return []figure{
		{"idle", "% of a core", ours.cpu, bare.cpu},
		{"memory", "MB", ours.memory / 1e6, bare.memory / 1e6},
		{"heap in use", "MB", ours.heap / 1e6, bare.heap / 1e6},
		{"goroutines", "", ours.goroutines, bare.goroutines},
	}
}
