package algorithms_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func everyRule(t *testing.T, check func(t *testing.T, c checks)) {
	t.Run("token bucket", func(t *testing.T) {
		check(t, checksOf(algorithms.TokenBucket{Capacity: 6, Refill: perSecond(7)}))
	})
	t.Run("leaking bucket", func(t *testing.T) {
		check(t, checksOf(algorithms.LeakingBucket{Capacity: 6, Outflow: perSecond(7), Burst: 2}))
	})
	t.Run("fixed window", func(t *testing.T) {
		check(t, checksOf(algorithms.FixedWindow{Limit: 6, Window: time.Second}))
	})
	t.Run("sliding counter", func(t *testing.T) {
		check(t, checksOf(algorithms.SlidingCounter{Limit: 6, Window: time.Second}))
	})
	t.Run("sliding log", func(t *testing.T) {
		check(t, checksOf(algorithms.SlidingLog{Limit: 6, Window: time.Second}))
	})
	t.Run("sliding log of accepted", func(t *testing.T) {
		check(t,
			checksOf(algorithms.SlidingLog{Limit: 6, Window: time.Second, CountAccepted: true}))
	})
}

type checks struct {
	take, takeUpTo func(now time.Time, n int64) algorithms.Decision
	peek           func(now time.Time, n int64) algorithms.Decision
	refund         func(now time.Time, n int64)
	fork           func() checks
}

func checksOf[S any](rule algorithms.Rule[S]) checks {
	var zero S
	return checksFrom(rule, zero)
}

func checksFrom[S any](rule algorithms.Rule[S], s S) checks {
	return checks{
		take: func(now time.Time, n int64) (d algorithms.Decision) {
			s, d = rule.Take(s, now, n)
			return d
		},
		takeUpTo: func(now time.Time, n int64) (d algorithms.Decision) {
			s, d = rule.TakeUpTo(s, now, n)
			return d
		},
		peek:   func(now time.Time, n int64) algorithms.Decision { return rule.Peek(s, now, n) },
		refund: func(now time.Time, n int64) { s = rule.Refund(s, now, n) },
		fork:   func() checks { return checksFrom(rule, clone(s)) },
	}
}

func TestTakeUpToIsManyTakesOfOne(t *testing.T) {
	everyRule(t, func(t *testing.T, c checks) {
		now := at(t, "01:00:00")
		for _, n := range []int64{2, 1, 9, 3, 1, 50, 4} {
			now = now.Add(170 * time.Millisecond)
			one := c.fork()
			d := c.takeUpTo(now, n)
			var granted int64
			var last algorithms.Decision
			for range n {
				last = one.take(now, 1)
				granted += last.Granted
			}
			if d.Granted != granted || d.Remaining != last.Remaining ||
				d.ResetAfter != last.ResetAfter {
				t.Errorf("up to %d: %+v; one by one %d pass, the last says %+v", n, d, granted,
					last)
			}
			if d.Granted == 0 && d.RetryAfter != last.RetryAfter {
				t.Errorf("up to %d: retry after %s, one by one %s", n, d.RetryAfter,
					last.RetryAfter)
			}
		}
	})
}

func TestPeekChangesNothing(t *testing.T) {
	everyRule(t, func(t *testing.T, c checks) {
		now := at(t, "01:00:00")
		for _, n := range []int64{4, 1, 3, 2, 6} {
			now = now.Add(90 * time.Millisecond)
			before := c.peek(now, n)
			if again := c.peek(now, n); again != before {
				t.Errorf("peeked %+v, then %+v", before, again)
			}
			d := c.take(now, n)
			if d.Allowed != before.Allowed || d.Allowed && before.Remaining-n != d.Remaining ||
				d.Delay != before.Delay {
				t.Errorf("peeked %+v, took %+v", before, d)
			}
		}
	})
}

