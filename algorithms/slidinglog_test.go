package algorithms_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock-mq/penstock/algorithms"
)

func TestSlidingLogTwoPerMinute(t *testing.T) {
	rule := algorithms.SlidingLog{Limit: 2, Window: time.Minute}
	timeline(t, rule, algorithms.SlidingLogState{}, []step{
		{at: "01:00:01", allowed: true},
		{at: "01:00:30", allowed: true},
		// recorded: waits for 1:00:30 to expire
		{at: "01:00:50", allowed: false, retry: 40 * time.Second},
		{at: "01:01:40", allowed: true},
	})
	timeline(t, rule, algorithms.SlidingLogState{}, []step{
		{at: "00:01:00", allowed: true},
		{at: "00:01:20", allowed: true},
		{at: "00:01:45", allowed: false, retry: 35 * time.Second},
		{at: "00:02:25", allowed: true},
	})
}

func TestSlidingLogKeepsAClientOutThatHammers(t *testing.T) {
	hammer := []step{
		{at: "01:00:00", n: 2, allowed: true},
		{at: "01:00:30", allowed: false, retry: 30 * time.Second},
		{at: "01:00:50", allowed: false, retry: 40 * time.Second},
		{at: "01:01:10", allowed: false, retry: 40 * time.Second},
		{at: "01:01:50", allowed: true},
	}
	timeline(t, algorithms.SlidingLog{Limit: 2, Window: time.Minute}, algorithms.SlidingLogState{},
		hammer)
}

func TestSlidingLogCountAcceptedForgivesRefusedRequests(t *testing.T) {
	rule := algorithms.SlidingLog{Limit: 2, Window: time.Minute, CountAccepted: true}
	timeline(t, rule, algorithms.SlidingLogState{}, []step{
		{at: "01:00:00", n: 2, allowed: true},
		{at: "01:00:30", allowed: false, retry: 30 * time.Second},
		{at: "01:00:50", allowed: false, retry: 10 * time.Second},
		{at: "01:01:00", n: 2, allowed: true},
	})
}

func TestSlidingLogKeepsAtMostLimitUnits(t *testing.T) {
	rule := algorithms.SlidingLog{Limit: 50, Window: time.Minute}
	now := at(t, "01:00:00")
	var s algorithms.SlidingLogState
	for i := range 10_000 {
		s, _ = rule.Take(s, now.Add(time.Duration(i)*time.Millisecond), int64(1+i%50))
		if s.Units > 50 || s.Size() > 8*200 {
			t.Fatalf("after %d requests: %d units in %d bytes", i+1, s.Units, s.Size())
		}
	}
	if s, _ = rule.TakeUpTo(s, now, 1<<62); s.Units != 50 {
		t.Errorf("%d units, want 50", s.Units)
	}
}

func TestSlidingLogLeavesTheStateItWasGivenReadable(t *testing.T) {
	rule := algorithms.SlidingLog{Limit: 3, Window: time.Minute}
	s, _ := rule.Take(algorithms.SlidingLogState{}, at(t, "02:00:00"), 3)
	before := rule.Peek(s, at(t, "02:00:10"), 1)
	rule.Take(s, at(t, "01:00:00"), 1)
	rule.Take(s, at(t, "02:00:10"), 2)
	if after := rule.Peek(s, at(t, "02:00:10"), 1); after != before {
		t.Errorf("got %+v, want %+v", after, before)
	}
}

type naiveLog struct {
	rule  algorithms.SlidingLog
	times []int64
}

func (l *naiveLog) inWindow(t int64) int64 {
	l.times = slices.DeleteFunc(l.times, func(recorded int64) bool {
		return recorded <= t-l.rule.Window.Microseconds()
	})
	for i := range l.times {
		l.times[i] = min(l.times[i], t) // the clock stepped back
	}
	return int64(len(l.times))
}

func (l *naiveLog) ask(now time.Time, n int64) (allowed bool, remaining int64) {
	t := now.UnixMicro()
	allowed = l.inWindow(t)+n <= l.rule.Limit
	if allowed || !l.rule.CountAccepted {
		for range n {
			l.times = append(l.times, t)
		}
	}
	return allowed, max(0, l.rule.Limit-l.inWindow(t))
}

func TestSlidingLogDecidesAsTheUnboundedLogDoes(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		rule := algorithms.SlidingLog{Limit: 1 + random.Int64N(12), Window: time.Second,
			CountAccepted: seed%2 == 0}
		naive, now := &naiveLog{rule: rule}, at(t, "01:00:00")
		var s algorithms.SlidingLogState
		for i := range 300 {
			now = now.Add(time.Duration(random.ExpFloat64() * float64(200*time.Millisecond)))
			if random.IntN(20) == 0 {
				now = now.Add(-time.Duration(random.Int64N(int64(2 * time.Second))))
			}
			n := 1 + random.Int64N(rule.Limit)
			var d algorithms.Decision
			s, d = rule.Take(s, now, n)
			if allowed, remaining := naive.ask(now, n); d.Allowed != allowed ||
				d.Remaining != remaining {
				t.Fatalf(
					"seed %d, request %d: %d units: %+v; the unbounded log says %t and leaves %d",
					seed, i, n, d, allowed, remaining)
			}
		}
	}
}

// BenchmarkSlidingLogMemory measures full logs: of single units, of a language model's tokens, and
// of a large limit.
func BenchmarkSlidingLogMemory(b *testing.B) {
	for _, c := range []struct{ limit, cost int64 }{{50, 1}, {1000, 1}, {90_000, 1200},
		{90_000, 1}} {
		b.Run(fmt.Sprintf("limit=%d/cost=%d", c.limit, c.cost), func(b *testing.B) {
			rule := algorithms.SlidingLog{Limit: c.limit, Window: time.Minute, CountAccepted: true}
			var s algorithms.SlidingLogState
			for b.Loop() {
				s = algorithms.SlidingLogState{}
				now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
				for range c.limit / c.cost {
					s, _ = rule.Take(s, now, c.cost)
					now = now.Add(rule.Window * time.Duration(c.cost) / time.Duration(c.limit+1))
				}
			}
			b.ReportMetric(float64(s.Size())+float64(unsafe.Sizeof(s)), "bytes")
		})
	}
}
