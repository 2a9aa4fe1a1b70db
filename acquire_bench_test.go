//go:build unix

package penstock_test

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/policy"
)

// callsBench runs a Penstock with one policy for calls, and one permit of key "a" in use.
func callsBench(b *testing.B, concurrency int) *penstock.Penstock {
	p, err := penstock.Open(b.Context(), penstock.Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Policies: []policy.Policy{{Name: "api",
			Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 5000, Burst: 1000,
				Outflow: penstock.MustRate("1000000/s")}, Concurrency: concurrency}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.Cleanup(func() {
		stop()
		p.Close()
	})
	go p.Run(ctx)
	<-p.Ready()
	if _, err := p.Acquire(b.Context(), penstock.Call{Policy: "api", Key: "a"}); err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkPermits measures calls per second without a limiting rate: callers, server and drainer
// are one process.
func BenchmarkPermits(b *testing.B) {
	p := callsBench(b, 0)
	before := processorTime(b)
	b.ResetTimer()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			permit, err := p.Acquire(b.Context(), penstock.Call{Policy: "api", Key: "a"})
			if err != nil {
				b.Error(err)
				return
			}
			permit.Settle(permits.Result{Status: permits.Done})
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "permits/s")
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/permit")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWaitingCalls measures the memory of a waiting call on both sides.
func BenchmarkWaitingCalls(b *testing.B) {
	const calls = 5000
	p := callsBench(b, 1)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := memory()
	ctx, cancel := context.WithCancel(b.Context())
	var wait sync.WaitGroup
	for range calls {
		wait.Go(func() {
			_, _ = p.Acquire(ctx, penstock.Call{Policy: "api", Key: "a", Wait: permits.MaxWait})
		})
	}
	for waits := false; !waits; {
		r := httptest.NewRequest("GET", "http://localhost/v1/buckets/api/a", nil)
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		waits = strings.Contains(w.Body.String(), `"calls":5000`)
	}
	b.ReportMetric(float64(memory()-before)/calls, "B/call")
	cancel()
	wait.Wait()
}
