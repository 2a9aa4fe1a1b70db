package algorithms_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// request is a request of n units that arrives between its decision and its answer, in
// microseconds: where exactly is the adversary's choice.
type request struct{ decided, answered, n int64 }

// world is a process that starts as many requests as a rule permits.
type world struct {
	rng      *rand.Rand
	latency  int64 // of most answers, in microseconds
	delayed  int64 // one answer in 20 takes up to this long
	frozen   int64 // one turn in 50 is as long, before a decision and after its clock was read
	atOnce   int
	mostUnit int64
}

// requestsOf runs a world for a time. Each turn reads the clock once, as a loop does, before it
// takes the answers that are there and decides.
func requestsOf[S any](w world, rule algorithms.Rule[S], from, to int64) (all []request) {
	holding := algorithms.Holding[S]{Rule: rule}
	var s algorithms.Held[S]
	var open []request
	for clock := from; clock < to; {
		now := clock
		clock += 1 + w.rng.Int64N(100)
		if w.frozen > 0 && w.rng.IntN(50) == 0 {
			clock += w.rng.Int64N(w.frozen)
		}
		open = slices.DeleteFunc(open, func(r request) bool {
			if r.answered > clock {
				return false
			}
			s = holding.Answer(s, time.UnixMicro(now), time.UnixMicro(r.answered), r.n)
			return true
		})
		next := clock + time.Second.Microseconds()
		for len(open) < w.atOnce {
			n := 1 + w.rng.Int64N(w.mostUnit)
			var d algorithms.Decision
			if s, d = holding.Start(s, time.UnixMicro(now), n); !d.Allowed {
				next = min(next, now+d.RetryAfter.Microseconds())
				break
			}
			if w.rng.IntN(50) == 0 {
				s = holding.GiveBack(s, n)
				continue
			}
			r := request{clock, clock + w.latency/2 + w.rng.Int64N(w.latency), n}
			if w.delayed > 0 && w.rng.IntN(20) == 0 {
				r.answered = clock + w.rng.Int64N(w.delayed)
			}
			open, all = append(open, r), append(all, r)
			clock += w.rng.Int64N(20)
		}
		for _, r := range open {
			next = min(next, r.answered)
		}
		clock = max(clock, next)
	}
	return all
}

// mostArrivals returns the most units that an adversary can make arrive in [from, to], by the
// requests in the order of their decisions.
func mostArrivals(all []request, from, to int64) (units int64) {
	for _, r := range all {
		if r.decided <= to && r.answered >= from {
			units += r.n
		}
	}
	return units
}

// overBound returns the first interval that can hold more arrivals than the rule promises.
func overBound(rule algorithms.Parametrized, all []request) (from, to, units int64) {
	b := rule.Bound()
	window := b.Window.Microseconds()
	if b.Aligned {
		bounds := rule.(interface {
			Bounds(time.Time) (start, end time.Time)
		})
		for _, r := range all {
			for _, at := range []int64{r.decided, r.answered} {
				start, end := bounds.Bounds(time.UnixMicro(at))
				from, to = start.UnixMicro(), end.UnixMicro()-1
				if units = mostArrivals(all, from, to); units > b.Units {
					return from, to, units
				}
			}
		}
		return 0, 0, 0
	}
	for _, first := range all { // an interval begins with its answer, and ends with a decision
		from, units = first.answered, 0
		for _, last := range all {
			if last.answered < from {
				continue
			}
			if to = max(from, last.decided); window > 0 && to-from >= window {
				break
			}
			most := b.Units
			if window == 0 {
				most += scaled(to-from, b.Rate.Count, b.Rate.Per.Microseconds())
			}
			if units += last.n; units > most {
				return from, to, units
			}
		}
	}
	return 0, 0, 0
}

