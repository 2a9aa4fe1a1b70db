package algorithms_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// A refund after the end of a window is subtracted from the previous window, where the units count.
func TestARefundReachesIntoTheWindowBefore(t *testing.T) {
	rule := algorithms.SlidingCounter{Limit: 4, Window: time.Minute}
	s := timeline(t, rule, algorithms.SlidingCounterState{}, []step{
		{at: "01:00:50", n: 3, allowed: true},
		{at: "01:01:00", n: 1, allowed: true},
		{at: "01:01:00", allowed: false, retry: time.Microsecond},
	})
	s = rule.Refund(s, at(t, "01:01:00"), 3)
	if d := rule.Peek(s, at(t, "01:01:00"), 1); d.Remaining != 3 {
		t.Errorf("remaining %d of 4 after all but one were given back, want 3", d.Remaining)
	}
}

func TestARefundOfWhatHasRefilledLeavesTheBucketAsNew(t *testing.T) {
	rule := algorithms.TokenBucket{Capacity: 2, Refill: algorithms.Rate{Count: 3, Per: time.Minute}}
	s := timeline(t, rule, algorithms.TokenBucketState{},
		[]step{{at: "01:00:00", n: 2, allowed: true}})
	if s = rule.Refund(s, at(t, "01:02:00"), 2); s != (algorithms.TokenBucketState{}) {
		t.Errorf("the state is %+v, want that of a key never seen", s)
	}
}
