package core

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

func limitWorld(seed uint64, s sabotage) *world {
	w := newWorld(seed, s)
	rng := rand.New(rand.NewPCG(seed, 22))
	for i := range w.policies {
		p := &w.policies[i]
		for n := range 1 + rng.IntN(3) {
			l := policy.Limit{Name: fmt.Sprint("l", n)}
			w.drawLimit(&l, rng, 10, 20, policy.TokenBucket, policy.LeakingBucket,
				policy.SlidingLog)
			if p.Partitions <= 1 && rng.IntN(3) == 0 {
				l.Key = policy.KeyGlobal
			}
			p.Limits = append(p.Limits, l)
		}
		if rng.IntN(3) == 0 && p.AdaptiveRate == nil {
			p.Outflow, p.Peak, p.Burst = algorithms.Rate{}, algorithms.Rate{}, 0
		}
		*p = p.WithDefaults()
		w.valid(*p)
	}
	return w
}

func last(l *policy.Limit) {
	for _, n := range []*int64{&l.Limit, &l.Capacity, &l.Burst, &l.Refill.Count, &l.Outflow.Count} {
		*n *= 4
	}
	for _, d := range []*time.Duration{(*time.Duration)(&l.Window), &l.Refill.Per,
		&l.Outflow.Per} {
		*d *= 20
	}
}

// drawLimit draws a limit of at least these jobs or tokens, by one of the given algorithms, or one
// with windows aligned to the servers' clocks, unless these step.
func (w *world) drawLimit(l *policy.Limit, rng *rand.Rand, jobs, tokens int64,
	kinds ...policy.Algorithm) {

	most := jobs + rng.Int64N(20)
	if rng.IntN(3) == 0 {
		l.Cost, most = "tokens", tokens+rng.Int64N(60)
	}
	window := policy.Duration(1000+rng.Int64N(12_000)) * policy.Duration(time.Millisecond)
	if !w.has(serverClocks) {
		kinds = append(kinds, policy.FixedWindow, policy.SlidingCounter)
	}
	rate := algorithms.Rate{Count: most, Per: time.Duration(window)}
	switch l.Algorithm = kinds[rng.IntN(len(kinds))]; l.Algorithm {
	case policy.TokenBucket:
		l.Capacity, l.Refill = most, rate
	case policy.LeakingBucket:
		l.Burst, l.Outflow = most, rate
	default:
		l.Limit, l.Window = most, window
	}
	if rng.IntN(6) == 0 {
		last(l)
	}
}

func TestSimulationOfLimits(t *testing.T) {
	testLimits(t, limitWorld)
}

func testLimits(t *testing.T, worldOf func(seed uint64, s sabotage) *world) {
	playSeeds(t, func(seed uint64) *world {
		w := worldOf(seed, noSabotage)
		w.operators(busy)
		w.targetsFail(busy)
		w.live()
		w.judgeLimits()
		return w
	})
}

func (w *world) judgeLimits() {
	buckets, _ := w.starts()
	for _, p := range w.policies {
		var all []slot
		for _, key := range keys {
			starts := buckets[bucketOf(p.Name, key)]
			all = append(all, starts...)
			w.judgeStarts(p, string(key), starts)
		}
		w.judgeStarts(p, policy.KeyGlobal, all)
	}
}

func (w *world) judgeStarts(p policy.Policy, key string, starts []slot) {
	slices.SortFunc(starts, func(a, b slot) int { return int(a.at - b.at) })
	for _, l := range p.Limits {
		if l.Together() != (key == policy.KeyGlobal) || l.Shared != "" {
			continue
		}
		if why := w.beyond(l, starts); why != "" {
			w.fail("limit %s/%s %+v: %s", p.Name, key, l, why)
		}
	}
}

func (w *world) beyond(l policy.Limit, starts []slot) string {
	window := time.Duration(float64(l.Window) * (1 - 2*mostDrift))
	epoch := w.wall().Add(-w.now)
	first, held, owed := 0, int64(0), 0.0
	counted := map[int64]int64{}
	for i, s := range starts {
		n := s.cost
		if l.Cost != "" && s.tokens > 0 {
			n = s.tokens
		}
		units := func(s slot) int64 {
			if l.Cost != "" && s.tokens > 0 {
				return s.tokens
			}
			return s.cost
		}
		switch l.Algorithm {
		case policy.SlidingLog:
			for held += n; s.at-starts[first].at >= window; first++ {
				held -= units(starts[first])
			}
			if held > l.Limit {
				return fmt.Sprintf("%d from %v to %v", held, starts[first].at, s.at)
			}
		case policy.TokenBucket, policy.LeakingBucket:
			rate, most := l.Refill, l.Capacity
			if l.Algorithm == policy.LeakingBucket {
				rate, most = l.Outflow, l.Burst
			}
			if i > 0 {
				owed = max(0, owed-(s.at-starts[i-1].at).Seconds()*rate.PerSecond()*
					(1+2*mostDrift))
			}
			if owed += float64(n); owed > float64(most)+1e-6 {
				return fmt.Sprintf("%.3f too many at %v", owed-float64(most), s.at)
			}
		default:
			d := algorithms.FixedWindow{Limit: 1, Window: time.Duration(l.Window)}
			at := epoch.Add(s.at)
			_, in := d.Take(algorithms.FixedWindowState{}, at, 1)
			ends := at.Add(in.ResetAfter).UnixMilli()
			counted[ends] += n
			most := float64(counted[ends])
			if l.Algorithm == policy.SlidingCounter {
				part := float64(in.ResetAfter) / float64(l.Window)
				before := ends - time.Duration(l.Window).Milliseconds()
				most += math.Floor(part * float64(max(counted[before], counted[before-1],
					counted[before+1])) * (1 - 2*mostDrift))
			}
			if most > float64(l.Limit) {
				return fmt.Sprintf("%v in the window of %v", most, s.at)
			}
		}
	}
	return ""
}
