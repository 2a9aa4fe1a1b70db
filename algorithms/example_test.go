package algorithms_test

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func show(d algorithms.Decision) {
	if d.Allowed {
		fmt.Printf("allowed %d, %d of %d remain, go ahead in %s\n", d.Granted, d.Remaining, d.Limit,
			d.Delay)
	} else {
		fmt.Printf("refused, %d of %d remain, come back in %s\n", d.Remaining, d.Limit,
			d.RetryAfter)
	}
}

func ExampleTokenBucket() {
	bucket := algorithms.TokenBucket{Capacity: 3,
		Refill: algorithms.Rate{Count: 3, Per: time.Minute}}
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)

	var state algorithms.TokenBucketState // a fresh key
	var d algorithms.Decision
	for range 2 {
		state, d = bucket.Take(state, now, 2)
		show(d)
	}
	_, d = bucket.Take(state, now.Add(20*time.Second), 2)
	show(d)
	// Output:
	// allowed 2, 1 of 3 remain, go ahead in 0s
	// refused, 1 of 3 remain, come back in 20s
	// allowed 2, 0 of 3 remain, go ahead in 0s
}

func ExampleLeakingBucket() {
	bucket := algorithms.LeakingBucket{Capacity: 3,
		Outflow: algorithms.Rate{Count: 2, Per: time.Second}}
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)

	var state algorithms.LeakingBucketState
	var d algorithms.Decision
	for range 4 {
		state, d = bucket.Take(state, now, 1)
		show(d)
	}
	// Output:
	// allowed 1, 2 of 3 remain, go ahead in 0s
	// allowed 1, 1 of 3 remain, go ahead in 500ms
	// allowed 1, 0 of 3 remain, go ahead in 1s
	// refused, 0 of 3 remain, come back in 500ms
}

func ExampleFixedWindow() {
	window := algorithms.FixedWindow{Limit: 5, Window: time.Minute}
	now := time.Date(2026, 3, 2, 1, 0, 59, 0, time.UTC)

	var state algorithms.FixedWindowState
	var d algorithms.Decision
	for _, after := range []time.Duration{0, 0, time.Second} { // the last one is in the next minute
		state, d = window.Take(state, now.Add(after), 5)
		show(d)
	}
	// Output:
	// allowed 5, 0 of 5 remain, go ahead in 0s
	// refused, 0 of 5 remain, come back in 1s
	// allowed 5, 0 of 5 remain, go ahead in 0s
}

func ExampleSlidingLog() {
	log := algorithms.SlidingLog{Limit: 2, Window: time.Minute}
	start := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)

	var state algorithms.SlidingLogState
	var d algorithms.Decision
	for _, second := range []time.Duration{1, 30, 50, 100} { // the refused one counts too
		state, d = log.Take(state, start.Add(second*time.Second), 1)
		show(d)
	}
	// Output:
	// allowed 1, 1 of 2 remain, go ahead in 0s
	// allowed 1, 0 of 2 remain, go ahead in 0s
	// refused, 0 of 2 remain, come back in 40s
	// allowed 1, 0 of 2 remain, go ahead in 0s
}

func ExampleSlidingCounter() {
	counter := algorithms.SlidingCounter{Limit: 100, Window: time.Minute}
	start := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)

	var state algorithms.SlidingCounterState
	state, _ = counter.Take(state, start.Add(50*time.Second), 88)
	state, _ = counter.Take(state, start.Add(75*time.Second), 12)
	// A quarter into the second minute: 88·0.75 + 12 = 78.
	show(counter.Peek(state, start.Add(75*time.Second), 30))
	// Output:
	// refused, 22 of 100 remain, come back in 4.772728s
}

func ExampleTokenBucket_TakeUpTo() {
	bucket := algorithms.TokenBucket{Capacity: 5,
		Refill: algorithms.Rate{Count: 1, Per: time.Second}}
	now := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)

	state, d := bucket.TakeUpTo(algorithms.TokenBucketState{}, now, 8)
	show(d)
	state = bucket.Refund(state, now, 2) // two were not used
	show(bucket.Peek(state, now, 3))
	// Output:
	// allowed 5, 0 of 5 remain, go ahead in 0s
	// refused, 2 of 5 remain, come back in 1s
}

// The API allows two calls a second, as they arrive. The first answer takes long.
func ExampleHolding() {
	calls := algorithms.Holding[algorithms.SlidingLogState]{
		Rule: algorithms.SlidingLog{Limit: 2, Window: time.Second}}
	start := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)

	var held algorithms.Held[algorithms.SlidingLogState]
	held, _ = calls.Start(held, start, 1)
	held, _ = calls.Start(held, start, 1)
	fmt.Println("after 5 s:", calls.Peek(held, start.Add(5*time.Second), 1).Allowed)

	answered := start.Add(6 * time.Second)
	held = calls.Answer(held, answered, answered, 1)
	show(calls.Peek(held, answered, 1))
	// Output:
	// after 5 s: false
	// refused, 0 of 2 remain, come back in 1s
}
