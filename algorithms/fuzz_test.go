package algorithms_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Each fuzz target decodes a rule and a history of requests, replays the history, and checks the
// rule's guarantees after every step.

func TestHistories(t *testing.T) {
	for name, playOne := range map[string]func(*testing.T, []byte){
		"token bucket": playTokenBucket, "leaking bucket": playLeakingBucket,
		"fixed window": playFixedWindow, "calendar window": playCalendarWindow,
		"sliding counter": playSlidingCounter, "sliding log": playSlidingLog,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(1000) {
				random := rand.New(rand.NewPCG(seed, 0))
				data := make([]byte, 600)
				for i := range data {
					data[i] = byte(random.Uint32())
				}
				func() {
					defer func() {
						if t.Failed() {
							t.Logf("seed %d", seed)
						}
					}()
					playOne(t, data)
				}()
			}
		})
	}
}

func seeds(f *testing.F) {
	f.Add([]byte{})
	f.Add(
		[]byte(
			"\x00\x01\x00\x05\x01\x03\x02\x00\x00\x01\x00\x00\x02\x01\x00\x01\x01\x00\x03\x00\x06" +
				"\x02\x07\x07\x00"))
	long := make([]byte, 400)
	for i := range long {
		long[i] = byte(i*i*7 + i>>2)
	}
	f.Add(long)
}

func FuzzTokenBucket(f *testing.F) {
	seeds(f)
	f.Fuzz(playTokenBucket)
}

func playTokenBucket(t *testing.T, data []byte) {
	in := &script{data}
	rule := algorithms.TokenBucket{Refill: in.rate(),
		Capacity: 1 + in.number(algorithms.MaxLimit-1)}
	if rule.Validate() != nil {
		return
	}
	if in.byte()%2 == 0 {
		s := algorithms.TokenBucketState{FullAt: in.number(math.MaxInt64),
			Frac: in.number(math.MaxInt64)}
		play(t, rule, s, in, true, nil)
		return
	}
	history := play(t, rule, algorithms.TokenBucketState{}, in, false, nil)
	checkBound(t, history, func(forward int64) int64 {
		return rule.Capacity + scaled(forward, rule.Refill.Count, rule.Refill.Per.Microseconds())
	})
}

func FuzzLeakingBucket(f *testing.F) {
	seeds(f)
	f.Fuzz(playLeakingBucket)
}

func playLeakingBucket(t *testing.T, data []byte) {
	in := &script{data}
	rule := algorithms.LeakingBucket{Outflow: in.rate(),
		Capacity: 1 + in.number(algorithms.MaxLimit-1)}
	rule.Burst = in.number(rule.Capacity)
	if rule.Validate() != nil {
		return
	}
	if in.byte()%2 == 0 {
		s := algorithms.LeakingBucketState{EmptyAt: in.number(math.MaxInt64),
			Frac: in.number(math.MaxInt64)}
		play(t, rule, s, in, true, nil)
		return
	}
	var departures []passed
	steady, last := true, int64(0)
	history := play(t, rule, algorithms.LeakingBucketState{}, in, false,
		func(now time.Time, _ int64, _ bool, d algorithms.Decision) {
			steady = steady && now.UnixMicro() >= last
			last = now.UnixMicro()
			departures = append(departures, passed{last + d.Delay.Microseconds(), d.Granted})
		})
	admitted := func(forward int64) int64 {
		return rule.Capacity + scaled(forward, rule.Outflow.Count, rule.Outflow.Per.Microseconds())
	}
	checkBound(t, history, admitted)
	if !steady {
		return
	}
	var leaving []passed
	for _, d := range departures {
		if d.units > 0 {
			leaving = append(leaving, d)
		}
	}
	for i := 1; i < len(leaving); i++ {
		if leaving[i].forward < leaving[i-1].forward {
			t.Fatalf("departs at %d, before an earlier one at %d", leaving[i].forward,
				leaving[i-1].forward)
		}
	}
	// A request proceeds with its last unit; earlier units left before. So only the last unit of
	// the first request is sure to lie in the stretch.
	for i := range leaving {
		units := int64(1)
		for j := i + 1; j < len(leaving); j++ {
			units += leaving[j].units
			forward := leaving[j].forward - leaving[i].forward + 1
			most := max(rule.Burst, 1) +
				scaled(forward, rule.Outflow.Count, rule.Outflow.Per.Microseconds())
			if units > most {
				t.Fatalf("%d units leave within %d µs, the bound is %d", units, forward, most)
			}
		}
	}
}

func FuzzFixedWindow(f *testing.F) {
	seeds(f)
	f.Fuzz(playFixedWindow)
}

