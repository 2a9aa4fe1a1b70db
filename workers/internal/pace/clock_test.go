package pace

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
)

// began is when the clocks of these tests begin.
const began = Instant(time.Hour)

// driven plays one bucket's clock: jobs come in batches with idleness between, cost what they like,
// and are started late. It returns when they passed their last check, which is up to Undecided
// after the clock's decision.
func driven(rng *rand.Rand, p *Pace, jobs int, mostLate time.Duration,
	costs bool) (starts []time.Duration) {
	var c Clock
	now, last := began, began
	for len(starts) < jobs {
		if rng.IntN(3) == 0 { // idle, sometimes for long
			now = now.Add(time.Duration(rng.Int64N(int64(20*p.Interval) + 1)))
		}
		p.Wake(&c, now)
		for range 1 + rng.IntN(40) {
			now = max(now, p.Next(&c))
			switch late := rng.IntN(100); {
			case mostLate == 0:
			case late == 0: // the machine stalls
				now = now.Add(time.Duration(rng.Int64N(int64(20*mostLate) + 1)))
			default:
				now = now.Add(time.Duration(rng.Int64N(int64(mostLate) + 1)))
			}
			cost := int64(1)
			if costs && rng.IntN(10) == 0 {
				cost = 1 + rng.Int64N(20)
			}
			p.Take(&c, now, cost)
			if rng.IntN(50) == 0 { // it did not reach its worker in time
				p.Spare(&c, cost)
				continue
			}
			last = max(last, now.Add(time.Duration(rng.Int64N(int64(Undecided)+1))))
			starts = append(starts, last.Since(began))
		}
	}
	return starts
}

var clockRates = []string{"1/w", "10/d", "7/h", "1/s", "7/10s", "10/s", "48/s", "100/s", "333/s",
	"1000/s", "7000/s", "5000/100ms"}

func TestClockKeepsLaw2(t *testing.T) {
	for _, text := range clockRates {
		rate, err := algorithms.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(30) {
			rng := rand.New(rand.NewPCG(seed, 1))
			burst := 1 + rng.Int64N(1+rng.Int64N(10))
			late := []time.Duration{0, time.Millisecond, 30 * time.Millisecond}[rng.IntN(3)]
			starts := driven(rng, New(rate, burst), 600, late, rng.IntN(2) == 0)
			if why := pacetest.Exceeds(starts, rate.PerSecond(), burst); why != "" {
				t.Errorf("%s, burst %d, seed %d: %s", text, burst, seed, why)
			}
		}
	}
}

func FuzzClockKeepsLaw2(f *testing.F) {
	f.Add(uint64(1), int64(100), int64(1000), int64(1), int64(1))
	f.Add(uint64(2), int64(7), int64(10_000), int64(5), int64(40))
	f.Add(uint64(3), int64(10), int64(86_400_000), int64(3), int64(0))
	f.Fuzz(func(t *testing.T, seed uint64, count, perMS, burst, lateMS int64) {
		rate := algorithms.Rate{Count: count, Per: time.Duration(perMS) * time.Millisecond}
		if rate.Validate() != nil || rate.PerSecond() > 10_000 || burst < 1 || burst > 1000 ||
			lateMS < 0 || lateMS > 1000 {
			return // no rate that a bucket can have
		}
		starts := driven(rand.New(rand.NewPCG(seed, 2)), New(rate, burst), 300,
			time.Duration(lateMS)*time.Millisecond, true)
		if why := pacetest.Exceeds(starts, rate.PerSecond(), burst); why != "" {
			t.Errorf("%v, burst %d: %s", rate, burst, why)
		}
	})
}

// Lateness of timers is made up: the long-run rate is the configured one.
func TestClockLongRunRate(t *testing.T) {
	for _, text := range clockRates {
		rate, err := algorithms.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(7, 7))
		p := New(rate, 1)
		var c Clock
		now := began
		p.Wake(&c, now)
		n := min(20_000, int(Forever/2/p.Interval)) // starts in at most 50 years
		for range n {
			now = max(now,
				p.Next(&c)).Add(time.Duration(rng.Int64N(int64(min(time.Millisecond, p.Interval)))))
			p.Take(&c, now, 1)
		}
		got := float64(n) / now.Since(began).Seconds()
		if off := got/rate.PerSecond() - 1; off > 0.001 || off < -0.001 {
			t.Errorf("%s runs at %.4f/s, %.3f %% off", text, got, off*100)
		}
	}
}

// Nothing overflows at the ends of what a policy may say.
func TestClockExtremes(t *testing.T) {
	for _, p := range []policy.Policy{
		{Rule: policy.Rule{Outflow: algorithms.Rate{Count: 1, Per: 366 * 24 * time.Hour},
			Burst: 99, Capacity: 99}},
		{Rule: policy.Rule{Outflow: algorithms.Rate{Count: 1, Per: 7 * 24 * time.Hour}, Burst: 1,
			Capacity: 1000}},
		{Rule: policy.Rule{Outflow: algorithms.Rate{Count: 1_000_000, Per: time.Second},
			Burst: policy.MaxCapacity, Capacity: policy.MaxCapacity}},
		{Rule: policy.Rule{Outflow: algorithms.Rate{Count: 1_000_000_000,
			Per: 366 * 24 * time.Hour}, Burst: 1, Capacity: 1}},
	} {
		p2 := New(p.Outflow, p.Burst)
		for _, cost := range []int64{1, 2, 1_000_000} {
			var c Clock
			p2.Wake(&c, began)
			for range 200 {
				before := p2.Next(&c)
				if before > began {
					break
				}
				p2.Take(&c, began, cost)
				if after := p2.Next(&c); after < before || after < 0 || p2.FreshAt(&c) < 0 {
					t.Errorf("%v, burst %d, cost %d: next start goes from %d to %d", p.Outflow,
						p.Burst, cost, before, after)
				}
			}
			p2.Hold(&c, began.Add(Forever/50))
			if p2.Next(&c) < began {
				t.Errorf("%v, burst %d, cost %d: held until %d", p.Outflow, p.Burst, cost,
					p2.Next(&c))
			}
		}
	}
}

// At 1,000,000/s the interval is a whole number of nanoseconds; at 7,000/s it is not, and nothing
// is lost by that.
func TestClockLosesNoFraction(t *testing.T) {
	for _, count := range []int64{3, 7_000, 600_000, 999_999, 1_000_000} {
		p := New(algorithms.Rate{Count: count, Per: time.Second}, 1)
		c := Clock{Due: began}
		for range 10 * count / max(1, count/100_000) {
			p.advance(&c, max(1, count/100_000))
		}
		if c.Due.Since(began).Round(10*time.Nanosecond) != 10*time.Second {
			t.Errorf("10 s at %d/s take %v", count, c.Due.Since(began))
		}
	}
}

// A start that did not happen gives the envelope back what it took, unless something was taken
// since: the clock would then forget that.
func TestARefundIsOnlyForTheLastThatWasTaken(t *testing.T) {
	last := Spent{before: 10, after: 20}
	for _, c := range []struct{ tat, want Instant }{{20, 10}, {30, 30}} {
		k := Clock{Tat: c.tat}
		if last.Refund(&k); k.Tat != c.want {
			t.Errorf("a clock at %d is at %d after a refund, want %d", c.tat, k.Tat, c.want)
		}
	}
}
