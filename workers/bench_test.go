package workers

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// BenchmarkDrain measures unpaced drain throughput, from a full queue to every job acknowledged: one process with its
// server, a handler that does nothing, payloads of 128 bytes.
func BenchmarkDrain(b *testing.B) {
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
	broker, err := queue.NewBroker(nc, queue.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p := policy.Policy{Name: "bench", Algorithm: policy.TokenBucket, Capacity: 1, Refill: leaky("", "1/s").Outflow,
		Queue: &policy.Queue{Capacity: policy.MaxCapacity}, Partitions: 1, Workers: 1024}.WithDefaults()
	ctx := context.Background()
	if err := broker.Setup(ctx); err != nil {
		b.Fatal(err)
	}
	if _, err := broker.PutPolicy(ctx, p); err != nil {
		b.Fatal(err)
	}
	if err := broker.Apply(ctx, p); err != nil {
		b.Fatal(err)
	}
	js, err := nc.JetStream(nats.PublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	payload := bytes.Repeat([]byte("x"), 128)
	for i := range b.N {
		if _, err := js.PublishAsync(fmt.Sprintf("penstock.admitted.bench.key-%d", i%100), payload); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()

	d, err := New(connect(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	var handled, first atomic.Int64
	d.Handle("bench", func(context.Context, Job) error {
		if handled.Add(1) == 1 {
			first.Store(time.Now().UnixNano())
		}
		return nil
	})
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- d.Run(running) }()
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
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkValve measures what the valve itself costs a job: arrival, start, outcome, confirmed acknowledgement.
func BenchmarkValve(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			p := leaky("api", "1000000/s").WithDefaults()
			p.Workers = 1 << 20
			v := newValve(p, false, "self", func() float64 { return 0.5 }, &actions{})
			v.local = true
			part := v.own(0, 1)
			v.live(part, origin)
			names := make([]queue.Key, keys)
			for i := range names {
				names[i] = queue.Key(fmt.Sprintf("key-%d", i))
			}
			now, body := origin, make([]byte, 128)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				now = now.add(2 * time.Microsecond)
				a := queue.Arrived{Seq: uint64(i + 1), Key: names[i%keys], Stored: originWall, Cost: 1, Size: 128, Body: body}
				v.arrive(part, &a, now, originWall)
				v.advance(now, true)
				for _, r := range v.out.starts {
					r.decide(whenever, nil)
					v.busy--
					v.settle(r.job, outcome{Seq: r.Seq, Kind: outcomeDone}, now)
					v.confirmed(part, r.Seq, now)
				}
				v.out.clear()
			}
		})
	}
}

// questionBench is a valve with buckets that share one rate.
func questionBench(b *testing.B, buckets int) *valveBench {
	vb := newValveBench(&testing.T{}, total("1000/s"))
	for i := range buckets {
		vb.arrive(fmt.Sprintf("tenant.%06d", i))
	}
	b.ResetTimer()
	return vb
}

// stalls measures work in pieces: what it costs the loop in all, and the longest piece of it. Both are the best of all rounds,
// because other processes stall them too.
type stalls struct{ all, longest, bestAll, bestLongest time.Duration }

func (s *stalls) measure(piece func() (done bool)) {
	for done := false; !done; {
		began := time.Now()
		done = piece()
		took := time.Since(began)
		s.all, s.longest = s.all+took, max(s.longest, took)
	}
}

func (s *stalls) round() {
	if s.bestAll == 0 || s.all < s.bestAll {
		s.bestAll = s.all
	}
	if s.bestLongest == 0 || s.longest < s.bestLongest {
		s.bestLongest = s.longest
	}
	s.all, s.longest = 0, 0
}

func (s *stalls) report(b *testing.B) {
	b.ReportMetric(float64(s.bestAll.Microseconds()), "µs-in-all")
	b.ReportMetric(float64(s.bestLongest.Microseconds()), "µs-longest")
}

// BenchmarkList measures what a list of 500 buckets costs the loop under an outflow_total, forecast included, and its longest
// piece.
func BenchmarkList(b *testing.B) {
	for _, buckets := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			vb := questionBench(b, buckets)
			var s stalls
			for b.Loop() {
				vb.v.forecast = nil
				list := vb.v.deepest(vb.p, 0, 500, vb.now)
				s.measure(func() bool { return vb.v.find(list) })
				list.pick()
				s.measure(func() bool { return vb.v.tell(list, vb.now, originWall) })
				s.round()
			}
			s.report(b)
		})
	}
}

// BenchmarkExpect measures what one job costs the loop that is asked about under an outflow_total, while a forecast lasts.
func BenchmarkExpect(b *testing.B) {
	for _, buckets := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			vb := questionBench(b, buckets)
			for !vb.v.foreseen(vb.p, vb.now) {
			}
			for b.Loop() {
				vb.v.expect(vb.p, vb.seq, vb.now)
			}
		})
	}
}