func playFixedWindow(t *testing.T, data []byte) {
	in := &script{data}
	rule := algorithms.FixedWindow{Window: in.window(), Limit: 1 + in.number(algorithms.MaxLimit-1)}
	if rule.Validate() != nil {
		return
	}
	if in.byte()%2 == 0 {
		s := algorithms.FixedWindowState{Start: in.number(math.MaxInt64),
			Used: in.number(math.MaxInt64)}
		play(t, rule, s, in, true, nil)
		return
	}
	history := play(t, rule, algorithms.FixedWindowState{}, in, false, nil)
	checkBound(t, history, func(forward int64) int64 {
		if forward > rule.Window.Microseconds() {
			return -1
		}
		return 2 * rule.Limit
	})
}

func FuzzCalendarWindow(f *testing.F) {
	seeds(f)
	f.Fuzz(playCalendarWindow)
}

func playCalendarWindow(t *testing.T, data []byte) {
	in := &script{data}
	rule := algorithms.FixedWindow{Limit: 1 + in.number(algorithms.MaxLimit-1),
		Window: []time.Duration{24 * time.Hour, 7 * 24 * time.Hour,
			algorithms.Month}[in.number(2)]}
	zones := []string{"UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe"}
	rule.Zone = location(t, zones[in.number(3)])
	if in.byte()%2 == 0 {
		s := algorithms.FixedWindowState{Start: in.number(math.MaxInt64),
			Used: in.number(math.MaxInt64)}
		play(t, rule, s, in, true, nil)
		return
	}
	history := play(t, rule, algorithms.FixedWindowState{}, in, false, nil)
	checkBound(t, history, func(forward int64) int64 {
		if forward > rule.Window.Microseconds()*3/4 {
			return -1
		}
		return 2 * rule.Limit
	})
}

func FuzzSlidingCounter(f *testing.F) {
	seeds(f)
	f.Fuzz(playSlidingCounter)
}

func playSlidingCounter(t *testing.T, data []byte) {
	in := &script{data}
	rule := algorithms.SlidingCounter{Window: in.window(),
		Limit: 1 + in.number(algorithms.MaxLimit-1)}
	if rule.Validate() != nil {
		return
	}
	if in.byte()%2 == 0 {
		s := algorithms.SlidingCounterState{
			Start: in.number(math.MaxInt64), Previous: in.number(math.MaxInt64),
			Current: in.number(math.MaxInt64),
		}
		play(t, rule, s, in, true, nil)
		return
	}
	history := play(t, rule, algorithms.SlidingCounterState{}, in, false, nil)
	window := rule.Window.Microseconds()
	checkBound(t, history, func(forward int64) int64 {
		if forward > window {
			return -1
		}
		return 2*rule.Limit - scaled(rule.Limit, window-forward, window)
	})
}

func FuzzSlidingLog(f *testing.F) {
	seeds(f)
	f.Fuzz(playSlidingLog)
}

func playSlidingLog(t *testing.T, data []byte) {
	in := &script{data}
	rule := algorithms.SlidingLog{Window: in.window(), CountAccepted: in.byte()%2 == 0}
	rule.Limit = 1 + in.number(int64(40))
	if rule.Validate() != nil {
		return
	}
	if in.byte()%2 == 0 {
		other := rule
		other.Limit, other.Window = 1+in.number(80), in.window()
		s, _ := other.TakeUpTo(algorithms.SlidingLogState{}, time.UnixMicro(in.number(4e15)),
			1+in.number(80))
		s, _ = other.TakeUpTo(s, time.UnixMicro(in.number(4e15)), 1+in.number(80))
		play(t, rule, s, in, true, nil)
		return
	}
	naive := &naiveLog{rule: rule}
	history := play(t, rule, algorithms.SlidingLogState{}, in, false,
		func(now time.Time, n int64, upTo bool, d algorithms.Decision) {
			var want, remaining int64
			if !upTo {
				var allowed bool
				if allowed, remaining = naive.ask(now, n); allowed {
					want = n
				}
			} else {
				for range min(n, 2*rule.Limit) {
					var allowed bool
					if allowed, remaining = naive.ask(now, 1); allowed {
						want++
					}
				}
			}
			if d.Granted != want || d.Remaining != remaining {
				t.Fatalf(
					"%d units (up to: %t) at %s: %+v; the unbounded log grants %d and leaves %d",
					n, upTo, now, d, want, remaining)
			}
		})
	checkBound(t, history, func(forward int64) int64 {
		if forward >= rule.Window.Microseconds() {
			return -1
		}
		return rule.Limit
	})
}
