package pace

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
)

const began = Instant(time.Hour)

// flight is a decided start that has not happened.
type flight struct {
	at   Instant
	cost int64
}

type slot struct {
	at   time.Duration
	cost int64
}

// driven runs one bucket's clock and returns the starts: jobs arrive in batches, have costs, are
// decided late, and travel to their workers, often several at a time.
func driven(rng *rand.Rand, p *Pace, jobs int, mostLate time.Duration, costs bool) (starts []slot) {
	var c Clock
	var flights []flight
	land := func(until Instant) {
		for len(flights) > 0 && flights[0].at <= until {
			f := flights[0]
			flights = flights[1:]
			if rng.IntN(50) > 0 && c.Start(f.at, f.cost) {
				starts = append(starts, slot{f.at.Since(began), f.cost})
			} else {
				p.Spare(&c, f.cost)
			}
		}
	}
	late := func() time.Duration {
		if rng.IntN(100) == 0 {
			return time.Duration(rng.Int64N(int64(20*mostLate) + 1))
		}
		return time.Duration(rng.Int64N(int64(mostLate) + 1))
	}
	now, last := began, began
	for len(starts) < jobs {
		if rng.IntN(3) == 0 {
			now = now.Add(time.Duration(rng.Int64N(int64(20*p.Interval) + 1)))
		}
		land(now)
		p.Wake(&c, now)
		for range 1 + rng.IntN(40) {
			if at := p.Next(&c); at > now {
				now = at.Add(late())
			}
			land(now)
			cost := int64(1)
			if costs && rng.IntN(10) == 0 {
				cost = 1 + rng.Int64N(20)
			}
			p.Take(&c, now, cost)
			last = max(last, now.Add(late()))
			flights = append(flights, flight{last, cost})
		}
	}
	return starts
}

var clockRates = []string{"1/w", "10/d", "7/h", "1/s", "7/10s", "10/s", "48/s", "100/s", "333/s",
	"1000/s", "7000/s", "5000/100ms"}

// peaks are multiples of the rate: without making up, the default, and more.
var peaks = []float64{1, 1.003, policy.DefaultPeak, 1.04, 1.5}

// exceeds judges by law 2 in slots, and counts a window's last start as one.
func exceeds(starts []slot, peak float64, burst int64) string {
	for i, from := range starts {
		taken := int64(0)
		for _, to := range starts[i:] {
			window := max(time.Second, to.at-from.at)
			if most := pacetest.Most(window, peak, burst); float64(taken+1) > most {
				return fmt.Sprintf("%d slots within %v, %v to %v, and %.1f are allowed", taken+1,
					window, from.at, to.at, most)
			}
			taken += to.cost
		}
	}
	return ""
}

func TestClockKeepsLaw2(t *testing.T) {
	for _, text := range clockRates {
		rate, err := algorithms.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(30) {
			rng := rand.New(rand.NewPCG(seed, 1))
			burst := 1 + rng.Int64N(1+rng.Int64N(10))
			peak := peaks[rng.IntN(len(peaks))]
			late := []time.Duration{0, time.Millisecond, 10 * time.Millisecond,
				30 * time.Millisecond}[rng.IntN(4)]
			starts := driven(rng, New(rate, peak, burst), 600, late, rng.IntN(2) == 0)
			if why := exceeds(starts, peak*rate.PerSecond(), burst); why != "" {
				t.Errorf("%s, peak %v, burst %d, seed %d: %s", text, peak, burst, seed, why)
			}
		}
	}
}

func TestAClockThatIsRefittedKeepsLaw2(t *testing.T) {
	rate := algorithms.Rate{Count: 50, Per: time.Second}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		burst := 1 + rng.Int64N(10)
		fastest := New(rate, policy.DefaultPeak, burst)
		p, c, now := fastest, Clock{}, Instant(time.Hour)
		var starts []slot
		for len(starts) < 400 {
			if rng.IntN(3) == 0 {
				before := p
				p = fastest.At(rate.PerSecond() * (0.1 + 0.9*rng.Float64()))
				if rng.IntN(2) == 0 {
					p = fastest
				}
				p.Refit(&c, before, now)
			}
			if at := p.Next(&c); at > now {
				now = min(at, now.Add(time.Duration(rng.Int64N(int64(50*time.Millisecond)))))
				continue
			}
			p.Take(&c, now, 1)
			if !c.Start(now, 1) {
				t.Fatalf("seed %d: a start that was planned may not be", seed)
			}
			starts = append(starts, slot{time.Duration(now), 1})
		}
		if why := exceeds(starts, policy.DefaultPeak*rate.PerSecond(), burst); why != "" {
			t.Errorf("burst %d, seed %d: %s", burst, seed, why)
		}
	}
}

