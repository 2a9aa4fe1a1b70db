package valve

import (
	"maps"
	"reflect"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// limits are what buckets obey: a policy's numbers, or those of an override for a key. They are
// replaced, and never changed.
//
// All buckets of a policy without an override share one, so a hundred thousand of them take eight
// bytes each for it, and a change of the policy is one new value.
type limits struct {
	pace        *pace.Pace // nil: the bucket's jobs start unpaced
	concurrency int        // 0: no limit
	weight      int64      // of the bucket's turns under the policy's total outflow
	step        int64      // of priority, in ns of waiting; 0: the higher one goes first
	paused      bool
}

// limitsFor lays an override over the policy. A valve keeps the result for each key that has one,
// and gives it to the bucket, so that a change reaches waiting jobs at once.
//
// A key cannot be resumed while its policy is paused: whoever paused all of it did not mean all but
// one.
func limitsFor(p policy.Policy, o policy.Override, paused bool) *limits {
	peak := o.PeakRatio(p)
	if o.Outflow != nil {
		p.Outflow = *o.Outflow
	}
	if o.Burst != nil {
		p.Burst = *o.Burst
	}
	l := &limits{pace: pace.New(p.Outflow, peak, p.Burst), concurrency: p.Concurrency,
		weight: 1, step: int64(p.PriorityStep), paused: paused || o.Paused}
	if o.Concurrency != nil {
		l.concurrency = *o.Concurrency
	}
	if o.Weight != nil {
		l.weight = *o.Weight
	}
	return l
}

// Change is setPolicy when there is something to change: policies come in sets, most as they were.
func (v *Valve) Change(p policy.Policy, paused bool, now pace.Instant) {
	if paused != v.paused || !reflect.DeepEqual(p, v.Policy) {
		v.setPolicy(p, paused, now)
	}
}

// setPolicy changes the numbers of a policy; jobs that wait obey them from now on, but for max_age,
// which gave them their last date when they arrived.
//
// An operator who changes a rate wants it to hold now, also for what waits; a wait that was longer
// under the numbers of before ends with them. News of a policy may be news of its target as well,
// so breakers probe at once.
func (v *Valve) setPolicy(p policy.Policy, paused bool, now pace.Instant) {
	anew := !reflect.DeepEqual(p, v.Policy)
	v.Policy, v.paused = p, paused
	v.base = limitsFor(p, policy.Override{}, paused)
	for key, o := range v.overrides {
		v.special[key] = limitsFor(p, o, paused)
	}
	if total := pace.New(p.OutflowTotal, p.PeakTotalRatio(), 1); v.total != nil && total != nil {
		before := v.total
		v.total = total
		v.total.Adapt(&v.totalClock, before, now)
	} else {
		v.total = total
		v.totalClock.Reset()
		if total != nil {
			v.total.Hold(&v.totalClock, now)
		}
	}
	v.setQuota(quota.New(p), quota.NewCandidates(p))
	v.setTogether(p)
	for _, part := range v.parts {
		for _, b := range part.buckets {
			b.cool = min(b.cool, now.Add(pace.Longest(p.Retry.MaxCooldown)))
			v.relimit(b, anew, now)
			v.probeNow(b, now) // perhaps it has another target
		}
	}
	v.breaker.at = min(v.breaker.at, now)
}

// SetOverride changes what one key obeys; the zero override takes it away.
func (v *Valve) SetOverride(key job.Key, o policy.Override, now pace.Instant) {
	if o.IsZero() {
		delete(v.overrides, key)
		delete(v.special, key)
	} else {
		v.overrides[key] = o
		v.special[key] = limitsFor(v.Policy, o, v.paused)
	}
	for _, part := range v.parts {
		if b := part.buckets[key]; b != nil {
			v.relimit(b, false, now)
		}
	}
}

// relimit gives a bucket the limits that are now its key's. Under a policy that is another, or at
// another outflow, it begins to learn anew.
//
// The clock is fitted to the new pace and not begun anew, or each change of a number would be worth
// a burst (law 2).
func (v *Valve) relimit(b *bucket, anew bool, now pace.Instant) {
	before := b.limits
	b.limits = v.limitsOf(b.key)
	v.relearn(b, anew, before.pace)
	if b.step != before.step {
		b.rerank()
	}
	switch {
	case b.pace == nil:
		b.clock.Reset() // a rate that comes later has nothing to do with that of before
	case before.pace != nil:
		b.pace.Adapt(&b.clock, before.pace, now)
	}
	if b.pace != nil && (before.pace == nil || before.paused && !b.paused) {
		b.pace.Hold(&b.clock, now) // neither freedom nor a pause earns a burst
	}
	v.place(b, now)
}

// SetOverrides takes the overrides that a valve finds when it is made.
//
// They are kept although most of their keys have no bucket: the bucket comes with the key's first
// job, and must obey from that one on.
func (v *Valve) SetOverrides(overrides map[job.Key]policy.Override) {
	v.overrides = maps.Clone(overrides)
	if v.overrides == nil {
		v.overrides = map[job.Key]policy.Override{}
	}
	v.special = make(map[job.Key]*limits, len(overrides))
	for key, o := range overrides {
		v.special[key] = limitsFor(v.Policy, o, v.paused)
	}
}
