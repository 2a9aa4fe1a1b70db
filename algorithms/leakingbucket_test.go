package algorithms_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func TestLeakingBucketDelaysUntilDeparture(t *testing.T) {
	rule := algorithms.LeakingBucket{Capacity: 3, Outflow: perSecond(2)}
	timeline(t, rule, algorithms.LeakingBucketState{}, []step{
		{at: "01:00:00", allowed: true},
		{at: "01:00:00", allowed: true, delay: 500 * time.Millisecond},
		{at: "01:00:00", allowed: true, delay: time.Second},
		{at: "01:00:00", allowed: false, retry: 500 * time.Millisecond},
		{at: "01:00:00.5", allowed: true, delay: time.Second},
		{at: "01:00:01.75", allowed: true, delay: 250 * time.Millisecond},
		{at: "01:00:09", allowed: true},
	})
}

func TestLeakingBucketCostLeavesWithItsLastUnit(t *testing.T) {
	rule := algorithms.LeakingBucket{Capacity: 5, Outflow: perSecond(1)}
	timeline(t, rule, algorithms.LeakingBucketState{}, []step{
		{at: "01:00:00", n: 3, allowed: true, delay: 2 * time.Second},
		{at: "01:00:00", n: 3, allowed: false, retry: time.Second},
		{at: "01:00:01", n: 3, allowed: true, delay: 4 * time.Second},
	})
}

func TestLeakingBucketOfOneHasNoDelay(t *testing.T) {
	rule := algorithms.LeakingBucket{Capacity: 1, Outflow: perSecond(5)}
	timeline(t, rule, algorithms.LeakingBucketState{}, []step{
		{at: "01:00:00", allowed: true},
		{at: "01:00:00.1", allowed: false, retry: 100 * time.Millisecond},
		{at: "01:00:00.2", allowed: true},
	})
}

func TestLeakingBucketBurstLeavesTogether(t *testing.T) {
	rule := algorithms.LeakingBucket{Capacity: 5, Outflow: perSecond(1), Burst: 3}
	timeline(t, rule, algorithms.LeakingBucketState{}, []step{
		{at: "01:00:00", allowed: true},
		{at: "01:00:00", allowed: true},
		{at: "01:00:00", allowed: true},
		{at: "01:00:00", allowed: true, delay: time.Second},
		{at: "01:00:00", allowed: true, delay: 2 * time.Second},
		{at: "01:00:00", allowed: false, retry: time.Second},
		{at: "01:00:03", allowed: true},
		{at: "01:00:03", allowed: true, delay: time.Second},
	})
}

func TestLeakingBucketTakesUpToItsRoom(t *testing.T) {
	rule := algorithms.LeakingBucket{Capacity: 3, Outflow: perSecond(2)}
	_, d := rule.TakeUpTo(algorithms.LeakingBucketState{}, at(t, "01:00:00"), 7)
	want := algorithms.Decision{
		Allowed: true, Granted: 3, Limit: 3, ResetAfter: 1500 * time.Millisecond,
		Delay: time.Second,
	}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
}
