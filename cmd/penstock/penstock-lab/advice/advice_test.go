package advice

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/whatif"
)

// drawn returns hours of requests: a wave of half an hour, and bursts that are mostly small.
func drawn(seed uint64, hours float64) (all []whatif.Request) {
	const begin = 1_900_000_000
	rng := rand.New(rand.NewPCG(seed, 7))
	for t := 0.0; t < hours*3600; {
		t += rng.ExpFloat64() / (4 * (1 + 0.6*math.Sin(t/1800*2*math.Pi)))
		n := 1
		if rng.IntN(600) == 0 {
			n = 5 + int(rng.ExpFloat64()*30)
		}
		for i := range n {
			at := int64(begin)*1e9 + int64(t*1e9) + int64(i)*1e7
			all = append(all, whatif.Request{At: at, Key: "api", Cost: 1})
		}
	}
	slices.SortStableFunc(all, func(a, b whatif.Request) int { return int(a.At - b.At) })
	return all
}

func goals(t *testing.T, text string) Goals {
	t.Helper()
	g, err := ParseGoals(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The advice from a trace's first half meets the goals in its second half, by a larger margin than
// a guess from the first half's mean.
func TestTheAdviceBeatsAGuessOnUnseenData(t *testing.T) {
	g := goals(t, "refused <= 0.1%, wait p99 <= 20s, outflow <= 10/s")
	for seed := range uint64(4) {
		all := drawn(seed, 1)
		half := len(all) / 2
		seen, unseen := all[:half], all[half:]
		found, err := Search("api", slices.Values(seen), g, whatif.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		strain := func(p policy.Policy) float64 {
			p.Name = "api"
			r, err := whatif.Play(p, slices.Values(unseen), whatif.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return g.Strain(r.Figures)
		}
		span := time.Duration(seen[half-1].At - seen[0].At).Seconds()
		mean := float64(half) / span
		advised := found.Tried[found.Chosen].Policy
		is := strain(advised)
		if is > 1 {
			t.Errorf("seed %d: what is advised, %+v, misses the goals: %.2f", seed, advised.Rule,
				is)
		}
		for name, guess := range map[string]policy.Rule{
			"half as much again as the mean, and a round capacity": {
				Algorithm: policy.LeakingBucket, Outflow: rate(1.5 * mean), Capacity: 100},
			"the limit, and the backlog of three seconds": {
				Algorithm: policy.LeakingBucket, Outflow: rate(9.6), Capacity: 30},
			"a bucket of tokens": {
				Algorithm: policy.TokenBucket, Capacity: 5, Refill: rate(5)},
		} {
			if guessed := strain(policy.Policy{Rule: guess}); guessed <= is {
				t.Errorf("seed %d: %s comes to %.2f, and what is advised, %+v, to %.2f", seed,
					name, guessed, advised.Rule, is)
			}
		}
	}
}

func TestTheNearestMissIsChosen(t *testing.T) {
	var all []whatif.Request
	for i := range int64(2000) { // 5/s where 2/s may start
		all = append(all, whatif.Request{At: 1_900_000_000_000_000_000 + i*2e8, Key: "a", Cost: 1})
	}
	for _, text := range []string{"refused <= 0, wait p99 <= 10s, outflow <= 2/s",
		"refused <= 0.1%, wait p99 <= 10s, outflow <= 2/s",
		"refused <= 0, wait max <= 1s, outflow <= 2/s"} {
		found, err := Search("api", slices.Values(all), goals(t, text), whatif.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		least := slices.MinFunc(found.Tried, func(a, b Tried) int {
			return cmp.Compare(a.RefusedShare(), b.RefusedShare())
		}).RefusedShare()
		if chosen := found.Tried[found.Chosen]; found.Meets() || chosen.RefusedShare() > least {
			t.Errorf("%s: chosen is %+v, which refuses %.3f; another refuses %.3f", text,
				chosen.Policy.Rule, chosen.RefusedShare(), least)
		}
	}
}

func TestCandidatesKeepToTheOutflow(t *testing.T) {
	for _, outflow := range []string{"1/s", "10/s", "1000/s", "100/m", "30/h", "3/10s"} {
		g := goals(t, "refused <= 1%, outflow <= "+outflow)
		worst := []whatif.Request{}
		for i := range int64(3000) {
			worst = append(worst, whatif.Request{At: 1_900_000_000_000_000_000 +
				i*int64(g.Outflow.Interval())/3, Key: "a", Cost: 1})
		}
		found, err := Search("api", slices.Values(worst), g,
			whatif.Options{Window: g.Outflow.Per}, nil)
		if err != nil {
			t.Errorf("outflow <= %s: %v", outflow, err)
			continue
		}
		algorithmsTried := map[policy.Algorithm]bool{}
		for _, p := range found.Tried {
			algorithmsTried[p.Policy.Algorithm] = true
			if most := g.Outflow.Count; p.Worst > most || p.Most > float64(most)+1e-9 {
				t.Errorf("outflow <= %s: of %+v %d started, and %.2f may", outflow, p.Policy.Rule,
					p.Worst, p.Most)
			}
		}
		if g.Outflow.Count > 3 && len(algorithmsTried) != 5 {
			t.Errorf("outflow <= %s: only %v were tried", outflow, algorithmsTried)
		}
	}
}

// A limit that counts from the answer keeps to the goal at the target, so it is advised where its
// price leaves room for the trace.
func TestTheAdviceCountsFromTheAnswer(t *testing.T) {
	all := drawn(1, 0.5)
	g := goals(t, "refused <= 0.1%, wait p99 <= 20s, outflow <= 10/s")
	for _, latency := range []time.Duration{0, 50, 1000} {
		latency *= time.Millisecond
		found, err := Search("api", slices.Values(all), g, whatif.Options{Duration: latency}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := Strict(found.Tried[found.Chosen].Policy)
		if found.Latency != latency || !found.Meets() || (l != nil) != (latency < time.Second) ||
			l != nil && (l.Limit > 10 || l.Window != policy.Duration(time.Second)) {
			t.Errorf("with %v until an answer %+v is advised", latency, l)
		}
		if strictest := found.Tried[found.Strictest()]; Strict(strictest.Policy).Limit != 10 {
			t.Errorf("the strictest is %+v", strictest.Policy.Limits)
		}
	}
	for i := range all {
		all[i].Duration = time.Duration(i%3) * 100 * time.Millisecond
	}
	_, _, latency := demand(slices.Values(all), whatif.Options{})
	if latency < 99*time.Millisecond || latency > 101*time.Millisecond {
		t.Errorf("the mean latency of the trace is %v, want 100ms", latency)
	}
}

func TestGoalsAreRead(t *testing.T) {
	g := goals(t, "refused<=0.5%,  wait  p99 < 90s, wait p50 <= 1s,stale <= 0.01, outflow <= 50/s")
	if g.Outflow.Count != 50 || len(g.Bounds) != 4 || g.Bounds[0].Most != 0.005 ||
		g.wait() != 90*time.Second {
		t.Errorf("the goals are %+v", g)
	}
	f := whatif.Figures{Requests: 1000, Refused: 1, Wait: whatif.Waits{
		P50: whatif.Millis(500 * time.Millisecond), P99: whatif.Millis(9 * time.Second)}}
	if strain := g.Strain(f); strain != 0.5 {
		t.Errorf("the strain is %v, want that of the median", strain)
	}
	if strain := goals(t, "refused <= 0").Strain(f); !math.IsInf(strain, 1) {
		t.Errorf("the strain of what must not be is %v", strain)
	}
	for _, bad := range []string{"", "outflow <= 5/s", "refused", "refused <= 200%",
		"refused <= NaN", "wait <= 3s", "wait p99 <= 3", "wait max <= -3s", "outflow <= fast",
		"depth <= -1", "refused >= 1%"} {
		if g, err := ParseGoals(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, g)
		}
	}
}

func TestRatesAreRoundedDownToThreeDigits(t *testing.T) {
	for perSecond, want := range map[float64]string{48.37: "2900/m", 148.9: "148/s",
		123456: "123000/s", 2: "120/m", 0.5: "1800/h", 0.001: "86/d", 0: "none"} {
		got := rate(perSecond)
		text := "none"
		if !got.IsZero() {
			text = got.String()
		}
		if text != want || got.Per > 0 && got.PerSecond() > perSecond {
			t.Errorf("%v per second becomes %s, want %s", perSecond, text, want)
		}
	}
}

func TestAnInstantIsNoTrace(t *testing.T) {
	all := slices.Values([]whatif.Request{{At: 1, Key: "a", Cost: 1}, {At: 1, Key: "b", Cost: 1}})
	_, err := Search("api", all, goals(t, "refused <= 1%"), whatif.Options{}, nil)
	if fmt.Sprint(err) != "the trace is of one instant" {
		t.Errorf("the error is %v", err)
	}
}