func TestRefundAtOnceLeavesNoTrace(t *testing.T) {
	everyRule(t, func(t *testing.T, c checks) {
		now := at(t, "01:00:00.1")
		c.take(now, 3)
		now = now.Add(50 * time.Millisecond)
		before := c.peek(now, 2)
		if d := c.take(now, 2); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		c.refund(now, 2)
		if after := c.peek(now, 2); after != before {
			t.Errorf("before %+v, after take and refund %+v", before, after)
		}
		c.refund(now, math.MaxInt64)
		if d := c.peek(now, 6); d.Remaining != 6 || d.ResetAfter != 0 {
			t.Errorf("after a refund of everything: %+v", d)
		}
	})
}

func TestFreshKeyTakesMost(t *testing.T) {
	everyRule(t, func(t *testing.T, c checks) {
		now := at(t, "01:00:00.7")
		if d := c.peek(now, 6); !d.Allowed || d.Remaining != 6 || d.Limit != 6 ||
			d.ResetAfter != 0 {
			t.Errorf("peek: %+v", d)
		}
		if d := c.take(now, 6); !d.Allowed || d.Remaining != 0 || d.Granted != 6 {
			t.Errorf("take: %+v", d)
		}
	})
}

func TestCostThatCanNeverPassPanics(t *testing.T) {
	everyRule(t, func(t *testing.T, c checks) {
		now := at(t, "01:00:00")
		for name, call := range map[string]func(){
			"take 0":       func() { c.take(now, 0) },
			"take 7":       func() { c.take(now, 7) },
			"take -1":      func() { c.take(now, -1) },
			"peek 0":       func() { c.peek(now, 0) },
			"peek 7":       func() { c.peek(now, 7) },
			"take up to 0": func() { c.takeUpTo(now, 0) },
			"refund 0":     func() { c.refund(now, 0) },
		} {
			func() {
				defer func() {
					err, _ := recover().(error)
					var cost *algorithms.CostError
					if !errors.As(err, &cost) || cost.Most != 6 ||
						!strings.HasPrefix(err.Error(), "cost ") {
						t.Errorf("%s: panicked with %v, want a CostError", name, err)
					}
				}()
				call()
			}()
		}
	})
}

func TestInstantsOutOfTheOrdinary(t *testing.T) {
	everyRule(t, func(t *testing.T, c checks) {
		for _, now := range []time.Time{
			{}, time.Unix(0, 0), time.Unix(-1, 999), time.Unix(math.MaxInt64, 0),
			time.Unix(math.MinInt64, 0),
			time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
			time.Date(292277, 1, 1, 0, 0, 0, 0, time.UTC),
			time.UnixMicro(1).Add(time.Nanosecond),
			time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC),
		} {
			fresh := c.fork()
			if d := fresh.take(now, 6); !d.Allowed {
				t.Errorf("at %s a fresh key refuses: %+v", now, d)
			}
			if d := fresh.takeUpTo(now, 6); d.Allowed || d.RetryAfter <= 0 {
				t.Errorf("at %s a used key allows: %+v", now, d)
			}
			fresh.refund(now, 1)
			if d := fresh.peek(now, 1); !d.Allowed || d.Remaining != 1 {
				t.Errorf("at %s after a refund: %+v", now, d)
			}
		}
	})
}

