package audit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func fullestOf(s spec, starts []start) (excess float64) {
	excess = -1e9
	for i := range starts {
		units := int64(0)
		for j := i; j < len(starts); j++ {
			t := max(s.window, time.Duration(starts[j].at-starts[i].at))
			n := units + s.taken(starts[j])
			excess = max(excess, float64(n)-s.most-s.rate*t.Seconds())
			units += starts[j].units
		}
	}
	return excess
}

func TestAllWindowsAreJudgedFromAFewMarks(t *testing.T) {
	for seed := range uint64(300) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s := law2("outflow", algorithms.Rate{Count: 10, Per: time.Second}, 1, 1+draw.Int64N(3))[0]
		if seed%3 == 0 {
			s = specOf(policy.Limit{Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 5,
				Refill: algorithms.Rate{Count: 10, Per: time.Second}}})
		}
		var starts, told []start
		at := int64(time.Hour)
		for seq := range uint64(200) {
			at += draw.Int64N(int64(220 * time.Millisecond))
			starts = append(starts, start{at, seq, 1 + draw.Int64N(2)*draw.Int64N(4), 0})
		}
		told = slices.Clone(starts)
		for range draw.IntN(60) {
			i := draw.IntN(len(told) - 1)
			if told[i+1].at-told[i].at < int64(reorder)/2 {
				told[i], told[i+1] = told[i+1], told[i]
			}
		}
		law := s.law().(*rateLaw)
		excess := -1e9
		for _, one := range told {
			v := law.add(one)
			excess = max(excess, float64(v.units)-v.most)
		}
		want := fullestOf(s, starts)
		if (excess > 1e-6) != (want > 1e-6) || excess > want+1e-6 {
			t.Fatalf("seed %d: an excess of %v, want %v", seed, excess, want)
		}
		if law.size() > 60 {
			t.Fatalf("seed %d: %d starts are remembered", seed, law.size())
		}
	}
}

func TestStartsOfAWindow(t *testing.T) {
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 2))
		s := specOf(policy.Limit{Name: "w", Rule: policy.Rule{Algorithm: policy.SlidingLog,
			Limit: 8, Window: policy.Duration(time.Second)}})
		law := s.law()
		var starts []start
		at := int64(time.Hour)
		for seq := range uint64(200) {
			at += draw.Int64N(int64(200 * time.Millisecond))
			one := start{at, seq, 1 + draw.Int64N(2), 0}
			starts = append(starts, one)
			var want int64
			for _, other := range starts {
				if other.at > at-int64(time.Second) {
					want += other.units
				}
			}
			if v := law.add(one); v.units != want || v.starts[len(v.starts)-1].seq != seq {
				t.Fatalf("seed %d: %+v, want %d units", seed, v, want)
			}
		}
	}
}

// On 29 March 2026 clocks in Berlin go forward, so the day has 23 hours.
func TestClockWindowsFollowTheirZone(t *testing.T) {
	l := policy.Limit{Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 3,
		Window: policy.Duration(24 * time.Hour), Zone: "Europe/Berlin"}}
	if again := specOf(l); again != specOf(l) {
		t.Error("the law is another for each start, so that none is remembered")
	}
	law := specOf(l).law()
	begin := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		after time.Duration
		units int64
	}{{0, 1}, {23*time.Hour - 1, 2}, {23 * time.Hour, 1}, {47*time.Hour - 1, 2}} {
		v := law.add(start{begin.Add(step.after).UnixNano(), uint64(i), 1, 0})
		if v.units != step.units {
			t.Errorf("%v: %d units in the window, want %d", step.after, v.units, step.units)
		}
	}
}

func TestClockWindowsStartOver(t *testing.T) {
	fixed := specOf(policy.Limit{Rule: policy.Rule{Algorithm: policy.FixedWindow, Limit: 3,
		Window: policy.Duration(time.Minute)}}).law()
	counter := specOf(policy.Limit{Rule: policy.Rule{Algorithm: policy.SlidingCounter, Limit: 3,
		Window: policy.Duration(time.Minute)}}).law()
	begin := time.Date(2026, 5, 4, 3, 2, 0, 0, time.UTC)
	for i, step := range []struct {
		after           time.Duration
		inFixed, counts int64
	}{
		{0, 1, 1}, {59 * time.Second, 2, 2}, {60 * time.Second, 1, 3}, {90 * time.Second, 2, 3},
		{119 * time.Second, 3, 3}, {240 * time.Second, 1, 1},
	} {
		s := start{begin.Add(step.after).UnixNano(), uint64(i), 1, 0}
		if v := fixed.add(s); v.units != step.inFixed {
			t.Errorf("%v: %d units in the window, want %d", step.after, v.units, step.inFixed)
		}
		if v := counter.add(s); v.units != step.counts {
			t.Errorf("%v: an estimate of %d units, want %d", step.after, v.units, step.counts)
		}
	}
}
