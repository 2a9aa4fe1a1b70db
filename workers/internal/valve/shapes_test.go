package valve

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// BenchmarkHeapOfShapes measures the heap of b.N waiting jobs of 1 KiB, spread over keys in several
// ways, with a drainer's default memory; -benchtime 10000000x means ten million.
func BenchmarkHeapOfShapes(b *testing.B) {
	for _, shape := range []struct {
		name    string
		keys    int
		delayed bool
	}{{"OneKey", 1, false}, {"100000Keys", 100_000, false}, {"1000000Keys", 1_000_000, false},
		{"AllDelayed", 1000, true}, {"AllDelayed1000000Keys", 1_000_000, true}} {
		b.Run(shape.name, func(b *testing.B) {
			v := newValveBench(b, leaky("api", "1/m"))
			v.v.texts.memory.most = 512 << 20
			v.start()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			for i := range b.N {
				a := job.Arrived{Seq: uint64(i + 1), Cost: 1, Size: 1 << 10,
					Key: queue.Key(fmt.Sprintf("key-%d", i%shape.keys)), Stored: v.wall(),
					Body: make([]byte, 1<<10)}
				if shape.delayed {
					a.NotBefore = v.wall().Add(time.Hour + time.Duration(i%3600)*time.Second)
				}
				v.p.Arrive([]job.Arrived{a}, true, v.now)
				v.out.Reset()
			}
			b.StopTimer()
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "B/job")
			runtime.KeepAlive(v)
		})
	}
}
