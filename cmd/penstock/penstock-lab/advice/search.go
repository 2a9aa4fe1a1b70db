package advice

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/whatif"
)

// Tried is a policy with what the trace became under it.
type Tried struct {
	Policy policy.Policy
	// units that one bucket can start within Advice.Per, by the rule
	Most float64
	*whatif.Report
	Strain float64 // see [Goals.Strain]
	total  float64
}

// Advice is the tried policies, with one chosen.
type Advice struct {
	Tried []Tried
	// of Tried.Most
	Per time.Duration
	// Latency is the mean time until an answer, by the trace and the options.
	Latency time.Duration
	// Chosen starts the least within half of the goals. Without such a policy it has the lowest
	// strain, of those that meet the goals at the target if there are any.
	Chosen int
}

// Meets reports whether the chosen policy meets the goals.
func (a Advice) Meets() bool { return a.Tried[a.Chosen].Strain <= 1 }

// Strictest returns the policy with the largest limit that counts from the answer, or -1.
func (a Advice) Strictest() int {
	best := -1
	for i, t := range a.Tried {
		if Strict(t.Policy) != nil && (best < 0 || t.Most > a.Tried[best].Most ||
			t.Most == a.Tried[best].Most && t.Strain < a.Tried[best].Strain) {
			best = i
		}
	}
	return best
}

// OnFrontier reports whether no other policy is better in starts, refusals or p99 wait without
// being worse in another.
func (a Advice) OnFrontier(i int) bool {
	figures := func(t Tried) [3]float64 {
		return [3]float64{t.Most, t.RefusedShare(), seconds(t.Wait.P99)}
	}
	mine := figures(a.Tried[i])
	return !slices.ContainsFunc(a.Tried, func(t Tried) bool {
		other := figures(t)
		return other != mine && other[0] <= mine[0] && other[1] <= mine[1] && other[2] <= mine[2]
	})
}

// spare is the reserve of each goal, because another day brings another trace.
const spare = 0.5

const (
	rates = 8 // number of rates tried, between the mean of the busiest key and the goal
	// Limits that count from the answer take twice the time to play.
	strictRates = rates / 2
)

// Search plays a trace under policies of each algorithm. A leaking bucket gets the capacity at
// which no job waits longer than the goals allow, or half of it, because a job refused early can go
// elsewhere; without that goal, twice the deepest queue. With a goal for the outflow it is also
// tried with a limit that counts from the answer, and so are the other algorithms.
func Search(name string, requests iter.Seq[whatif.Request], g Goals, o whatif.Options,
	progress func(done, of int)) (Advice, error) {
	need, worst, latency := demand(requests, o)
	if need == 0 {
		return Advice{}, errors.New("the trace is of one instant")
	}
	a := Advice{Per: cmp.Or(g.Outflow.Per, time.Second), Latency: latency}
	for _, p := range slices.Concat(queues(g, need, worst), strict(g, need, latency), doors(g)) {
		p.Name = name
		same := func(t Tried) bool {
			return t.Policy.Rule == p.Rule && slices.Equal(t.Policy.Limits, p.Limits)
		}
		valid := policy.Invalid(p.WithDefaults().Validate()) == nil
		if valid && !slices.ContainsFunc(a.Tried, same) {
			a.Tried = append(a.Tried, Tried{Policy: p, Most: promised(p, a.Per)})
		}
	}
	if len(a.Tried) == 0 {
		return a, errors.New("no policy keeps to that outflow")
	}
	o.Keys, o.Bins = 0, 0
	var done atomic.Int64
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range a.Tried {
		group.Go(func() (err error) {
			t := &a.Tried[i]
			if t.Report, err = whatif.Play(t.Policy, requests, o); err != nil {
				return err
			}
			t.Strain, t.total = g.Strain(t.Figures), g.total(t.Figures)
			if g.wait() == 0 && t.Policy.Paced() && t.Depth < t.Policy.Capacity {
				t.Policy.Capacity = max(t.Policy.Burst, min(t.Policy.Capacity, 2*t.Depth), 1)
			}
			if n := int(done.Add(1)); progress != nil {
				progress(n, len(a.Tried))
			}
			return nil
		})
	}
	err := group.Wait()
	if err == nil {
		a.Chosen = choose(a.Tried)
	}
	return a, err
}

func choose(all []Tried) (best int) {
	for i := range all {
		if better(&all[i], &all[best]) {
			best = i
		}
	}
	return best
}

func better(a, b *Tried) bool {
	if easyA, easyB := a.Strain <= spare, b.Strain <= spare; easyA != easyB {
		return easyA
	} else if easyA { // spare room that another day may need
		return cmp.Or(cmp.Compare(a.Most, b.Most),
			cmp.Compare(b.Policy.Capacity, a.Policy.Capacity),
			cmp.Compare(a.Strain, b.Strain)) < 0
	}
	if keepsA, keepsB := a.keeps(), b.keeps(); keepsA != keepsB {
		return keepsA
	}
	return cmp.Or(cmp.Compare(a.Strain, b.Strain), cmp.Compare(a.total, b.total),
		cmp.Compare(a.Most, b.Most)) < 0
}

// keeps reports whether the policy meets the goals, that for the outflow at the target, too.
func (t *Tried) keeps() bool { return t.Strain <= 1 && Strict(t.Policy) != nil }

