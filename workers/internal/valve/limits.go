package valve

import (
	"maps"
	"reflect"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
)

// limits are a bucket's numbers, immutable and mostly shared.
type limits struct {
	pace        *pace.Pace // nil: unpaced
	concurrency int        // 0: unlimited
	weight      int64
	paused      bool
}

type settings struct {
	Policy    policy.Policy
	paused    bool    // the whole policy
	base      *limits // without an override
	overrides map[queue.Key]inforce.Override
}

// limitsFor applies an override, which cannot resume a key of a paused policy.
func limitsFor(p policy.Policy, o inforce.Override, paused bool) *limits {
	peak := o.PeakRatio(p)
	p = o.Apply(p)
	l := &limits{pace: pace.New(p.Outflow, peak, p.Burst), concurrency: p.Concurrency,
		weight: 1, paused: paused || o.Paused}
	if o.Weight != nil {
		l.weight = *o.Weight
	}
	return l
}

// Change applies new numbers, also to waiting jobs, except max_age.
func (v *Valve) Change(p policy.Policy, paused bool, now pace.Instant) {
	anew := !reflect.DeepEqual(p, v.Policy)
	if !anew && paused == v.paused {
		return
	}
	v.Policy, v.paused, v.Crew.Most = p, paused, p.Workers
	v.base, v.learning.rule = limitsFor(p, inforce.Override{}, paused), p.AdaptiveRate
	v.total.Change(totalOf(p), now)
	v.quota, v.candidates = quota.New(p), quota.NewCandidates(p)
	v.setTogether(p)
	v.gates.Quiet.Set(p.Quiet)
	for _, part := range v.parts {
		reorders := part.deep.Restep(time.Duration(p.PriorityStep))
		for _, b := range part.buckets {
			if most := now.Add(pace.Longest(p.Retry.MaxCooldown)); b.Cool > most {
				b.Cool = most
			}
			if reorders {
				b.rerank()
			}
			b.Target.Hasten(now)
			b.requota(v.quota)
			b.relimit(v.limitsOf(b.queue.Key), anew, v.learning, now)
		}
	}
	v.health.All.At = min(v.health.All.At, now)
}

// SetOverride changes a key's override; a zero one removes it.
func (v *Valve) SetOverride(key queue.Key, o inforce.Override, now pace.Instant) {
	if o.IsZero() {
		delete(v.overrides, key)
	} else {
		v.overrides[key] = o
	}
	for _, part := range v.parts {
		if b := part.buckets[key]; b != nil {
			b.relimit(v.limitsOf(key), false, v.learning, now)
		}
	}
}

// relimit applies a key's current limits. It adjusts the clock, because a reset would be worth a
// burst (law 2).
func (b *bucket) relimit(to *limits, anew bool, n *learning, now pace.Instant) {
	before := b.limits
	b.limits = to
	n.relearn(b, anew, before.pace)
	switch {
	case b.pace == nil:
		b.clock.Reset()
	case before.pace != nil:
		b.pace.Adapt(&b.clock, before.pace, now)
	}
	if before.pace == nil || before.paused && !b.paused {
		b.pace.Hold(&b.clock, now) // unpaced time and pauses earn no burst
	}
	b.changed()
}

func (s *settings) SetOverrides(overrides map[queue.Key]inforce.Override) {
	maps.Copy(s.overrides, overrides)
}
