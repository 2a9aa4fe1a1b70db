package workers

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// BenchmarkDrain measures unpaced throughput, from a full queue to the last acknowledgement, in one
// process with its server, a no-op handler, and payloads of 128 bytes.
func BenchmarkDrain(b *testing.B) { benchDrain(b, 128, Options{}) }

// BenchmarkDrainDeep drops nearly all of its jobs, of 1 KiB, from memory and reads them again.
func BenchmarkDrainDeep(b *testing.B) { benchDrain(b, 1<<10, Options{Memory: 16 << 20}) }

// BenchmarkDrainElsewhere has all workers in a drainer that owns nothing.
func BenchmarkDrainElsewhere(b *testing.B) { benchDrain(b, 128, Options{WorkerOnly: true}) }

func benchDrain(b *testing.B, size int, o Options) {
	b.Helper()
	server, err := embedded.Start(embedded.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Shutdown()
	connect := func() *nats.Conn {
		nc, err := server.Connect()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		return nc
	}
	nc := connect()
	broker, err := jet.NewBroker(nc, jet.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p := policy.Policy{Name: "bench",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 1,
			Refill: leaky("", "1/s").Outflow},
		Queue: &policy.Queue{Capacity: policy.MaxCapacity}, Partitions: 1,
		Workers: 1024}.WithDefaults()
	ctx := context.Background()
	if err := broker.Setup(ctx); err != nil {
		b.Fatal(err)
	}
	if _, err := store.New(broker, nil).Put(ctx, p); err != nil {
		b.Fatal(err)
	}
	if err := broker.Apply(ctx, p); err != nil {
		b.Fatal(err)
	}
	js, err := nc.JetStream(nats.PublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	payload := bytes.Repeat([]byte("x"), size)
	for i := range b.N {
		if _, err := js.PublishAsync(fmt.Sprintf("penstock.admitted.bench.key-%d", i%100),
			payload); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()

	running, stop := context.WithCancel(ctx)
	var ended sync.WaitGroup
	run := func(o Options, handle Handler) {
		d, err := New(connect(), o)
		if err != nil {
			b.Fatal(err)
		}
		if handle != nil {
			d.Handle("bench", handle)
		}
		ended.Go(func() {
			if err := d.Run(running); err != nil {
				b.Error(err)
			}
		})
	}
	var handled, first atomic.Int64
	run(o, func(context.Context, Job) error {
		if handled.Add(1) == 1 {
			first.Store(time.Now().UnixNano())
		}
		return nil
	})
	if o.WorkerOnly {
		run(Options{OwnAll: true}, nil)
	}
	b.ResetTimer()
	for ticker := time.NewTicker(2 * time.Millisecond); ; <-ticker.C {
		if n, err := broker.Depth(ctx, "bench"); err == nil && n == 0 {
			ticker.Stop()
			break
		}
	}
	took := time.Since(time.Unix(0, first.Load()))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/took.Seconds(), "jobs/s")
	b.ReportMetric(float64(handled.Load())/float64(b.N), "runs/job")
	stop()
	ended.Wait()
}
