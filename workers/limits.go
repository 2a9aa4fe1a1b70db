package workers

import (
	"maps"
	"reflect"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// limits are what one bucket obeys: its policy's numbers, or those of an override for its key.
type limits struct {
	pace        *pace // nil: the bucket's jobs start unpaced
	concurrency int   // 0: no limit
	weight      int64 // of the bucket's turns under the policy's total outflow
	paused      bool
}

// limitsFor lays an override over the policy.
func limitsFor(p policy.Policy, o policy.Override, paused bool) *limits {
	if o.Outflow != nil {
		p.Outflow = *o.Outflow
	}
	if o.Burst != nil {
		p.Burst = *o.Burst
	}
	l := &limits{pace: newPace(p.Outflow, p.Burst), concurrency: p.Concurrency, weight: 1, paused: paused || o.Paused}
	if o.Concurrency != nil {
		l.concurrency = *o.Concurrency
	}
	if o.Weight != nil {
		l.weight = *o.Weight
	}
	return l
}

// change is setPolicy when there is something to change: policies are told in sets.
func (v *valve) change(p policy.Policy, paused bool, now instant) {
	if paused != v.paused || !reflect.DeepEqual(p, v.policy) {
		v.setPolicy(p, paused, now)
	}
}

// setPolicy changes the numbers of a policy; jobs that wait obey them from now on.
func (v *valve) setPolicy(p policy.Policy, paused bool, now instant) {
	v.policy, v.paused = p, paused
	v.base = limitsFor(p, policy.Override{}, paused)
	for key, o := range v.overrides {
		v.special[key] = limitsFor(p, o, paused)
	}
	if total := newPace(p.OutflowTotal, 1); v.total != nil && total != nil {
		before := v.total
		v.total = total
		v.total.adapt(&v.totalClock, before, now)
	} else {
		v.total, v.totalClock = total, clock{}
		if total != nil {
			v.total.hold(&v.totalClock, now)
		}
	}
	for _, part := range v.parts {
		for _, b := range part.buckets {
			b.cool = min(b.cool, now.add(longest(p.Retry.MaxCooldown)))
			v.relimit(b, now)
			v.probeNow(b, now) // perhaps it has another target
		}
	}
	v.breaker.at = min(v.breaker.at, now)
}

// setOverride changes what one key obeys; the zero override takes it away.
func (v *valve) setOverride(key queue.Key, o policy.Override, now instant) {
	if o.IsZero() {
		delete(v.overrides, key)
		delete(v.special, key)
	} else {
		v.overrides[key] = o
		v.special[key] = limitsFor(v.policy, o, v.paused)
	}
	for _, part := range v.parts {
		if b := part.buckets[key]; b != nil {
			v.relimit(b, now)
		}
	}
}

// limitsOf is what a key's bucket obeys.
func (v *valve) limitsOf(key queue.Key) *limits {
	if l := v.special[key]; l != nil {
		return l
	}
	return v.base
}

// relimit gives a bucket the limits that are now its key's.
func (v *valve) relimit(b *bucket, now instant) {
	before := b.limits
	b.limits = v.limitsOf(b.key)
	switch {
	case b.pace == nil:
		b.clock = clock{} // a rate that comes later has nothing to do with that of before
	case before.pace != nil:
		b.pace.adapt(&b.clock, before.pace, now)
	}
	if b.pace != nil && (before.pace == nil || before.paused && !b.paused) {
		b.pace.hold(&b.clock, now) // neither freedom nor a pause earns a burst
	}
	v.place(b, now)
}

// setOverrides takes the overrides that a valve finds when it is made.
func (v *valve) setOverrides(overrides map[queue.Key]policy.Override) {
	v.overrides = maps.Clone(overrides)
	if v.overrides == nil {
		v.overrides = map[queue.Key]policy.Override{}
	}
	v.special = make(map[queue.Key]*limits, len(overrides))
	for key, o := range overrides {
		v.special[key] = limitsFor(v.policy, o, v.paused)
	}
}
