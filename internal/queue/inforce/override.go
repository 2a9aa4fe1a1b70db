package inforce

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/strict"
	"github.com/penstock-mq/penstock/policy"
)

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
func (o Override) PeakRatio(p policy.Policy) float64 {
	if o.Peak == nil {
		return p.PeakRatio()
	}
	p.Peak, p.Outflow = *o.Peak, o.Apply(p).Outflow
	return p.PeakRatio()
}

// Apply returns the policy with the key's own outflow, burst and concurrency.
func (o Override) Apply(p policy.Policy) policy.Policy {
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
func (o Override) ApplyAll(p policy.Policy) policy.Policy {
	if p = o.Apply(p); o.Outflow != nil {
		p.Peak = algorithms.Rate{}
	}
	if o.Peak != nil && o.Peak.PerSecond() >= p.Outflow.PerSecond() {
		p.Peak = *o.Peak
	}
	if a := p.AdaptiveRate; a != nil && a.Min.PerSecond() > p.Outflow.PerSecond() {
		p.AdaptiveRate = &policy.AdaptiveRate{Min: p.Outflow}
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
func (o Override) ValidateAll(p policy.Policy) []policy.Problem {
	p = p.WithDefaults()
	var found problems
	for _, of := range []struct {
		field string
		given bool
	}{{"outflow", o.Outflow != nil}, {"peak", o.Peak != nil}, {"burst", o.Burst != nil},
		{"capacity", o.Capacity != nil}} {
		if of.given && p.Door() {
			found.add(of.field, "applies only to %s, not to %s", policy.LeakingBucket, decider(p))
		}
	}
	if len(found) > 0 {
		return found
	}
	if o.Paused && !p.HasQueue() {
		found.add("paused", "applies only to policies with a queue")
	}
	if o.Capacity != nil && *o.Capacity < p.Capacity {
		found.add("capacity", "must be at least the policy's (%d), not %d", p.Capacity, *o.Capacity)
	}
	if o.Peak != nil {
		above := o.Apply(p)
		above.Peak = *o.Peak
		for _, of := range above.Validate() {
			if of.Field == "peak" {
				found = append(found, of)
			}
		}
	}
	if most := o.ApplyAll(p).Capacity; o.Burst != nil && *o.Burst > most {
		found.add("burst", "must be at most the capacity (%d), not %d", most, *o.Burst)
	}
	if len(found) > 0 {
		return found
	}
	return o.ApplyAll(p).Validate()
}

// IsZero reports whether nothing is overridden.
func (o Override) IsZero() bool { return o == Override{} }

// ParseOverride reads a JSON document, and refuses unknown fields.
func ParseOverride(data []byte) (o Override, err error) {
	document := strict.JSON(data, &o)
	if found := document.Problems(); len(found) > 0 {
		var all problems
		for _, p := range found {
			all.add(p.Place, "%s", p.Reason)
		}
		return Override{}, policy.Invalid(all)
	}
	return o, nil
}

// Validate returns why a key of a policy cannot have the override.
func (o Override) Validate(p policy.Policy) []policy.Problem {
	p = p.WithDefaults()
	var found problems
	switch {
	case !p.HasQueue():
		found.add("", "policy %s has no queue, so its keys cannot have limits of their own", p.Name)
	case o.Capacity != nil:
		found.add("capacity", "applies only to a whole policy")
	case o.Weight != nil && !together(p):
		found.add("weight", "requires an outflow_total or a limit for all keys in the policy")
	default:
		return o.ValidateAll(p)
	}
	return found
}

type problems []policy.Problem

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, policy.Problem{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// together reports whether buckets of the policy wait for each other.
func together(p policy.Policy) bool {
	return !p.OutflowTotal.IsZero() ||
		p.Paced() && slices.ContainsFunc(p.Limits, policy.Limit.Together)
}

// decider is what decides: an algorithm, or several limits.
func decider(p policy.Policy) string { return cmp.Or(string(p.Algorithm), "limits") }

// Lever is an operator's override of a whole policy. It lasts until it expires or is removed,
// whatever the policy's file or the API writes meanwhile.
type Lever struct {
	Override
	By      string     `json:"by,omitempty"` // the operator's name or address
	At      time.Time  `json:"at"`
	Because string     `json:"because,omitempty"`
	Expires *time.Time `json:"expires,omitempty"` // without it, never
}

// MaxBecause bounds the text of [Lever.Because], in bytes.
const MaxBecause = 256

// Levers are those of a policy, the oldest first. No two set the same field.
type Levers []Lever

// Override returns what all levers set.
func (l Levers) Override() (o Override) {
	for _, one := range l {
		o = Override{Outflow: cmp.Or(o.Outflow, one.Outflow), Peak: cmp.Or(o.Peak, one.Peak),
			Burst: cmp.Or(o.Burst, one.Burst), Concurrency: cmp.Or(o.Concurrency, one.Concurrency),
			Weight: cmp.Or(o.Weight, one.Weight), Capacity: cmp.Or(o.Capacity, one.Capacity),
			Paused: o.Paused || one.Paused}
	}
	return o
}

// Patch applies a JSON merge patch of an [Override]: the fields it names are set by a new lever,
// which has the other fields of next, and no longer by former ones; null only ends those.
func (l Levers) Patch(patch []byte, next Lever) (Levers, error) {
	var err error
	if next.Override, err = (Override{}).Patch(patch); err != nil {
		return nil, err
	}
	var named map[string]any
	if err := json.Unmarshal(patch, &named); err != nil {
		return nil, err
	}
	for name := range named {
		named[name] = nil
	}
	ended, err := json.Marshal(named)
	if err != nil {
		return nil, err
	}
	var after Levers
	for _, one := range l {
		if one.Override, err = one.Patch(ended); err != nil {
			return nil, err
		}
		after = append(after, one)
	}
	return slices.DeleteFunc(append(after, next), func(one Lever) bool { return one.IsZero() }), nil
}

// At returns the levers that have not expired.
func (l Levers) At(now time.Time) Levers {
	return slices.DeleteFunc(slices.Clone(l), func(one Lever) bool {
		return one.Expires != nil && !now.Before(*one.Expires)
	})
}

// Text tells what a lever changes in a policy of a source, as "file: 96/s, now 2/s by ann, 23 min
// left: their incident".
func (l Lever) Text(e Entry, now time.Time) string {
	var was, is []string
	written := flatten(e.Written)
	for _, f := range flatten(l.Override) {
		before := textAt(f.place, written, "none")
		switch {
		case f.place == "paused":
			was, is = append(was, "running"), append(is, "paused")
		case f.place == "outflow":
			was, is = append(was, before), append(is, f.text)
		default:
			was, is = append(was, f.place+" "+before), append(is, f.place+" "+f.text)
		}
	}
	text := fmt.Sprintf("%s: %s, now %s", e.Source, strings.Join(was, ", "), strings.Join(is, ", "))
	if l.By != "" {
		text += " by " + l.By
	}
	if l.Expires != nil {
		text += ", " + left(l.Expires.Sub(now)).String() + " left"
	}
	if l.Because != "" {
		text += ": " + l.Because
	}
	return text
}

// left rounds up, to minutes if there are several.
func left(d time.Duration) policy.Duration {
	unit := time.Second
	if d > time.Minute {
		unit = time.Minute
	}
	return policy.Duration((max(d, 0) + unit - 1) / unit * unit)
}
