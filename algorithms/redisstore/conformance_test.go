package redisstore

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/kit/algorithmstest"
)

func conform[S any](rule algorithms.Rule[S]) func(t *testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		rdb := server.Client()
		defer rdb.Close()
		algorithmstest.Run(t, rule, func(_ *testing.T,
			now func() time.Time) algorithmstest.Limiter {
			c := newClientOf(rdb, Options{})
			c.now = now
			return New(c, "policy", rule)
		})
	}
}

func TestConformance(t *testing.T) {
	week := algorithms.Rate{Count: 1, Per: 7 * 24 * time.Hour}
	t.Run("token bucket", conform(algorithms.TokenBucket{Capacity: 10, Refill: perSecond(5)}))
	t.Run("odd token bucket", conform(algorithms.TokenBucket{
		Capacity: 40, Refill: algorithms.Rate{Count: 7, Per: 3 * time.Second},
	}))
	t.Run("fast token bucket",
		conform(algorithms.TokenBucket{Capacity: 5000, Refill: perSecond(600_000)}))
	t.Run("large token bucket", conform(algorithms.TokenBucket{
		Capacity: algorithms.MaxLimit,
		Refill:   algorithms.Rate{Count: 999_999_937, Per: 1009 * time.Second},
	}))
	t.Run("slow token bucket", conform(algorithms.TokenBucket{Capacity: 3, Refill: week}))
	t.Run("leaking bucket", conform(algorithms.LeakingBucket{Capacity: 20, Outflow: perSecond(7)}))
	t.Run("leaking bucket with burst", conform(algorithms.LeakingBucket{
		Capacity: 20, Outflow: algorithms.Rate{Count: 7, Per: 3 * time.Second}, Burst: 4,
	}))
	t.Run("fixed window", conform(algorithms.FixedWindow{Limit: 10, Window: time.Minute}))
	t.Run("short fixed window", conform(algorithms.FixedWindow{Limit: 3, Window: time.Second}))
	t.Run("large fixed window",
		conform(algorithms.FixedWindow{Limit: algorithms.MaxLimit, Window: 48 * time.Hour}))
	t.Run("fixed window since the epoch", conform(
		algorithms.FixedWindow{Limit: 10, Window: 35 * 24 * time.Hour, SinceEpoch: true}))
	t.Run("sliding counter", conform(algorithms.SlidingCounter{Limit: 9, Window: 10 * time.Second}))
	t.Run("large sliding counter", conform(algorithms.SlidingCounter{
		Limit: algorithms.MaxLimit - 11, Window: 24*time.Hour + time.Microsecond,
	}))
	t.Run("sliding log", conform(algorithms.SlidingLog{Limit: 6, Window: 10 * time.Second}))
	t.Run("large sliding log", conform(algorithms.SlidingLog{Limit: 2500, Window: time.Minute}))
	t.Run("sliding log of accepted",
		conform(algorithms.SlidingLog{Limit: 60, Window: time.Minute, CountAccepted: true}))
	t.Run("large sliding log of accepted", conform(algorithms.SlidingLog{
		Limit: 2500, Window: 7 * time.Second, CountAccepted: true,
	}))
}