func everyHolding(t *testing.T,
	check func(t *testing.T, rule algorithms.Parametrized, run func(w world, to int64) []request)) {
	from := at(t, "01:00:00").UnixMicro()
	add := func(name string, rule algorithms.Parametrized, run func(w world, to int64) []request) {
		t.Run(name, func(t *testing.T) { check(t, rule, run) })
	}
	log := algorithms.SlidingLog{Limit: 20, Window: time.Second}
	add("sliding log", log, func(w world, to int64) []request {
		return requestsOf(w, log, from, from+to)
	})
	large := algorithms.SlidingLog{Limit: 1500, Window: time.Second}
	add("large sliding log", large, func(w world, to int64) []request {
		return requestsOf(w, large, from, from+to/8)
	})
	window := algorithms.FixedWindow{Limit: 20, Window: time.Second}
	add("fixed window", window, func(w world, to int64) []request {
		return requestsOf(w, window, from, from+to)
	})
	tokens := algorithms.TokenBucket{Capacity: 20, Refill: perSecond(20)}
	add("token bucket", tokens, func(w world, to int64) []request {
		return requestsOf(w, tokens, from, from+to)
	})
	leaking := algorithms.LeakingBucket{Capacity: 5, Outflow: perSecond(30), Burst: 5}
	add("leaking bucket", leaking, func(w world, to int64) []request {
		return requestsOf(w, leaking, from, from+to)
	})
}

// An adversary delays requests and answers, freezes the process between any two steps, and places
// every arrival between its decision and its answer.
func TestNoArrivalsBeyondTheBound(t *testing.T) {
	everyHolding(t, func(t *testing.T, rule algorithms.Parametrized,
		run func(w world, to int64) []request) {
		started := 0
		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, 1))
			w := world{rng: rng, latency: 1 + rng.Int64N(300_000), atOnce: 1 << rng.IntN(9),
				mostUnit: 1 + rng.Int64N(4)}
			if seed%2 == 0 {
				w.delayed, w.frozen = 4_000_000, 300_000
			}
			all := run(w, 60_000_000)
			started += len(all)
			if from, to, units := overBound(rule, all); units > 0 {
				t.Fatalf("seed %d: up to %d units arrive within %d µs, the bound is %+v", seed,
					units, to-from, rule.Bound())
			}
		}
		if started < 2000 {
			t.Errorf("%d requests", started)
		}
	})
}

func TestHoldingCostsTheLatency(t *testing.T) {
	everyHolding(t, func(t *testing.T, rule algorithms.Parametrized,
		run func(w world, to int64) []request) {
		b := rule.Bound()
		window := b.Window.Seconds()
		if window == 0 {
			window = float64(b.Units) / b.Rate.PerSecond()
		}
		for _, latency := range []int64{1_000, 20_000, 100_000, 500_000} {
			w := world{rng: rand.New(rand.NewPCG(uint64(latency), 1)), latency: latency,
				atOnce: 1 << 20, mostUnit: 1}
			all := run(w, 240_000_000)
			units := float64(len(all))
			last := all[len(all)-1]
			rate := units / float64(last.decided-all[0].decided) * 1e6
			want := 0.95 * float64(b.Units) / (window + float64(latency)/1e6)
			if rate < want {
				t.Errorf("%d µs until the answer: %.2f/s, want %.2f", latency, rate, want)
			}
		}
	})
}

func TestAUnitIsHeldUntilItsAnswer(t *testing.T) {
	rule := algorithms.Holding[algorithms.SlidingLogState]{Rule: algorithms.SlidingLog{Limit: 3,
		Window: time.Minute}}
	s, d := rule.Start(algorithms.Held[algorithms.SlidingLogState]{}, at(t, "01:00:00"), 2)
	if !d.Allowed || d.Granted != 2 || d.Remaining != 1 {
		t.Errorf("%+v", d)
	}
	if d := rule.Peek(s, at(t, "02:00:00"), 2); d.Allowed || d.Remaining != 1 ||
		d.RetryAfter != algorithms.UntilAnswered {
		t.Errorf("an hour later, without an answer: %+v", d)
	}
	s = rule.Answer(s, at(t, "02:00:00"), at(t, "02:00:10"), 1)
	if d := rule.Peek(s, at(t, "02:00:30"), 2); d.Allowed || d.RetryAfter != 40*time.Second {
		t.Errorf("after an answer at 02:00:10: %+v", d)
	}
	if s = rule.GiveBack(s, 1); s.Units != 0 {
		t.Errorf("%d units are held", s.Units)
	}
	if d := rule.Peek(s, at(t, "02:00:30"), 2); !d.Allowed || d.Remaining != 2 {
		t.Errorf("after one was given back: %+v", d)
	}
	if same := rule.Answer(s, at(t, "02:00:30"), at(t, "02:00:30"), 1); same.Counted.Units != 1 {
		t.Error("an answer of a unit that was not held counts")
	}
}

