package core

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Operators change policies and overrides while jobs wait and run, pause, cancel and change jobs,
// and purge buckets.

type settings struct {
	paused     map[string]time.Duration // by policy or bucket: since when
	overrides  map[string]map[queue.Key]inforce.Override
	tries      map[string]span // most attempts ever allowed, by policy
	elsewhere  map[string]bool // policies whose jobs run in other processes alone
	slow       map[string]bool
	down       map[string]time.Duration // targets, of a policy or of a bucket: until when
	retired    map[string]*retirement
	cheap      bool
	operations []func(w *world, p *policy.Policy)
}

func newSettings() settings {
	return settings{
		paused: map[string]time.Duration{}, overrides: map[string]map[queue.Key]inforce.Override{},
		tries: map[string]span{}, elsewhere: map[string]bool{}, slow: map[string]bool{},
		down:    map[string]time.Duration{},
		retired: map[string]*retirement{},
	}
}

func someRate(w *world) algorithms.Rate {
	rates := []string{"1/s", "3/s", "10/s", "50/s", "200/s", "7/10s"}
	if w.has(slowRates) {
		rates = []string{"1/5s", "1/10s", "1/20s", "7/10s", "1/s"}
	}
	rate, err := algorithms.ParseRate(rates[w.rng.IntN(len(rates))])
	if err != nil {
		panic(err)
	}
	return rate
}

func somePeak(w *world, of algorithms.Rate) (peak algorithms.Rate) {
	if of.IsZero() || w.chance(0.5) {
		return peak
	}
	hundredths := []int64{100, 101, 104, 150}[w.rng.IntN(4)]
	return algorithms.Rate{Count: of.Count * hundredths, Per: of.Per * 100}
}

func (w *world) repeak(p *policy.Policy) {
	if p.AdaptiveRate != nil {
		least := p.Outflow
		least.Per *= 4
		p.AdaptiveRate = &policy.AdaptiveRate{Min: least}
	}
	p.Peak, p.PeakTotal = somePeak(w, p.Outflow), somePeak(w, p.OutflowTotal)
}

func (w *world) vary(p *policy.Policy) {
	if w.chance(0.3) {
		p.Partitions, p.OutflowTotal = 1, someRate(w)
		if w.chance(0.7) {
			p.Outflow, p.Burst = algorithms.Rate{}, 0
		}
		for _, key := range keys {
			if w.chance(0.4) {
				weight := 2 + w.rng.Int64N(4)
				w.overridesOf(p.Name)[key] = inforce.Override{Weight: &weight}
			}
		}
	}
	if !p.Outflow.IsZero() && w.chance(0.3) {
		p.AdaptiveRate = &policy.AdaptiveRate{}
	}
	w.repeak(p)
	w.set.slow[p.Name] = w.chance(0.35)
	if w.chance(0.3) {
		w.set.elsewhere[p.Name] = true
		for range 1 + w.rng.IntN(3) {
			w.lend(p.Name)
		}
	}
}

func (w *world) overridesOf(name string) map[queue.Key]inforce.Override {
	if w.set.overrides[name] == nil {
		w.set.overrides[name] = map[queue.Key]inforce.Override{}
	}
	return w.set.overrides[name]
}

// operators change policies and jobs while jobs run. Each seed has some kinds of changes, and
// judges the others without them.
func (w *world) operators(until time.Duration) {
	if w.chance(0.3) {
		return
	}
	for _, kind := range operations {
		if w.chance(0.4) {
			w.set.operations = append(w.set.operations, kind)
		}
	}
	if len(w.set.operations) == 0 {
		return
	}
	for at := w.between(2*time.Second, 6*time.Second); at <
		until; at += w.between(200*time.Millisecond, 8*time.Second) {
		w.after(at, func() {
			kind := w.set.operations[w.rng.IntN(len(w.set.operations))]
			kind(w, &w.policies[w.rng.IntN(len(w.policies))])
			w.tellAll()
		})
	}
}

var operations = []func(w *world, p *policy.Policy){
	func(w *world, p *policy.Policy) {
		if !p.Outflow.IsZero() {
			p.Outflow = someRate(w)
		}
		if !p.OutflowTotal.IsZero() {
			p.OutflowTotal = someRate(w)
		}
		w.repeak(p)
	},
	(*world).repeak,
	func(w *world, p *policy.Policy) {
		if !p.Outflow.IsZero() {
			p.Burst = 1 + w.rng.Int64N(5)
		}
	},
	func(w *world, p *policy.Policy) { p.Concurrency = w.rng.IntN(9) },
	func(w *world, p *policy.Policy) { p.Workers = 1 + w.rng.IntN(24) },
	func(w *world, p *policy.Policy) {
		p.Retry.MaxAttempts = 1 + w.rng.IntN(5)
		p.Retry.Backoff = policy.Duration(w.between(10*time.Millisecond, time.Second))
		most, tries := p.Retry.MaxAttempts, w.set.tries[p.Name]
		w.set.tries[p.Name] = span{min(tries.low, most), max(tries.high, most)}
	},
	(*world).resize,
	(*world).pause,
	(*world).override,
	func(w *world, p *policy.Policy) { w.pauseKey(p.Name, someKey(w)) },
	func(w *world, p *policy.Policy) {
		for range 1 + w.rng.IntN(4) {
			w.cancelSome(p.Name)
		}
	},
	func(w *world, p *policy.Policy) {
		for range 1 + w.rng.IntN(8) {
			w.editSome(p.Name)
		}
	},
	func(w *world, p *policy.Policy) { w.purge(p.Name, someKey(w)) },
}

