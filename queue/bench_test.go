package queue

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
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
			key := Key(fmt.Sprint("k", n.Add(1)%1000))
			if _, err := p.Publish(ctx, Submission{Policy: "stripe", Key: key, Body: body}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkPullAndAck takes jobs out as fast as they come.
func BenchmarkPullAndAck(b *testing.B) {
	broker := newBroker(b)
	apply(b, broker, paced("stripe", 1_000_000, 1))
	body := make([]byte, 100)
	for i := range b.N {
		if _, err := broker.js.PublishAsync(fmt.Sprint("penstock.jobs.stripe.k", i%1000), body, jetstream.WithStallWait(patience)); err != nil {
			b.Fatal(err)
		}
	}
	<-broker.js.PublishAsyncComplete()
	b.ReportAllocs()
	b.ResetTimer()
	l := open(b, broker, BacklogOptions{Policy: "stripe", Epoch: 1})
	for arrived, confirmed := 0, 0; confirmed < b.N; {
		select {
		case batch := <-l.Arrivals():
			arrived += len(batch)
			for _, a := range batch {
				l.Done(a.Seq)
			}
		case batch := <-l.Confirmed():
			confirmed += len(batch)
		case err := <-l.Broken():
			b.Fatal(err)
		}
	}
}

// BenchmarkPull only takes over.
func BenchmarkPull(b *testing.B) {
	broker := newBroker(b)
	apply(b, broker, paced("stripe", 1_000_000, 1))
	for i := range b.N {
		if _, err := broker.js.PublishAsync(fmt.Sprint("penstock.jobs.stripe.k", i%1000), nil, jetstream.WithStallWait(patience)); err != nil {
			b.Fatal(err)
		}
	}
	<-broker.js.PublishAsyncComplete()
	b.ReportAllocs()
	b.ResetTimer()
	l := open(b, broker, BacklogOptions{Policy: "stripe", Epoch: 1})
	for arrived := 0; arrived < b.N; {
		select {
		case batch := <-l.Arrivals():
			arrived += len(batch)
		case err := <-l.Broken():
			b.Fatal(err)
		}
	}
}