// demand returns the busiest key's mean and largest rate, and the mean time until an answer.
func demand(requests iter.Seq[whatif.Request], o whatif.Options) (need, worst float64,
	latency time.Duration) {
	type key struct {
		units, second, at int64
	}
	keys := map[queue.Key]*key{}
	var first, last, n int64
	for r := range requests {
		n++
		latency += (cmp.Or(r.Duration, o.Duration) - latency) / time.Duration(n)
		k := keys[r.Key]
		if k == nil {
			k = &key{}
			keys[r.Key] = k
		}
		if first == 0 {
			first = r.At
		}
		if last = r.At; r.At/1e9 != k.at {
			k.at, k.second = r.At/1e9, 0
		}
		k.units, k.second = k.units+r.Cost, k.second+r.Cost
		worst = max(worst, float64(k.second))
	}
	for _, k := range keys {
		need = max(need, float64(k.units))
	}
	if last == first {
		return 0, 0, 0
	}
	return need / time.Duration(last-first).Seconds(), worst, latency.Round(time.Millisecond)
}

// Strict returns a policy's limit that counts from the answer, or nil.
func Strict(p policy.Policy) *policy.Limit {
	if !p.CountsArrivals() {
		return nil
	}
	return &p.Limits[slices.IndexFunc(p.Limits, policy.Limit.Arrivals)]
}

// Sustained returns the rate of a limit that counts from the answer, per second.
func Sustained(l policy.Limit, latency time.Duration) float64 {
	return float64(l.Limit) / (time.Duration(l.Window) + latency).Seconds()
}

// strict returns queues whose limit holds at the target, up to the goal itself.
func strict(g Goals, need float64, latency time.Duration) (all []policy.Policy) {
	if g.Outflow.IsZero() {
		return nil
	}
	window := g.Outflow.Per
	fastest := float64(g.Outflow.Count)
	slowest := min(need*(window+latency).Seconds(), fastest)
	for i := range strictRates {
		units := slowest * math.Pow(fastest/slowest, float64(i+1)/strictRates)
		l := policy.Limit{Key: policy.PlaceholderKey, CountFrom: policy.CountFromAnswer,
			Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: int64(units + 1e-9),
				Window: policy.Duration(window)}}
		all = append(all, capacities(g, Sustained(l, latency), policy.Policy{
			Rule: policy.Rule{Algorithm: policy.LeakingBucket}, Limits: policy.Limits{l}})...)
	}
	return all
}

// capacities returns the policy, which starts at a rate per second, with a capacity that keeps to
// the goals, and with half of it.
func capacities(g Goals, rate float64, p policy.Policy) (all []policy.Policy) {
	deepest := 1e6
	if wait := g.wait(); wait > 0 {
		deepest = rate * wait.Seconds()
	}
	for _, capacity := range []float64{deepest, deepest * spare} {
		p.Capacity = max(p.Burst, int64(capacity), 1)
		all = append(all, p)
	}
	return all
}

// queues returns leaking buckets, which guarantee peak·(T + 2 ms) + burst.
func queues(g Goals, need, worst float64) (all []policy.Policy) {
	bursts := []int64{1, 5, 25}
	if !g.Outflow.IsZero() {
		bursts = []int64{1, max(2, g.Outflow.Count/10), max(3, g.Outflow.Count/4)}
	}
	for _, burst := range bursts {
		fastest := 2 * worst
		if !g.Outflow.IsZero() {
			per := (g.Outflow.Per + 2*time.Millisecond).Seconds()
			fastest = float64(g.Outflow.Count-burst) / per / policy.DefaultPeak
		}
		slowest := min(need, fastest)
		for i := range rates {
			outflow := rate(slowest * math.Pow(fastest/slowest, float64(i+1)/rates))
			if outflow.IsZero() {
				continue
			}
			all = append(all, capacities(g, outflow.PerSecond(), policy.Policy{Rule: policy.Rule{
				Algorithm: policy.LeakingBucket, Outflow: outflow, Burst: burst}})...)
		}
	}
	return all
}

func doors(g Goals) (all []policy.Policy) {
	if g.Outflow.IsZero() {
		return nil
	}
	n, window := g.Outflow.Count, policy.Duration(g.Outflow.Per)
	rules := []policy.Rule{
		{Algorithm: policy.SlidingLog, Limit: n, Window: window, Count: policy.CountAccepted},
		{Algorithm: policy.FixedWindow, Limit: n / 2, Window: window},
		{Algorithm: policy.SlidingCounter, Limit: n / 2, Window: window},
	}
	for _, part := range []int64{20, 4, 2} {
		burst := max(1, n/part)
		rules = append(rules, policy.Rule{Algorithm: policy.TokenBucket, Capacity: burst,
			Refill: rate(float64(n-burst) / g.Outflow.Per.Seconds())})
	}
	for _, r := range rules {
		all = append(all, policy.Policy{Rule: r})
	}
	return all
}

func promised(p policy.Policy, per time.Duration) float64 {
	if l := Strict(p); l != nil {
		return float64(l.Limit)
	}
	if p.Paced() {
		return p.Outflow.PerSecond()*policy.DefaultPeak*(per+2*time.Millisecond).Seconds() +
			float64(p.Burst)
	}
	switch b := p.AtDoor().Bound(); {
	case b.Window == 0:
		return float64(b.Units) + b.Rate.PerSecond()*per.Seconds()
	case b.Aligned:
		return 2 * float64(b.Units)
	default:
		return float64(b.Units)
	}
}

// rate rounds down to two or three digits, perhaps to zero.
func rate(perSecond float64) algorithms.Rate {
	for _, per := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		n := math.Floor(perSecond * per.Seconds() * (1 + 1e-12))
		if n < 100 && per < 24*time.Hour {
			continue
		}
		digits := math.Pow(10, max(0, math.Floor(math.Log10(n))-2))
		if n = math.Floor(n/digits) * digits; n >= 1 {
			return algorithms.Rate{Count: int64(n), Per: per}
		}
	}
	return algorithms.Rate{}
}