func (w *world) resize(p *policy.Policy) {
	capacity := 10 + w.rng.Int64N(50)
	for _, depth := range w.streams[p.Name].depth {
		if depth > capacity {
			return
		}
	}
	p.Capacity = capacity
}

func (w *world) changeStep() {
	step := []time.Duration{0, time.Second, 3 * time.Second, 10 * time.Second}[w.rng.IntN(4)]
	w.policies[w.rng.IntN(len(w.policies))].PriorityStep = policy.Duration(step)
	w.tellAll()
}

func (w *world) pause(p *policy.Policy) {
	name := p.Name
	w.set.paused[name] = w.now
	w.after(w.between(100*time.Millisecond, 6*time.Second), func() {
		delete(w.set.paused, name)
		w.tellAll()
	})
}

func (w *world) override(p *policy.Policy) {
	var o inforce.Override
	if w.chance(0.4) {
		rate := someRate(w)
		o.Outflow = &rate
	}
	if rate := o.Outflow; rate != nil && w.chance(0.3) {
		if peak := somePeak(w, *rate); !peak.IsZero() {
			o.Peak = &peak
		}
	}
	if (o.Outflow != nil || !p.Outflow.IsZero()) && w.chance(0.3) {
		burst := 1 + w.rng.Int64N(5)
		o.Burst = &burst
	}
	if w.chance(0.4) {
		concurrency := w.rng.IntN(6)
		o.Concurrency = &concurrency
	}
	if !p.OutflowTotal.IsZero() && w.chance(0.6) {
		weight := 1 + w.rng.Int64N(5)
		o.Weight = &weight
	}
	w.setOverride(p.Name, someKey(w), o)
}

func (w *world) setOverride(name string, key queue.Key, o inforce.Override) {
	if problems := o.Validate(*w.policyOf(name)); len(problems) > 0 {
		panic(problems)
	}
	if !o.Paused {
		delete(w.set.paused, bucketOf(name, key))
	}
	w.overridesOf(name)[key] = o
}

func (w *world) pauseKey(name string, key queue.Key) {
	before := w.overridesOf(name)[key]
	o := before
	o.Paused, before.Paused = true, false
	w.setOverride(name, key, o)
	w.set.paused[bucketOf(name, key)] = w.now
	w.after(w.between(100*time.Millisecond, 6*time.Second), func() {
		w.setOverride(name, key, before)
		w.tellAll()
	})
}

func (w *world) asks(name string, number int, do func(d *drainer, p *partition)) {
	w.after(w.latency(), func() {
		for _, d := range w.drainers {
			s := d.core.shares.all[record.ShareKey(name, number)]
			if !w.down && d.reachable() && s != nil && s.part != nil &&
				s.part.Owned() && !s.part.fresh {
				do(d, s.part)
				d.step()
				return
			}
		}
	})
}

// cancelSome cancels a stored job, which must not start.
func (w *world) cancelSome(name string) {
	stored := slices.Sorted(maps.Keys(w.streams[name].messages))
	if len(stored) == 0 {
		return
	}
	seq := stored[w.rng.IntN(len(stored))]
	w.asks(name, w.streams[name].messages[seq].Partition, func(d *drainer, p *partition) {
		if w.sabotage != cancelForgotten {
			d.drop(p, job.Question{Op: job.OpCancel, Jobs: []uint64{seq}})
			return
		}
		a := d.ask(p, job.Question{Op: job.OpJob, Jobs: []uint64{seq}})
		if m := w.streams[name].messages[seq]; m != nil && a.Job != nil &&
			a.Job.State == job.Waiting {
			w.cancelled(w.fateOf(name, m), p)
		}
	})
}

func (w *world) purge(name string, key queue.Key) {
	w.asks(name, partitionOf(key, w.policyOf(name).Partitions), func(d *drainer, p *partition) {
		b := d.ask(p, job.Question{Op: job.OpBucket, Key: key}).Bucket
		if n := d.drop(p, job.Question{Op: job.OpPurge, Key: key}); n != b.Waiting+b.Delayed {
			w.fail("purge: %d jobs of %s were dropped, %d waited", n, bucketOf(name, key),
				b.Waiting+b.Delayed)
		}
	})
}