// TestRatesAreExact takes units at the earliest instants and compares these with the exact ones:
// the error is at most the rounding of a microsecond.
func TestRatesAreExact(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, rate := range []algorithms.Rate{
		{Count: 1, Per: week}, {Count: 3, Per: week}, {Count: 10, Per: 24 * time.Hour},
		{Count: 7, Per: time.Minute},
		{Count: 3, Per: 10 * time.Second}, perSecond(1), perSecond(7_000), perSecond(600_000),
		perSecond(999_983),
		perSecond(1_000_000), {Count: 1_000, Per: time.Millisecond},
		{Count: 999, Per: 1_234_567 * time.Microsecond},
		{Count: algorithms.MaxCount, Per: 366 * 24 * time.Hour},
		{Count: 999_999_937, Per: 1_000 * time.Second},
	} {
		t.Run(rate.String(), func(t *testing.T) {
			start := time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
			token := algorithms.TokenBucket{Capacity: 5, Refill: rate}
			leaking := algorithms.LeakingBucket{Capacity: 5, Outflow: rate}
			if err := errors.Join(rate.Validate(), token.Validate(), leaking.Validate()); err !=
				nil {
				t.Fatal(err)
			}
			tokens, d := token.Take(algorithms.TokenBucketState{}, start, 5)
			work, _ := leaking.Take(algorithms.LeakingBucketState{}, start, 5)
			now := start
			const units = 20_000
			for n := int64(1); n <= units; n++ {
				if d = token.Peek(tokens, now, 1); !d.Allowed {
					now = now.Add(d.RetryAfter)
				}
				var meter algorithms.Decision
				tokens, d = token.Take(tokens, now, 1)
				work, meter = leaking.Take(work, now, 1)
				want := exactly(n, rate)
				if got := now.UnixMicro() - start.UnixMicro(); !d.Allowed || got != want {
					t.Fatalf("unit %d after %d µs, want %d", n, got, want)
				}
				left := now.Add(meter.Delay).UnixMicro() - start.UnixMicro()
				if want := exactly(n+4, rate); !meter.Allowed || left != want {
					t.Fatalf("unit %d leaves after %d µs, want %d", n, left, want)
				}
			}
		})
	}
}

// exactly returns when n units have come at a rate, in microseconds rounded up.
func exactly(n int64, rate algorithms.Rate) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(rate.Per.Microseconds()))
	product.Add(product, big.NewInt(rate.Count-1))
	return product.Div(product, big.NewInt(rate.Count)).Int64()
}

func TestLargestParameters(t *testing.T) {
	const year = 366 * 24 * time.Hour
	now := at(t, "01:00:00")
	for name, c := range map[string]checks{
		"token bucket": checksOf(algorithms.TokenBucket{Capacity: algorithms.MaxLimit,
			Refill: perSecond(1_000_000)}),
		"slow token bucket": checksOf(algorithms.TokenBucket{
			Capacity: 100, Refill: algorithms.Rate{Count: 1, Per: year}}),
		"leaking bucket": checksOf(algorithms.LeakingBucket{Capacity: algorithms.MaxLimit,
			Outflow: perSecond(1_000_000)}),
		"fixed window": checksOf(algorithms.FixedWindow{Limit: algorithms.MaxLimit,
			Window: year}),
		"sliding counter": checksOf(algorithms.SlidingCounter{Limit: algorithms.MaxLimit,
			Window: year}),
		"sliding log": checksOf(algorithms.SlidingLog{Limit: algorithms.MaxLogLimit,
			Window: year}),
	} {
		most := c.peek(now, 1).Limit
		if d := c.take(now, most); !d.Allowed || d.Remaining != 0 || d.ResetAfter <= 0 {
			t.Errorf("%s: %+v", name, d)
		}
		d := c.take(now, most)
		if d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("%s: %+v", name, d)
		}
		if early := c.fork().take(now.Add(d.RetryAfter-time.Microsecond), most); early.Allowed {
			t.Errorf("%s: passes before retry-after: %+v", name, early)
		}
		if due := c.fork().take(now.Add(d.RetryAfter), most); !due.Allowed {
			t.Errorf("%s: refused at retry-after: %+v", name, due)
		}
	}
}

