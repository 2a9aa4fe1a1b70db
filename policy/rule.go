package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// Rule is one limit of a policy: an algorithm with its numbers, and what it counts by. Its numbers mean what those of the
// same name mean in a [Policy].
type Rule struct {
	// Name tells the limits of one policy apart, and their states in a store: 1 to 32 of a-z, 0-9 and -. Needed when there are
	// several: by its name a limit keeps its state when the list changes.
	Name string `json:"name,omitempty"`
	// Key is a template of what is counted together: "{key}" is the key of the request, "{ip}" the address of its client,
	// and a text without either, such as "global", is one count for all requests.
	Key       string    `json:"key"`
	Algorithm Algorithm `json:"algorithm"`

	Outflow  algorithms.Rate `json:"outflow,omitzero"`
	Burst    int64           `json:"burst,omitempty"`
	Capacity int64           `json:"capacity,omitempty"`
	Refill   algorithms.Rate `json:"refill,omitzero"`
	Limit    int64           `json:"limit,omitempty"`
	Window   Duration        `json:"window,omitempty"`
	Count    Count           `json:"count,omitempty"` // default all for a policy's only rule, accepted among several
}

// Rules is the `limits:` field.
type Rules []Rule

// The placeholders of [Rule.Key].
const (
	PlaceholderKey = "{key}"
	PlaceholderIP  = "{ip}"
)

// MaxRules is how many limits a policy may list, and maxTemplate how long the key of one may be, in bytes.
const (
	MaxRules    = 8
	maxTemplate = 256
)

// Rules is what the policy decides by at the door: its limits, or its own algorithm, by key. Of a policy whose queue alone
// decides it is what the algorithm says, too.
func (p Policy) Rules() Rules {
	if len(p.Limits) > 0 {
		return p.Limits
	}
	return Rules{{
		Name: p.Name, Key: PlaceholderKey, Algorithm: p.Algorithm, Outflow: p.Outflow, Burst: p.Burst, Capacity: p.Capacity,
		Refill: p.Refill, Limit: p.Limit, Window: p.Window, Count: p.Count,
	}}
}

// asPolicy is the rule as a policy of its own, without a queue.
func (r Rule) asPolicy() Policy {
	return Policy{
		Algorithm: r.Algorithm, Outflow: r.Outflow, Burst: r.Burst, Capacity: r.Capacity, Refill: r.Refill, Limit: r.Limit,
		Window: r.Window, Count: r.Count, Queue: &Queue{Off: true},
	}
}

// withDefaults is the rule as one of several.
func (r Rule) withDefaults() Rule {
	switch r.Algorithm {
	case LeakingBucket:
		r.Burst = cmp.Or(r.Burst, 1)
	case SlidingLog:
		r.Count = cmp.Or(r.Count, CountAccepted)
	}
	return r
}

// Expand is what a request of a key and a client's address is counted by.
func (r Rule) Expand(key, ip string) string {
	if r.Key == PlaceholderKey {
		return key
	}
	return strings.NewReplacer(PlaceholderKey, key, PlaceholderIP, ip).Replace(r.Key)
}

// ByIP reports whether the client's address must be known.
func (r Rule) ByIP() bool { return strings.Contains(r.Key, PlaceholderIP) }

// Share is an n-th part of the rule, for one of n that decide without knowing of each other: a whole number of units, at
// least 1, at an n-th of the rate, but not less than one per 366 days.
func (r Rule) Share(n int) Rule {
	if n <= 1 {
		return r
	}
	part := func(units int64) int64 {
		if units == 0 {
			return 0
		}
		return max(1, units/int64(n))
	}
	r.Capacity, r.Limit, r.Burst = part(r.Capacity), part(r.Limit), part(r.Burst)
	r.Outflow, r.Refill = slower(r.Outflow, n), slower(r.Refill, n)
	for _, rate := range []algorithms.Rate{r.Outflow, r.Refill} {
		if !rate.IsZero() { // rounded down, it may make too little for the capacity
			r.Capacity = max(1, min(r.Capacity, int64(rate.PerSecond()*time.Duration(longestDrain).Seconds())))
		}
	}
	r.Burst = min(r.Burst, r.Capacity)
	return r
}