func (d *drainer) ask(p *partition, q job.Question) (a job.Answer) {
	before := d.core.questions
	d.core.questions = valve.Questions{}
	d.core.Handle(Asked{p.Partition, q, func(answer job.Answer) { a = answer }}, d.clock())
	d.core.Ponder(d.clock)
	d.core.questions = before
	return a
}

func (d *drainer) drop(p *partition, q job.Question) int {
	before := len(d.core.out.Cancelled)
	d.ask(p, q)
	dropped := d.core.out.Cancelled[before:]
	for _, r := range dropped {
		d.w.cancelled(d.w.fateNamed(r.Ref), p)
	}
	return len(dropped)
}

func (w *world) tellAll() {
	for i := range w.policies {
		w.valid(w.policies[i])
	}
	for _, d := range w.drainers {
		w.to(d, max(0, d.cut-w.now)+w.latency(), func() { d.hearSettings() })
	}
}

func (d *drainer) hearSettings() {
	w := d.w
	now := d.clock()
	var all []QueuePolicy
	for _, p := range w.policies {
		_, paused := w.set.paused[p.Name]
		r := w.set.retired[p.Name]
		if r != nil && r.gone {
			continue
		}
		d.note(&told{p, maps.Clone(w.set.overrides[p.Name]), paused})
		if w.sabotage == workersIgnored {
			p.Workers = 16
		}
		if w.sabotage == stepsIgnored {
			p.PriorityStep = 0
		}
		if w.sabotage == triesForever {
			p.Retry.MaxAttempts = 1000
		}
		if w.sabotage == backoffIgnored {
			p.Retry.Backoff, p.Retry.MaxBackoff = 1, 1
		}
		if w.sabotage == clumps && !p.Outflow.IsZero() {
			p.Peak = leaky("", "100000/s").Outflow
		}
		all = append(all, QueuePolicy{
			Policy: p, Paused: paused, Retired: r != nil, Own: !d.disowned[p.Name],
			Local: !w.set.elsewhere[p.Name],
		})
	}
	d.core.setAll(now, all...)
	for _, p := range w.policies {
		for _, key := range keys {
			if o, said := w.set.overrides[p.Name][key]; said {
				if w.sabotage == weightIgnored {
					o.Weight = nil
				}
				d.core.Handle(Overridden{p.Name, key, o}, now)
			}
		}
	}
}

type told struct {
	policy.Policy
	overrides map[queue.Key]inforce.Override
	paused    bool
}

func (d *drainer) note(now *told) {
	w := d.w
	before := d.told[now.Name]
	d.told[now.Name] = now
	if before == nil || reflect.DeepEqual(before, now) {
		return
	}
	for _, key := range keys {
		if before.own(key) != now.own(key) {
			bucket := bucketOf(now.Name, key)
			w.changes[bucket] = append(w.changes[bucket], change{w.now, now.own(key)})
		}
	}
	if before.total() != now.total() {
		w.changes[now.Name] = append(w.changes[now.Name], change{w.now, now.total()})
	}
	w.hold(d)
}

func (t *told) own(key queue.Key) pacing {
	o := t.overrides[key]
	rate, burst := t.Outflow, max(t.Burst, 1)
	if o.Outflow != nil {
		rate = *o.Outflow
	}
	if o.Burst != nil {
		burst = *o.Burst
	}
	if rate.IsZero() {
		return unpaced
	}
	return pacing{rate.PerSecond(), rate.PerSecond() * o.PeakRatio(t.Policy), burst}
}

func (t *told) total() pacing {
	if t.OutflowTotal.IsZero() {
		return unpaced
	}
	rate := t.OutflowTotal.PerSecond()
	return pacing{rate, rate * t.PeakTotalRatio(), 1}
}

func (t *told) concurrency(key queue.Key) int {
	if n := t.overrides[key].Concurrency; n != nil {
		return *n
	}
	return t.Concurrency
}

func (t *told) weight(key queue.Key) int64 {
	if n := t.overrides[key].Weight; n != nil {
		return *n
	}
	return 1
}

type pacing struct {
	rate  float64
	peak  float64
	burst int64
}

var unpaced = pacing{math.Inf(1), math.Inf(1), 1}

func (w *world) startedWhilePaused(d *drainer, bucket string) {
	name, _, _ := strings.Cut(bucket, "/")
	for _, what := range []string{name, bucket} {
		since, paused := w.set.paused[what]
		if paused && w.now-max(since, d.cut, d.frozen, d.born) > time.Second && !w.down {
			w.fail("a job of %s started although %s is paused since %v", bucket, what, since)
		}
	}
}
