package queue

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/natstest"
	"github.com/penstock-mq/penstock/queue/job"
)

// BenchmarkPublish publishes from many goroutines over one connection.
func BenchmarkPublish(b *testing.B) {
	broker := newBroker(b)
	apply(b, broker, paced("stripe", 1_000_000, 8))
	p := broker.NewProducer(ProducerOptions{})
	ctx := b.Context()
	body := make([]byte, 100)
	var n atomic.Int64
	b.SetParallelism(500)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key := job.Key(fmt.Sprint("k", n.Add(1)%1000))
			if _, err := p.Publish(ctx, Submission{Policy: "stripe", Key: key, Body: body}); err !=
				nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkPullAndAck takes jobs out as fast as they come.
func BenchmarkPullAndAck(b *testing.B) {
	broker := stored(b, make([]byte, 100))
	l := open(b, broker, BacklogOptions{Policy: "stripe", Epoch: 1})
	for arrived, confirmed := 0, 0; confirmed < b.N; {
		u, err := l.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		arrived += len(u.Arrived)
		for _, a := range u.Arrived {
			l.Done(a.Seq)
		}
		confirmed += len(u.Confirmed)
	}
}

// BenchmarkPull only takes over.
func BenchmarkPull(b *testing.B) {
	broker := stored(b, nil)
	l := open(b, broker, BacklogOptions{Policy: "stripe", Epoch: 1})
	for arrived := 0; arrived < b.N; {
		u, err := l.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		arrived += len(u.Arrived)
	}
}

// stored is a broker whose policy holds as many jobs as the benchmark asks for, in 1,000 buckets.
func stored(b *testing.B, body []byte) *Broker {
	b.Helper()
	broker := newBroker(b)
	apply(b, broker, paced("stripe", 1_000_000, 1))
	for i := range b.N {
		if _, err := broker.js.PublishAsync(fmt.Sprint("penstock.jobs.stripe.k", i%1000), body,
			jetstream.WithStallWait(natstest.Patience)); err != nil {
			b.Fatal(err)
		}
	}
	<-broker.js.PublishAsyncComplete()
	b.ReportAllocs()
	b.ResetTimer()
	return broker
}
