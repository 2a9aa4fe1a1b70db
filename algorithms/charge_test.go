package algorithms_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// chargesOf checks a rule that counts few enough units for all of them to fit.
func chargesOf[S any](rule algorithms.Rule[S], exact bool) func(t *testing.T) {
	return func(t *testing.T) {
		from := at(t, "01:00:00.1")
		for seed := range uint64(500) {
			rng := rand.New(rand.NewPCG(seed, 1))
			all := make([]algorithms.Charged, 1+rng.IntN(8))
			for i := range all {
				all[i].At = from.Add(time.Duration(rng.Int64N(800_000)) * time.Microsecond)
				all[i].Units = 1 + rng.Int64N(3)
			}
			now := from.Add(800 * time.Millisecond)
			var charged, taken S
			for _, c := range all {
				charged = rule.Charge(charged, from, c.At, c.Units)
			}
			inOrder := slices.SortedFunc(slices.Values(all),
				func(a, b algorithms.Charged) int { return a.At.Compare(b.At) })
			for _, c := range inOrder {
				var d algorithms.Decision
				if taken, d = rule.Take(taken, c.At, c.Units); !d.Allowed {
					t.Fatalf("seed %d: %+v", seed, d)
				}
			}
			got, want := rule.Peek(charged, now, 1), rule.Peek(taken, now, 1)
			if got.Remaining > want.Remaining || exact && got != want {
				t.Fatalf("seed %d: charged %+v, taken %+v", seed, got, want)
			}
			charged = rule.Uncharge(charged, now, algorithms.Charged{At: all[len(all)-1].At,
				Units: all[len(all)-1].Units})
			before := got.Remaining
			if got = rule.Peek(charged, now, 1); exact &&
				got.Remaining != before+all[len(all)-1].Units || got.Remaining < before {
				t.Fatalf("seed %d: %d were left, and without %d units %d", seed, before,
					all[len(all)-1].Units, got.Remaining)
			}
		}
	}
}

func TestChargesCountAsUnitsTakenAtTheirInstants(t *testing.T) {
	t.Run("token bucket", chargesOf(algorithms.TokenBucket{Capacity: 40, Refill: perSecond(7)},
		false))
	t.Run("leaking bucket", chargesOf(algorithms.LeakingBucket{Capacity: 40,
		Outflow: perSecond(7)}, false))
	t.Run("fixed window", chargesOf(algorithms.FixedWindow{Limit: 40, Window: time.Second}, true))
	t.Run("sliding counter", chargesOf(algorithms.SlidingCounter{Limit: 40, Window: time.Second},
		true))
	t.Run("sliding log", chargesOf(algorithms.SlidingLog{Limit: 40, Window: time.Second,
		CountAccepted: true}, true))
}

// A busy bucket has lost no refill between two charges, whichever comes first.
func TestChargesOfABusyBucketAreExact(t *testing.T) {
	rule := algorithms.TokenBucket{Capacity: 40, Refill: perSecond(7)}
	busy, _ := rule.Take(algorithms.TokenBucketState{}, at(t, "01:00:00"), 20)
	early, late := at(t, "01:00:01"), at(t, "01:00:02")
	one := rule.Charge(rule.Charge(busy, late, late, 3), late, early, 4)
	other := rule.Charge(rule.Charge(busy, late, early, 4), late, late, 3)
	if one != other {
		t.Errorf("%+v, in the order of time %+v", one, other)
	}
}

func TestWindowsChargeTheirOwnUnits(t *testing.T) {
	before, now := at(t, "01:00:59"), at(t, "01:01:01")
	fixed := algorithms.FixedWindow{Limit: 9, Window: time.Minute}
	s := fixed.Charge(algorithms.FixedWindowState{}, now, now, 2)
	if s = fixed.Charge(s, now, before, 3); s.Used != 2 {
		t.Errorf("%d units in the window, want 2", s.Used)
	}
	if s = fixed.Uncharge(s, now, algorithms.Charged{At: before, Units: 2}); s.Used != 2 {
		t.Errorf("%d units in the window after some of the one before were given back", s.Used)
	}
	counter := algorithms.SlidingCounter{Limit: 9, Window: time.Minute}
	c := counter.Charge(algorithms.SlidingCounterState{}, now, now, 2)
	c = counter.Charge(c, now, before, 3)
	c = counter.Charge(c, now, before.Add(-time.Minute), 4)
	if c.Current != 2 || c.Previous != 3 {
		t.Errorf("%+v", c)
	}
	c = counter.Uncharge(c, now, algorithms.Charged{At: before, Units: 2})
	if c.Current != 2 || c.Previous != 1 {
		t.Errorf("after 2 of the window before were given back: %+v", c)
	}
}

// A rule over states of one type decides as the rule itself.
func TestErasedRulesDecideAlike(t *testing.T) {
	check := func(name string, plain, erased checks) {
		rng := rand.New(rand.NewPCG(1, 2))
		now := at(t, "01:00:00")
		for range 300 {
			now = now.Add(time.Duration(rng.Int64N(600)) * time.Millisecond)
			n := 1 + rng.Int64N(6)
			if got, want := erased.take(now, n), plain.take(now, n); got != want {
				t.Fatalf("%s: took %+v, want %+v", name, got, want)
			}
			if got, want := erased.takeUpTo(now, n), plain.takeUpTo(now, n); got != want {
				t.Fatalf("%s: took %+v, want %+v", name, got, want)
			}
			plain.refund(now, 1)
			erased.refund(now, 1)
		}
	}
	token := algorithms.TokenBucket{Capacity: 6, Refill: perSecond(7)}
	check("token bucket", checksOf(token), checksFrom(token.Erased(), &algorithms.State{}))
	leaking := algorithms.LeakingBucket{Capacity: 6, Outflow: perSecond(7), Burst: 2}
	check("leaking bucket", checksOf(leaking), checksFrom(leaking.Erased(), &algorithms.State{}))
	fixed := algorithms.FixedWindow{Limit: 6, Window: time.Second}
	check("fixed window", checksOf(fixed), checksFrom(fixed.Erased(), &algorithms.State{}))
	counter := algorithms.SlidingCounter{Limit: 6, Window: time.Second}
	check("sliding counter", checksOf(counter), checksFrom(counter.Erased(), &algorithms.State{}))
	log := algorithms.SlidingLog{Limit: 6, Window: time.Second}
	check("sliding log", checksOf(log), checksFrom(log.Erased(), &algorithms.State{}))
}