func TestASlidingCounterCannotBoundArrivals(t *testing.T) {
	for name, b := range map[string]algorithms.Bound{
		"token bucket":   algorithms.TokenBucket{}.Bound(),
		"leaking bucket": algorithms.LeakingBucket{}.Bound(),
		"fixed window":   algorithms.FixedWindow{}.Bound(),
		"sliding log":    algorithms.SlidingLog{}.Bound(),
	} {
		if err := b.Arrivals(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := algorithms.SlidingCounter{}.Bound().Arrivals()
	if !errors.Is(err, algorithms.ErrEstimated) {
		t.Errorf("sliding counter: %v", err)
	}
}

// charges are units with their instants in microseconds, for a count that forgets none.
type charges map[int64]int64

func (c charges) after(t int64) (units int64) {
	for at, n := range c {
		if at > t {
			units += n
		}
	}
	return units
}

// Charges come in any order, and some are taken back.
func TestALogChargesAtAnyInstant(t *testing.T) {
	const window = 1_000_000
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rule := algorithms.SlidingLog{Limit: 1000, Window: time.Second}
		var s algorithms.SlidingLogState
		all := charges{}
		var earlier []algorithms.Charged
		now := at(t, "01:00:00").UnixMicro()
		for range 200 {
			now += rng.Int64N(window / 20)
			then := now - window/4 + rng.Int64N(window/2)
			if rng.IntN(3) == 0 && len(earlier) > 0 {
				then = earlier[rng.IntN(len(earlier))].At.UnixMicro()
			}
			n := 1 + rng.Int64N(9)
			s = rule.Charge(s, time.UnixMicro(now), time.UnixMicro(then), n)
			all[then] += n
			earlier = append(earlier, algorithms.Charged{At: time.UnixMicro(then), Units: n})
			if rng.IntN(4) == 0 {
				i := rng.IntN(len(earlier))
				c := earlier[i]
				earlier = slices.Delete(earlier, i, i+1)
				s = rule.Uncharge(s, time.UnixMicro(now), c)
				all[c.At.UnixMicro()] -= c.Units
			}
			if got, want := s.Units, all.after(now-window); got != want &&
				now-window < slices.MinFunc(earlier, func(a, b algorithms.Charged) int {
					return cmp.Compare(a.At.UnixMicro(), b.At.UnixMicro())
				}).At.UnixMicro() {
				t.Fatalf("seed %d: %d units, want %d", seed, got, want)
			}
			d := rule.Peek(s, time.UnixMicro(now), 1)
			if want := 1000 - all.after(now-window); d.Remaining != want {
				t.Fatalf("seed %d: %d left, want %d", seed, d.Remaining, want)
			}
			last := int64(0)
			for at, n := range s.All() {
				if at <= last || n < 1 || at > now-window && all[at] != n {
					t.Fatalf("seed %d: %d units at %d, want %d; the one before is %d", seed, n,
						at, all[at], last)
				}
				last = at
			}
		}
	}
}

// A large log makes instants one, the latest: it never counts fewer units than one that does not,
// and not for longer than a 1,023rd of the window.
func TestALargeLogIsSmallAndNearlyExact(t *testing.T) {
	const window, most = 1_000_000, 1024
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rule := algorithms.SlidingLog{Limit: 50_000, Window: time.Second, CountAccepted: true}
		var s algorithms.SlidingLogState
		all := charges{}
		now := at(t, "01:00:00").UnixMicro()
		for range 5000 {
			now += rng.Int64N(400)
			n, then := 1+rng.Int64N(8), now
			if rng.IntN(2) == 0 {
				then += rng.Int64N(2000) - 1000
			}
			s = rule.Charge(s, time.UnixMicro(now), time.UnixMicro(then), n)
			all[then] += n
			if s.Size() > 8*2*most {
				t.Fatalf("seed %d: %d bytes", seed, s.Size())
			}
		}
		instants := 0
		for range s.All() {
			instants++
		}
		if instants > most {
			t.Errorf("seed %d: %d instants", seed, instants)
		}
		for ; now < at(t, "01:00:04").UnixMicro(); now += 1 + rng.Int64N(50_000) {
			left := 50_000 - rule.Peek(s, time.UnixMicro(now), 1).Remaining
			exact, late := all.after(now-window), all.after(now-window-window/(most-1)-1)
			if left < exact || left > late {
				t.Fatalf("seed %d: %d units count, want %d to %d", seed, left, exact, late)
			}
		}
	}
}
