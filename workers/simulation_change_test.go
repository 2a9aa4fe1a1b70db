package workers

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// What operators and workers elsewhere add to the simulation: total outflows, costs, overrides, pauses, changes of rates
// while jobs wait, and jobs that run in other processes, with lost and late messages.

// settings is what operators have said, as the world knows it.
type settings struct {
	paused    map[string]time.Duration // by policy or bucket: since when
	overrides map[string]map[queue.Key]policy.Override
	most      map[string]float64 // the largest rate that a bucket, or a policy in total, ever had
	elsewhere map[string]int     // policies whose jobs run in other processes, and how many workers are free there
}

func newSettings() settings {
	return settings{
		paused: map[string]time.Duration{}, overrides: map[string]map[queue.Key]policy.Override{},
		most: map[string]float64{}, elsewhere: map[string]int{},
	}
}

func someRate(w *world) algorithms.Rate {
	rates := []string{"1/s", "3/s", "10/s", "50/s", "200/s", "7/10s"}
	rate, err := algorithms.ParseRate(rates[w.rng.IntN(len(rates))])
	if err != nil {
		panic(err)
	}
	return rate
}

// vary gives some policies a total outflow, and some no local workers.
func (w *world) vary(p *policy.Policy) {
	if w.chance(0.25) {
		p.Partitions, p.OutflowTotal = 1, someRate(w)
		if w.chance(0.5) {
			p.Outflow, p.Burst = algorithms.Rate{}, 0
		}
	}
	if w.chance(0.25) {
		w.set.elsewhere[p.Name] = 16
	}
	w.allowed(*p)
}

// allowed remembers the largest rates: over a change law 2 uses the larger one.
func (w *world) allowed(p policy.Policy) {
	w.set.most[p.Name] = max(w.set.most[p.Name], p.OutflowTotal.PerSecond())
	for i := range 4 {
		key := queue.Key(fmt.Sprintf("k%d", i))
		rate := p.Outflow
		if o := w.set.overrides[p.Name][key].Outflow; o != nil {
			rate = *o
		}
		bucket := p.Name + "/" + string(key)
		w.set.most[bucket] = max(w.set.most[bucket], rate.PerSecond())
	}
}

// operators change things while jobs wait and run.
func (w *world) operators(until time.Duration) {
	if w.chance(0.5) {
		return
	}
	for at := w.between(2*time.Second, 10*time.Second); at < until; at += w.between(time.Second, 15*time.Second) {
		w.after(at, w.operate)
	}
}

func (w *world) operate() {
	i := w.rng.IntN(len(w.policies))
	p := &w.policies[i]
	key := queue.Key(fmt.Sprintf("k%d", w.rng.IntN(4)))
	switch w.rng.IntN(4) {
	case 0:
		if !p.Outflow.IsZero() {
			p.Outflow = someRate(w)
		}
		if !p.OutflowTotal.IsZero() {
			p.OutflowTotal = someRate(w)
		}
	case 1:
		w.pause(p.Name)
	case 2:
		rate := someRate(w)
		weight := 1 + w.rng.Int64N(4)
		w.override(p.Name, key, policy.Override{Outflow: &rate, Weight: &weight})
	case 3:
		w.override(p.Name, key, policy.Override{Paused: true})
		w.set.paused[p.Name+"/"+string(key)] = w.now
		w.after(w.between(100*time.Millisecond, 6*time.Second), func() {
			w.override(p.Name, key, policy.Override{})
		})
	}
	w.allowed(*p)
	w.tellAll()
}

func (w *world) pause(name string) {
	w.set.paused[name] = w.now
	w.after(w.between(100*time.Millisecond, 6*time.Second), func() {
		delete(w.set.paused, name)
		w.tellAll()
	})
}

func (w *world) override(name string, key queue.Key, o policy.Override) {
	if w.set.overrides[name] == nil {
		w.set.overrides[name] = map[queue.Key]policy.Override{}
	}
	if !o.Paused {
		delete(w.set.paused, name+"/"+string(key))
	}
	w.set.overrides[name][key] = o
	w.allowed(w.policyOf(name))
	w.tellAll()
}

// tellAll lets the drainers hear of the settings: soon, and after a break as soon as they are connected again.
func (w *world) tellAll() {
	for _, d := range w.drainers {
		w.to(d, max(0, d.cut-w.now)+w.latency(), func() { d.hearSettings() })
	}
}

// hearSettings tells a drainer everything as it is now.
func (d *drainer) hearSettings() {
	w := d.w
	now := d.clock()
	d.core.setPolicies(w.queuePolicies(), now)
	for _, p := range w.policies {
		for i := range 4 {
			key := queue.Key(fmt.Sprintf("k%d", i))
			if o, said := w.set.overrides[p.Name][key]; said {
				d.core.setOverride(p.Name, key, o, now)
			}
		}
	}
}

func (w *world) queuePolicies() (all []queuePolicy) {
	for _, p := range w.policies {
		_, elsewhere := w.set.elsewhere[p.Name]
		_, paused := w.set.paused[p.Name]
		all = append(all, queuePolicy{Policy: p, paused: paused, own: true, local: !elsewhere})
	}
	return all
}

// startedWhilePaused checks that a pause is in force within a second, for a drainer that could hear of it.
func (w *world) startedWhilePaused(d *drainer, bucket string) {
	name, _, _ := strings.Cut(bucket, "/")
	for _, what := range []string{name, bucket} {
		since, paused := w.set.paused[what]
		if paused && w.now-max(since, d.cut, d.frozen, d.born) > time.Second && !w.down {
			w.fail("a job of %s started although %s is paused since %v", bucket, what, since)
		}
	}
}

// propose plays an offer to workers elsewhere: one with room claims, unless a message is lost.
func (d *drainer) propose(name string) {
	w := d.w
	answer := func(delay time.Duration, result offerResult) {
		w.to(d, delay, func() { d.core.offered(name, result, d.clock()) })
	}
	turn := d.core.next(name)
	free, elsewhere := w.set.elsewhere[name]
	switch {
	case !elsewhere:
		answer(w.latency(), offerNobody)
	case w.down || d.cut > w.now || w.chance(0.02):
		answer(claimWindow, offerBusy)
	case free == 0:
		answer(w.latency(), offerBusy)
	default:
		w.set.elsewhere[name]--
		claimAt := w.now + w.latency()
		w.after(claimAt-w.now+claimWindow, func() { // it hears nothing, or what it heard counts on its own
			w.set.elsewhere[name]++
		})
		w.to(d, claimAt-w.now+w.latency(), func() {
			until := d.clock().add(claimWindow / 2)
			d.core.claimed(name, claimed{worker: fmt.Sprint(int64(claimAt)), turn: turn, until: until})
			d.core.offered(name, offerClaimed, d.clock())
		})
	}
}

// ranElsewhere plays the way of a job to a worker in another process and draws what may go wrong there.
func (d *drainer) ranElsewhere(r *run, took time.Duration, o outcome) (time.Duration, outcome) {
	w := d.w
	switch {
	case w.chance(0.02): // go came too late: the slot is spent, no attempt is counted
		o.Kind, o.Error = outcomeUncounted, ""
		return w.between(claimWindow, 3*claimWindow), o
	case w.chance(0.02): // the worker is never heard of again
		o.Kind, o.Error = outcomeFailed, "time-out"
		return time.Duration(w.policyOf(r.part.policy).Timeout), o
	}
	return took + 2*w.latency(), o
}
