package valve

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func BenchmarkValve(b *testing.B) {
	for _, keys := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			p := leaky("api", "1000000/s").WithDefaults()
			p.Workers = 1 << 20
			v := New(p, false, "self", func() float64 { return 0.5 }, wallOfTests, &Actions{})
			v.Crew.Local = true
			part := v.Own(handle.Partition{Policy: p.Name}, 1)
			part.GoLive(origin)
			names := make([]queue.Key, keys)
			for i := range names {
				names[i] = queue.Key(fmt.Sprintf("key-%d", i))
			}
			now, body := origin, make([]byte, 128)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				now = now.Add(2 * time.Microsecond)
				a := job.Arrived{Seq: uint64(i + 1), Key: names[i%keys], Stored: originWall,
					Cost: 1, Size: 128, Body: body}
				part.arrive(&a, now)
				v.Advance(now, pace.Never)
				for _, r := range v.out.Starts {
					r.Decide(atOnce(r), nil)
					v.Finished(r.Number, record.Outcome{Seq: r.Seq, Kind: record.OutcomeDone}, now)
					part.Confirmed(r.Seq, now)
				}
				v.out.Reset()
			}
		})
	}
}

func questionBench(b *testing.B, buckets int) *valveBench {
	vb := newValveBench(&testing.T{}, total("1000/s"))
	for i := range buckets {
		vb.arrive(fmt.Sprintf("tenant.%06d", i))
	}
	b.ResetTimer()
	return vb
}

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

func BenchmarkList(b *testing.B) {
	for _, buckets := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			vb := questionBench(b, buckets)
			var s stalls
			for b.Loop() {
				vb.v.foresight.last = nil
				list := vb.view().listBuckets(vb.p, job.ByDepth, 0, 500)
				s.measure(func() bool { return vb.foreseen(vb.now) })
				s.measure(func() bool { return list.find() })
				s.measure(func() bool { return list.tell(vb.now) })
				s.round()
			}
			s.report(b)
		})
	}
}

func BenchmarkExpect(b *testing.B) {
	for _, buckets := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			vb := questionBench(b, buckets)
			for !vb.foreseen(vb.now) {
			}
			for b.Loop() {
				vb.view().expect(vb.p, vb.seq)
			}
		})
	}
}

// BenchmarkWaiting measures a waiting job's memory beyond the budget, with and without a named
// cost, and without a budget.
func BenchmarkWaiting(b *testing.B) {
	for _, named := range []bool{false, true} {
		for _, most := range []int64{1, 0} {
			b.Run(fmt.Sprintf("named=%v/budget=%v", named, most > 0), func(b *testing.B) {
				const jobs = 120_000
				var before, after runtime.MemStats
				for b.Loop() {
					runtime.GC()
					runtime.ReadMemStats(&before)
					vb := newValveBench(b, costly("", policy.Rule{Algorithm: policy.TokenBucket,
						Capacity: 100, Refill: leaky("", "50/s").Outflow}))
					vb.v.texts.memory.most = most
					for i := range jobs {
						if key := fmt.Sprint("k", i%100); named {
							vb.arrive(key, tokens(int64(1+i%100)))
						} else {
							vb.arrive(key)
						}
					}
					vb.stored = nil
					runtime.GC()
					runtime.ReadMemStats(&after)
					runtime.KeepAlive(vb)
				}
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/jobs, "B/job")
			})
		}
	}
}
