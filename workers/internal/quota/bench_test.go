package quota_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// BenchmarkClockSetBack measures a used-up limit whose clock was set back by 30 days: how long it
// holds the next job, and the cost of each question.
func BenchmarkClockSetBack(b *testing.B) {
	for _, algorithm := range []policy.Algorithm{policy.FixedWindow, policy.SlidingCounter} {
		b.Run(string(algorithm), func(b *testing.B) {
			l := quota.New(policy.Policy{Name: "p", Rule: policy.Rule{
				Algorithm: policy.LeakingBucket, Capacity: 100},
				Limits: policy.Limits{{Name: "l", Rule: policy.Rule{Algorithm: algorithm, Limit: 5,
					Window: policy.Duration(time.Second)}}}}.WithDefaults())
			now := at(10 * time.Second)
			used, _ := l.Take(nil, now, quota.Cost{Job: 5})
			now.Wall = now.Wall.Add(-30 * 24 * time.Hour)
			var wait time.Duration
			for b.Loop() {
				wait, _ = l.Next(used, now, quota.Cost{Job: 1})
			}
			b.ReportMetric(wait.Seconds(), "s-held")
		})
	}
}
