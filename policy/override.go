package policy

import (
	"github.com/penstock-mq/penstock/algorithms"
)

// MaxWeight bounds the weight of a key.
const MaxWeight = 1000

// Override has the settings of one key, or of a whole policy in a [Lever]. Nil fields follow the
// policy.
type Override struct {
	Outflow *algorithms.Rate `json:"outflow,omitempty"`
	// default: in the policy's ratio to the outflow
	Peak  *algorithms.Rate `json:"peak,omitempty"`
	Burst *int64           `json:"burst,omitempty"`
	// 0: no limit
	Concurrency *int `json:"concurrency,omitempty" zero:"meant"`
	// Weight is the key's share of turns under outflow_total and limits for all keys, 1 (default)
	// to 1000.
	Weight *int64 `json:"weight,omitempty"`
	// Capacity of buckets, at least the policy's: only of a whole policy.
	Capacity *int64 `json:"capacity,omitempty"`
	Paused   bool   `json:"paused,omitempty"` // by an operator
}

// PeakRatio is the peak of an overridden policy, relative to its outflow.
func (o Override) PeakRatio(p Policy) float64 {
	if o.Peak == nil {
		return p.PeakRatio()
	}
	return peakRatio(*o.Peak, o.Apply(p).Outflow)
}

// Apply returns the policy with the key's own outflow, burst and concurrency.
func (o Override) Apply(p Policy) Policy {
	if o.Outflow != nil {
		p.Outflow = *o.Outflow
	}
	if o.Burst != nil {
		p.Burst = *o.Burst
	}
	if o.Concurrency != nil {
		p.Concurrency = *o.Concurrency
	}
	return p
}

// ApplyAll returns the policy with an override of all keys. An outflow without a peak has the peak
// by default. What no longer fits the policy, whose file may have changed, is cut down.
func (o Override) ApplyAll(p Policy) Policy {
	if p = o.Apply(p); o.Outflow != nil {
		p.Peak = algorithms.Rate{}
	}
	if o.Peak != nil && o.Peak.PerSecond() >= p.Outflow.PerSecond() {
		p.Peak = *o.Peak
	}
	if a := p.AdaptiveRate; a != nil && a.Min.PerSecond() > p.Outflow.PerSecond() {
		p.AdaptiveRate = &AdaptiveRate{Min: p.Outflow}
	}
	if o.Weight != nil {
		p.Weight = *o.Weight
	}
	if o.Capacity != nil {
		p.Capacity = max(p.Capacity, *o.Capacity)
	}
	if p.MaxJobs > 0 {
		p.MaxJobs = max(p.MaxJobs, p.QueueCapacity())
	}
	if o.Burst != nil {
		p.Burst = min(p.Burst, p.Capacity)
	}
	return p
}

// ValidateAll returns why a policy cannot have an override of all keys.
func (o Override) ValidateAll(p Policy) []Problem {
	p = p.WithDefaults()
	var c checker
	given := given(o)
	for _, field := range []string{"outflow", "peak", "burst", "capacity"} {
		if given[field] && p.Door() {
			c.add(field, "applies only to %s, not to %s", LeakingBucket, p.decider())
		}
	}
	if len(c.problems) > 0 {
		return c.problems
	}
	if o.Paused && !p.HasQueue() {
		c.add("paused", "applies only to policies with a queue")
	}
	if o.Capacity != nil && *o.Capacity < p.Capacity {
		c.add("capacity", "must be at least the policy's (%d), not %d", p.Capacity, *o.Capacity)
	}
	if o.Peak != nil {
		c.peak("peak", *o.Peak, "outflow", o.Apply(p).Outflow)
	}
	if most := o.ApplyAll(p).Capacity; o.Burst != nil && *o.Burst > most {
		c.add("burst", "must be at most the capacity (%d), not %d", most, *o.Burst)
	}
	if len(c.problems) > 0 {
		return c.problems
	}
	return o.ApplyAll(p).Validate()
}

// IsZero reports whether nothing is overridden.
func (o Override) IsZero() bool { return o == Override{} }

// ParseOverride reads a JSON document, and refuses unknown fields.
func ParseOverride(data []byte) (Override, error) { return parse[Override](data) }

// Validate returns why a key of a policy cannot have the override.
func (o Override) Validate(p Policy) []Problem {
	p = p.WithDefaults()
	var c checker
	switch {
	case !p.HasQueue():
		c.add("", "policy %s has no queue, so its keys cannot have limits of their own", p.Name)
	case o.Capacity != nil:
		c.add("capacity", "applies only to a whole policy")
	case o.Weight != nil && p.OutflowTotal.IsZero() && p.together() < 0:
		c.add("weight", "requires an outflow_total or a limit for all keys in the policy")
	default:
		return o.ValidateAll(p)
	}
	return c.problems
}