func FuzzClockKeepsLaw2(f *testing.F) {
	f.Add(uint64(1), int64(100), int64(1000), uint(0), int64(1), int64(1))
	f.Add(uint64(2), int64(7), int64(10_000), uint(12), int64(5), int64(40))
	f.Add(uint64(3), int64(10), int64(86_400_000), uint(40), int64(3), int64(0))
	f.Fuzz(func(t *testing.T, seed uint64, count, perMS int64, above uint, burst, lateMS int64) {
		rate := algorithms.Rate{Count: count, Per: time.Duration(perMS) * time.Millisecond}
		if rate.Validate() != nil || rate.PerSecond() > 10_000 || above > 10_000 || burst < 1 ||
			burst > 1000 || lateMS < 0 || lateMS > 1000 {
			return
		}
		peak := 1 + float64(above)/1000
		starts := driven(rand.New(rand.NewPCG(seed, 2)), New(rate, peak, burst), 300,
			time.Duration(lateMS)*time.Millisecond, true)
		if why := exceeds(starts, peak*rate.PerSecond(), burst); why != "" {
			t.Errorf("%v, peak %v, burst %d: %s", rate, peak, burst, why)
		}
	})
}

// A bucket keeps its rate on average despite delays that its peak can make up for.
func TestClockLongRunRate(t *testing.T) {
	type lateness func(rng *rand.Rand, now Instant) time.Duration
	upTo := func(most time.Duration) lateness {
		return func(rng *rand.Rand, _ Instant) time.Duration {
			return time.Duration(rng.Int64N(int64(most)))
		}
	}
	// a stall of 50 ms in every two seconds
	stalls := func(_ *rand.Rand, now Instant) time.Duration {
		return max(0, 50*time.Millisecond-time.Duration(now)%(2*time.Second))
	}
	for name, c := range map[string]struct {
		peak float64
		late lateness
	}{
		"a comb, with timers that are late":   {1, upTo(time.Millisecond)},
		"timers that are late":                {policy.DefaultPeak, upTo(time.Millisecond)},
		"delays within the tolerance":         {policy.DefaultPeak, upTo(Tolerance)},
		"stalls for less than the peak gives": {1.04, stalls},
	} {
		t.Run(name, func(t *testing.T) {
			for _, text := range clockRates {
				rate, err := algorithms.ParseRate(text)
				if err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(7, 7))
				p := New(rate, c.peak, 1)
				var k Clock
				now := began
				p.Wake(&k, now)
				n := min(max(20_000, int(time.Minute/p.Interval)), int(Forever/2/p.Interval))
				for range n {
					if at := p.Next(&k); at > now {
						now = at.Add(c.late(rng, at))
					}
					p.Take(&k, now, 1)
					if !k.Start(now, 1) {
						t.Fatalf("%s: a start as planned does not pass", text)
					}
				}
				got := float64(n) / now.Since(began).Seconds()
				if off := got/rate.PerSecond() - 1; off > 0.002 || off < -0.002 {
					t.Errorf("%s runs at %.4f/s, %.3f %% off", text, got, off*100)
				}
			}
		})
	}
}

// With a peak equal to the rate only timers' lateness is made up.
func TestAPeakEqualToTheRateMakesNothingUp(t *testing.T) {
	p := New(algorithms.Rate{Count: 100, Per: time.Second}, 1, 1)
	var c Clock
	now := began
	p.Wake(&c, now)
	for i := range 200 {
		before := now
		now = max(now, p.Next(&c))
		if i == 100 {
			now = now.Add(500 * time.Millisecond)
		}
		p.Take(&c, now, 1)
		c.Start(now, 1)
		if gap := now.Since(before); i > 0 && gap < p.Interval-slack {
			t.Fatalf("start %d came %v after the one before it", i, gap)
		}
	}
}

// A start counts when it begins. Of ten starts that were decided an interval apart and begin
// together, the tolerance passes some, and the rest are returned.
func TestStartsTakeTheirSlotsWhenTheyBegin(t *testing.T) {
	p := New(algorithms.Rate{Count: 200, Per: time.Second}, policy.DefaultPeak, 1)
	var c Clock
	now := began
	p.Wake(&c, now)
	for range 10 {
		now = max(now, p.Next(&c))
		p.Take(&c, now, 1)
	}
	passed := 0
	for range 10 {
		if c.Start(now, 1) {
			passed++
		} else {
			p.Spare(&c, 1)
		}
	}
	if passed != 3 {
		t.Errorf("%d of 10 began together, want 3", passed)
	}
	if next := p.Next(&c).Since(now); next < 4*time.Millisecond || next > 5*time.Millisecond {
		t.Errorf("the next may start after %v, want an interval", next)
	}
}

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
		p2 := New(p.Outflow, p.PeakRatio(), p.Burst)
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

// At 7,000/s the interval is no whole number of nanoseconds.
func TestClockLosesNoFraction(t *testing.T) {
	for _, count := range []int64{3, 7_000, 600_000, 999_999, 1_000_000} {
		p := New(algorithms.Rate{Count: count, Per: time.Second}, 1, 1)
		c := Clock{Due: began}
		for range 10 * count / max(1, count/100_000) {
			p.advance(&c, max(1, count/100_000))
		}
		if c.Due.Since(began).Round(10*time.Nanosecond) != 10*time.Second {
			t.Errorf("10 s at %d/s take %v", count, c.Due.Since(began))
		}
	}
}

func TestASlotThatIsGivenBackIsFree(t *testing.T) {
	p := New(algorithms.Rate{Count: 10, Per: time.Second}, policy.DefaultPeak, 1)
	var c Clock
	p.Wake(&c, began)
	p.Take(&c, began, 3)
	p.Spare(&c, 3)
	if wait := p.Next(&c).Since(began); wait > 0 {
		t.Errorf("the next has to wait for %v", wait)
	}
}