// slower is an n-th of a rate, exact unless its period would become longer than a rate's may be.
func slower(r algorithms.Rate, n int) algorithms.Rate {
	switch per := r.Per * time.Duration(n); {
	case r.IsZero():
	case r.Per <= time.Duration(longest)/time.Duration(n):
		r.Per = per
	default:
		r.Count = max(1, r.Count/int64(n))
	}
	return r
}

// OnCluster reports why the limits cannot be kept in a Redis Cluster: the keys of one question must lie in one slot there,
// which they do when all limits count by the same.
func (p Policy) OnCluster() []Problem {
	var problems []Problem
	for i, r := range p.Limits {
		if r.Key != p.Limits[0].Key {
			problems = append(problems, Problem{fmt.Sprintf("limits[%d].key", i), fmt.Sprintf(
				"%s: must be %s as in the first limit with a Redis Cluster, where all that one question asks lies in one slot",
				quote(r.Key), quote(p.Limits[0].Key))})
		}
	}
	return problems
}

// UnmarshalJSON implements [json.Unmarshaler], as strictly as [Parse] reads a policy. Its error is an [*InvalidError].
func (rs *Rules) UnmarshalJSON(data []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return &InvalidError{[]Problem{{"", fmt.Sprintf("want a list, not %s", kind(data))}}}
	}
	var problems []Problem
	read := make(Rules, len(items))
	for i, item := range items {
		r := &read[i]
		problems = append(problems, decode(item, fmt.Sprintf("[%d].", i), fields{
			"name": &r.Name, "key": &r.Key, "algorithm": &r.Algorithm, "outflow": &r.Outflow, "burst": &r.Burst,
			"capacity": &r.Capacity, "refill": &r.Refill, "limit": &r.Limit, "window": &r.Window, "count": &r.Count,
		})...)
	}
	if *rs = read; len(read) == 0 {
		*rs = nil // as if not given
	}
	return Invalid(problems)
}

// checkLimits checks the limits of a policy that lists some, and that it has no algorithm besides.
func (p Policy) checkLimits(c *checker) {
	given := p.given()
	for _, field := range []string{
		"algorithm", "outflow", "outflow_total", "burst", "capacity", "refill", "limit", "window", "count",
	} {
		if given[field] {
			c.add(field, "stands beside limits: give it in one of them")
		}
	}
	if len(p.Limits) > MaxRules {
		c.add("limits", "must be at most %d, not %d", MaxRules, len(p.Limits))
		return
	}
	for i, r := range p.Limits {
		in := checker{at: fmt.Sprintf("limits[%d].", i)}
		if r.Name == "" && len(p.Limits) == 1 {
			r.Name = p.Name
		}
		r.check(&in)
		same := func(other Rule) bool { return other.Name == r.Name }
		if first := slices.IndexFunc(p.Limits, same); first < i && r.Name != "" {
			in.add("name", "%s is the name of limits[%d] already", quote(r.Name), first)
		}
		c.problems = append(c.problems, in.problems...)
	}
}

func (r Rule) check(c *checker) {
	switch {
	case r.Name == "":
		c.add("name", "is required among several limits, which keep their state by it")
	case !namePattern.MatchString(r.Name):
		c.add("name", "%s: want 1 to 32 of a-z, 0-9 and -", quote(r.Name))
	}
	rest := strings.NewReplacer(PlaceholderKey, "", PlaceholderIP, "").Replace(r.Key)
	switch {
	case r.Key == "":
		c.add("key", "is required: what is counted together, such as %s, %s or global", PlaceholderKey, PlaceholderIP)
	case len(r.Key) > maxTemplate:
		c.add("key", "must have at most %d bytes, not %d", maxTemplate, len(r.Key))
	case strings.ContainsAny(rest, "{}"):
		c.add("key", "%s: the only placeholders are %s and %s", quote(r.Key), PlaceholderKey, PlaceholderIP)
	}
	p := r.asPolicy()
	p.checkAlgorithm(c)
	p.checkNumbers(c)
	if r.Count == CountAll {
		c.add("count", "must be %s among several limits: a refusal takes nothing from any of them", CountAccepted)
	}
}