func TestParametersMayChange(t *testing.T) {
	now := at(t, "01:00:00")
	t.Run("token bucket", func(t *testing.T) {
		s, _ := algorithms.TokenBucket{Capacity: 1000,
			Refill: perMinute(7)}.Take(algorithms.TokenBucketState{}, now, 1000)
		d := algorithms.TokenBucket{Capacity: 10, Refill: perSecond(5)}.Peek(s, now, 1)
		if d.Remaining != 0 || d.RetryAfter != 200*time.Millisecond ||
			d.ResetAfter != 2*time.Second {
			t.Errorf("%+v, want an empty bucket of the new size", d)
		}
	})
	t.Run("fixed window", func(t *testing.T) {
		s, _ := algorithms.FixedWindow{Limit: 100,
			Window: time.Minute}.Take(algorithms.FixedWindowState{}, now, 60)
		d := algorithms.FixedWindow{Limit: 10, Window: time.Hour}.Peek(s, now, 1)
		if d.Remaining != 0 || d.RetryAfter != time.Hour {
			t.Errorf("%+v, want nothing left in the hour", d)
		}
	})
	t.Run("sliding counter", func(t *testing.T) {
		s, _ := algorithms.SlidingCounter{Limit: 100,
			Window: time.Minute}.Take(algorithms.SlidingCounterState{}, now, 60)
		d := algorithms.SlidingCounter{Limit: 10, Window: time.Minute}.Peek(s, now, 1)
		if d.Remaining != 0 || d.RetryAfter <= time.Minute || d.RetryAfter > 2*time.Minute {
			t.Errorf("%+v, want nothing left until the next window", d)
		}
	})
	t.Run("sliding log", func(t *testing.T) {
		s, _ := algorithms.SlidingLog{Limit: 100,
			Window: time.Minute}.Take(algorithms.SlidingLogState{}, now, 60)
		d := algorithms.SlidingLog{Limit: 10, Window: time.Second}.Peek(s, now, 1)
		if d.Remaining != 0 || d.RetryAfter != time.Second {
			t.Errorf("%+v, want nothing left for a second", d)
		}
	})
}

func TestValidate(t *testing.T) {
	second := perSecond(1)
	for _, test := range []struct {
		rule interface{ Validate() error }
		want []string
	}{
		{algorithms.TokenBucket{Capacity: 1, Refill: second}, nil},
		{algorithms.TokenBucket{},
			[]string{"the capacity must be at least 1", "refill: the rate must be positive"}},
		{algorithms.TokenBucket{Capacity: algorithms.MaxLimit + 1, Refill: second},
			[]string{"capacity must be at most"}},
		{algorithms.TokenBucket{Capacity: 1e6, Refill: algorithms.Rate{Count: 1, Per: time.Hour}},
			[]string{"at most what 1/h makes in 100 years"}},
		{algorithms.LeakingBucket{Capacity: 5, Outflow: second}, nil},
		{algorithms.LeakingBucket{Capacity: 5, Outflow: second, Burst: 5}, nil},
		{algorithms.LeakingBucket{Capacity: 5, Outflow: second, Burst: 6},
			[]string{"burst must be at most the capacity"}},
		{algorithms.LeakingBucket{Capacity: 5, Burst: -1},
			[]string{"outflow: the rate", "burst must not be negative"}},
		{algorithms.FixedWindow{Limit: 1, Window: time.Second}, nil},
		{algorithms.FixedWindow{},
			[]string{"limit must be at least 1", "window must be at least 1ms"}},
		{algorithms.FixedWindow{Limit: 1, Window: 367 * 24 * time.Hour},
			[]string{"window must be at most 366 days"}},
		{algorithms.SlidingCounter{Limit: 1, Window: time.Second}, nil},
		{algorithms.SlidingCounter{Limit: 1, Window: time.Second + 1},
			[]string{"whole microseconds"}},
		{algorithms.SlidingLog{Limit: algorithms.MaxLogLimit, Window: time.Second}, nil},
		{algorithms.SlidingLog{Limit: algorithms.MaxLogLimit + 1, Window: time.Second},
			[]string{"at most 100000"}},
	} {
		err := test.rule.Validate()
		if (err == nil) != (test.want == nil) {
			t.Errorf("%+v: got %v, want %q", test.rule, err, test.want)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: got %q, want %q in it", test.rule, err, part)
			}
		}
	}
}
