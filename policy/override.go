package policy

import (
	"fmt"

	"github.com/penstock-mq/penstock/algorithms"
)

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

// ValidateAll is [Override.Validate] of an override of all keys.
func (o Override) ValidateAll(p Policy) []Problem {
	p = p.WithDefaults()
	var c checker
	for field, given := range map[string]bool{"outflow": o.Outflow != nil, "peak": o.Peak != nil,
		"burst": o.Burst != nil, "capacity": o.Capacity != nil} {
		if given && p.Door() {
			c.add(field, "can only be overridden in a %s, not in a %s", LeakingBucket, p.decider())
		}
	}
	if o.Paused && !p.HasQueue() {
		c.add("paused", "applies only to policies with a queue")
	}
	if o.Capacity != nil && *o.Capacity < p.Capacity {
		c.add("capacity", "must be at least the policy's (%d), not %d", p.Capacity, *o.Capacity)
	}
	if outflow := o.Apply(p).Outflow; o.Peak != nil {
		c.peak("peak", *o.Peak, "outflow", outflow)
	}
	if most := o.ApplyAll(p).Capacity; o.Burst != nil && *o.Burst > most {
		c.add("burst", "must be at most the capacity (%d), not %d", most, *o.Burst)
	}
	if len(c.problems) > 0 {
		return c.problems
	}
	return o.ApplyAll(p).Validate()
}

func (o Override) IsZero() bool { return o == Override{} }

func ParseOverride(data []byte) (Override, error) { return parse[Override](data) }

func (o Override) Validate(p Policy) []Problem {
	p = p.WithDefaults()
	if !p.HasQueue() {
		return []Problem{{"",
			fmt.Sprintf("policy %s has no queue, so its keys cannot have limits of their own",
				p.Name)}}
	}
	var c checker
	if o.Capacity != nil {
		c.add("capacity", "applies only to a whole policy")
	}
	paced := o.Outflow != nil || !p.Outflow.IsZero()
	switch {
	case o.Outflow == nil:
	case !p.Paced():
		c.add("outflow", "applies only to %s, not to %s", LeakingBucket, p.decider())
	case o.Outflow.IsZero():
		c.add("outflow", "must be positive; to stop a key's jobs, pause it")
	default:
		c.rate("outflow", *o.Outflow)
		c.drain("outflow", p.Capacity, *o.Outflow)
	}
	switch {
	case o.Peak == nil:
	case !p.Paced():
		c.add("peak", "applies only to %s, not to %s", LeakingBucket, p.decider())
	case o.Peak.IsZero():
		c.add("peak", "must be positive; omit it for the policy's ratio of peak to outflow")
	default:
		c.peak("peak", *o.Peak, "outflow", o.Apply(p).Outflow)
	}
	switch {
	case o.Burst == nil:
	case !p.Paced():
		c.add("burst", "applies only to %s, not to %s", LeakingBucket, p.decider())
	case !paced:
		c.add("burst", "requires an outflow: outflow_total alone permits no bursts")
	case *o.Burst < 1 || *o.Burst > p.Capacity:
		c.add("burst", "must be 1 to the capacity (%d), not %d", p.Capacity, *o.Burst)
	}
	if n := o.Concurrency; n != nil && (*n < 0 || *n > MaxConcurrency) {
		c.add("concurrency", "must be 0 (no limit) to %d, not %d", MaxConcurrency, *n)
	}
	switch {
	case o.Weight == nil:
	case p.OutflowTotal.IsZero() && p.together() < 0:
		c.add("weight", "requires an outflow_total or a limit for all keys in the policy")
	case *o.Weight < 1 || *o.Weight > MaxWeight:
		c.add("weight", "must be 1 to %d, not %d", MaxWeight, *o.Weight)
	}
	return c.problems
}
