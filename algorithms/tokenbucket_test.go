package algorithms_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func TestTokenBucketOfThreeRefilledThreePerMinute(t *testing.T) {
	rule := algorithms.TokenBucket{Capacity: 3, Refill: perMinute(3)}
	s := timeline(t, rule, algorithms.TokenBucketState{}, []step{
		{at: "01:00:00", allowed: true},
		{at: "01:00:00", allowed: true},
		{at: "01:00:05", allowed: true},
		{at: "01:00:10", allowed: false, retry: 10 * time.Second},
	})
	// 55 s after the third request, a minute after the first two, the bucket is full.
	if d := rule.Peek(s, at(t, "01:01:00"), 3); !d.Allowed || d.Remaining != 3 ||
		d.ResetAfter != 0 {
		t.Errorf("a minute later: %+v, want a full bucket", d)
	}
}

func TestTokenBucketPassesFourAcrossARefill(t *testing.T) {
	// The documented bound, Capacity + Refill·T, is 5 in 0.67 minutes.
	rule := algorithms.TokenBucket{Capacity: 3, Refill: perMinute(3)}
	timeline(t, rule, algorithms.TokenBucketState{}, []step{
		{at: "01:00:30", n: 3, allowed: true},
		{at: "01:00:35", allowed: false, retry: 15 * time.Second},
		{at: "01:01:10", allowed: true},
	})
}

func TestTokenBucketTakesACostWholeOrNotAtAll(t *testing.T) {
	rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond(2)}
	timeline(t, rule, algorithms.TokenBucketState{}, []step{
		{at: "01:00:00", n: 8, allowed: true},
		{at: "01:00:00", n: 3, allowed: false, retry: 500 * time.Millisecond},
		{at: "01:00:00", n: 2, allowed: true},
		{at: "01:00:00", n: 10, allowed: false, retry: 5 * time.Second},
	})
}

func TestTokenBucketDecision(t *testing.T) {
	rule := algorithms.TokenBucket{Capacity: 10, Refill: perSecond(3)}
	now := at(t, "01:00:00")
	s, d := rule.Take(algorithms.TokenBucketState{}, now, 4)
	want := algorithms.Decision{
		Allowed: true, Granted: 4, Limit: 10, Remaining: 6, ResetAfter: 1333334 * time.Microsecond,
	}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
	_, d = rule.Take(s, now, 8)
	want = algorithms.Decision{
		Limit: 10, Remaining: 6, RetryAfter: 666667 * time.Microsecond,
		ResetAfter: 1333334 * time.Microsecond,
	}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
}

func TestTokenBucketIsNotLockedByAClockThatStepsBack(t *testing.T) {
	rule := algorithms.TokenBucket{Capacity: 3, Refill: perMinute(3)}
	timeline(t, rule, algorithms.TokenBucketState{}, []step{
		{at: "05:00:00", n: 2, allowed: true},
		{at: "01:00:00", allowed: false, retry: 20 * time.Second},
		{at: "01:00:20", allowed: true},
		{at: "01:00:20", allowed: false, retry: 20 * time.Second},
	})
}
