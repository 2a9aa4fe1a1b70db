package redisstore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func BenchmarkTake(b *testing.B) {
	benchmark(b, "token bucket",
		algorithms.TokenBucket{Capacity: 1_000_000_000, Refill: perSecond(1_000_000)})
	benchmark(b, "leaking bucket",
		algorithms.LeakingBucket{Capacity: 1_000_000_000, Outflow: perSecond(1_000_000)})
	benchmark(b, "fixed window",
		algorithms.FixedWindow{Limit: algorithms.MaxLimit, Window: time.Second})
	benchmark(b, "sliding counter",
		algorithms.SlidingCounter{Limit: algorithms.MaxLimit, Window: time.Second})
	benchmark(b, "sliding log", algorithms.SlidingLog{Limit: 1000, Window: time.Millisecond})
}

func benchmark[S any](b *testing.B, name string, rule algorithms.Rule[S]) {
	for _, keys := range []int{1000, 1} {
		b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
			s := New(newClient(b, server, Options{}), "policy", rule)
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("tenant-", i)
				mustTake(b, s, names[i], 1)
			}
			var mu sync.Mutex
			var latencies []time.Duration
			b.ReportAllocs()
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			calls := decisions(b, server)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				var mine []time.Duration
				i := rand.IntN(keys)
				for pb.Next() {
					before := time.Now()
					if _, err := s.Take(b.Context(), names[i*7919%keys], 1); err != nil {
						b.Error(err)
						return
					}
					mine = append(mine, time.Since(before))
					i++
				}
				mu.Lock()
				defer mu.Unlock()
				latencies = append(latencies, mine...)
			})
			b.StopTimer()
			slices.Sort(latencies)
			b.ReportMetric(float64(len(latencies))/b.Elapsed().Seconds(), "decisions/s")
			b.ReportMetric(float64(len(latencies))/float64(decisions(b, server)-calls),
				"decisions/call")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds()), "p99-µs")
		})
	}
}

func BenchmarkRefused(b *testing.B) {
	s := New(newClient(b, server, Options{}), "policy",
		algorithms.TokenBucket{Capacity: 1, Refill: perHour(1)})
	for range 2 {
		mustTake(b, s, "key", 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		mustTake(b, s, "key", 1)
	}
}
