package jet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/kit/natstest"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

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
			key := queue.Key(fmt.Sprint("k", n.Add(1)%1000))
			if _, err := p.Publish(ctx, Submission{Policy: "stripe", Key: key, Body: body}); err !=
				nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkSyncAlways publishes from 64 goroutines, alternately with and without sync_interval:
// always, to one server and to three replicas. The ratio is of the times.
func BenchmarkSyncAlways(b *testing.B) {
	const rounds, publishers = 5, 64
	publish := func(b *testing.B, p *Producer) {
		var all sync.WaitGroup
		for i := range publishers {
			all.Go(func() {
				for n := i; n < max(1, b.N/rounds); n += publishers {
					_, err := p.Publish(b.Context(), Submission{Policy: "stripe",
						Key: queue.Key(fmt.Sprint("k", n%1000)), Body: make([]byte, 100)})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	for _, servers := range []int{1, 3} {
		b.Run(fmt.Sprint("servers=", servers), func(b *testing.B) {
			var producers [2]*Producer
			for i, always := range []bool{false, true} {
				var broker *Broker
				if servers == 3 {
					broker = newCluster(b, always).broker
				} else {
					broker = brokerOver(b, natstest.Connect(b,
						natstest.Start(b, embedded.Options{SyncAlways: always})))
				}
				apply(b, broker, paced("stripe", 1_000_000, 8))
				producers[i] = broker.NewProducer(ProducerOptions{})
			}
			var took [2]time.Duration
			for range rounds {
				for i, p := range producers {
					began := time.Now()
					publish(b, p)
					took[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(b.N)/took[0].Seconds(), "jobs/s")
			b.ReportMetric(float64(b.N)/took[1].Seconds(), "jobs/s-always")
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
		})
	}
}

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

// BenchmarkLetters measures operations on b.N dead letters of 1 KiB, of a hundredth as many keys:
// -benchtime 1000000x for a million.
func BenchmarkLetters(b *testing.B) {
	broker := newBroker(b)
	apply(b, broker, paced("stripe", 1_000_000, 1))
	err := broker.bounds.ensure(b.Context(), "stripe", broker.Letters("stripe").config())
	if err != nil {
		b.Fatal(err)
	}
	keys := max(1, b.N/100)
	for i := range b.N {
		m := broker.Letters("stripe").message(DeadLetter{Policy: "stripe",
			Key: queue.Key(fmt.Sprint("k", i%keys)), Seq: uint64(i + 1), Stored: time.Now(),
			Reason: "attempts", Body: make([]byte, 1<<10)})
		if _, err := broker.js.PublishMsgAsync(m,
			jetstream.WithStallWait(natstest.Patience)); err != nil {
			b.Fatal(err)
		}
	}
	<-broker.js.PublishAsyncComplete()
	letters, producer := broker.Letters("stripe"), broker.NewProducer(ProducerOptions{})
	b.ResetTimer()
	for _, op := range []struct {
		unit string
		do   func() error
	}{
		{"ms/first-page", func() error { return page(letters, 0) }},
		{"ms/page", func() error { return page(letters, uint64(b.N/2)) }},
		{"ms/replay", func() error {
			_, err := producer.Replay(b.Context(), "stripe", uint64(b.N/2+1))
			return err
		}},
		{"ms/replay-a-key", func() error {
			_, err := producer.ReplaySome(b.Context(), "stripe", DeadLetterFilter{Keyed: true,
				Key: "k0"})
			return err
		}},
		{"ms/page-after", func() error { return page(letters, uint64(b.N/2)) }},
		{"ms/discard-a-key", func() error {
			_, err := letters.DiscardSome(b.Context(), DeadLetterFilter{Keyed: true, Key: "k1"})
			return err
		}},
		{"ms/discard-all", func() error {
			_, err := letters.DiscardSome(b.Context(), DeadLetterFilter{})
			return err
		}},
	} {
		from := time.Now()
		if err := op.do(); err != nil {
			b.Fatalf("%s: %v", op.unit, err)
		}
		b.ReportMetric(float64(time.Since(from).Microseconds())/1000, op.unit)
	}
}

func page(l Letters, after uint64) error {
	_, err := l.List(context.Background(), after, 500)
	return err
}

func stored(b *testing.B, body []byte) *Broker {
	b.Helper()
	broker := newBroker(b)
	apply(b, broker, paced("stripe", 1_000_000, 1))
	publishAll(b, broker, "penstock.jobs.stripe.k", body)
	b.ReportAllocs()
	b.ResetTimer()
	return broker
}
