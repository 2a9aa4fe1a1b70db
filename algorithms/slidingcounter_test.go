package algorithms_test

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func TestSlidingCounterSevenPerMinute(t *testing.T) {
	// 3 + 5·0.7 = 6.5: the request passes, the next one does not.
	rule := algorithms.SlidingCounter{Limit: 7, Window: time.Minute}
	s := timeline(t, rule, algorithms.SlidingCounterState{}, []step{
		{at: "01:00:10", n: 5, allowed: true},
		{at: "01:01:12", n: 3, allowed: true},
	})
	if d := rule.Peek(s, at(t, "01:01:18"), 1); d.Remaining != 1 {
		t.Errorf("remaining %d, want 1", d.Remaining)
	}
	timeline(t, rule, s, []step{
		{at: "01:01:18", allowed: true},
		// ⌊5·(60−e)/60⌋ must fall from 3 to 2: just after e = 24 s.
		{at: "01:01:18", allowed: false, retry: 6*time.Second + time.Microsecond},
	})
}

func TestSlidingCounterHundredPerMinute(t *testing.T) {
	// 88·0.75 + 12 = 78.
	rule := algorithms.SlidingCounter{Limit: 100, Window: time.Minute}
	s := timeline(t, rule, algorithms.SlidingCounterState{}, []step{
		{at: "01:00:50", n: 88, allowed: true},
		{at: "01:01:15", n: 12, allowed: true},
	})
	if d := rule.Peek(s, at(t, "01:01:15"), 22); !d.Allowed || d.Remaining != 22 {
		t.Errorf("got %+v, want 22 remaining", d)
	}
	timeline(t, rule, s, []step{{at: "01:01:15", allowed: true}})
}

func TestSlidingCounterRetryAfterReachesIntoTheNextWindow(t *testing.T) {
	rule := algorithms.SlidingCounter{Limit: 4, Window: time.Minute}
	timeline(t, rule, algorithms.SlidingCounterState{}, []step{
		{at: "01:00:30", n: 4, allowed: true},
		// In the next window 4·(60−e)/60 falls below 4 at once, below 3 just after e = 15 s.
		{at: "01:00:30", allowed: false, retry: 30*time.Second + time.Microsecond},
		{at: "01:00:30", n: 2, allowed: false, retry: 45*time.Second + time.Microsecond},
		{at: "01:01:15.000001", n: 2, allowed: true},
	})
}

func TestSlidingCounterForgetsAfterTwoWindows(t *testing.T) {
	rule := algorithms.SlidingCounter{Limit: 4, Window: time.Minute}
	timeline(t, rule, algorithms.SlidingCounterState{}, []step{
		{at: "01:00:59", n: 4, allowed: true},
		{at: "01:02:00", n: 4, allowed: true},
	})
}
