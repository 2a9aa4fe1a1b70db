package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/zones"
)

// Limit is one of several under the name of a policy: a rule, and what it counts by.
type Limit struct {
	// Name distinguishes the limits of one policy, and their states in a store: 1 to 32 of a-z, 0-9
	// and -. Needed when there are several: by its name a limit keeps its state when the list
	// changes.
	Name string `json:"name,omitempty"`
	// Key is a template of what is counted together: "{key}" is the key of the request, "{ip}" the
	// address of its client, and a text without either, such as "global", is one count for all
	// requests. Limits on starts count by "{key}", which is their default, or all starts of the
	// policy together, by "global": that needs one partition.
	Key string `json:"key"`
	// Cost is the name of what a limit on starts counts, when it is another thing than the slots of
	// the job: with tokens a job takes what its header Penstock-Cost-Tokens says.
	Cost string `json:"cost,omitempty"`
	// Shadow makes the limit decide and hold nothing back: it counts what it would have refused or
	// delayed, also of requests that other limits refuse.
	Shadow bool `json:"shadow,omitempty"`
	// Shared is the name of a limit on starts that several policies obey together, whose rule this
	// is. All of them have the same one, and one partition each. A file says it once, under
	// shared_limits, and names it in the policies: see [Limit.CheckAsShared].
	Shared string `json:"shared,omitempty"`
	Rule
}

// Limits is the `limits:` field.
type Limits []Limit

// Together reports whether a limit on starts is one for all keys of its policy.
func (l Limit) Together() bool { return l.Key == KeyGlobal }

// together is which of the policy's limits on starts is one for all keys, −1: none.
func (p Policy) together() int {
	if !p.Paced() {
		return -1
	}
	return slices.IndexFunc(p.Limits, Limit.Together)
}

// KeyGlobal is the [Limit.Key] of a limit on the starts of all keys together.
const KeyGlobal = "global"

// The placeholders of [Limit.Key].
const (
	PlaceholderKey = "{key}"
	PlaceholderIP  = "{ip}"
)

// MaxLimits is how many limits a policy may list, and maxTemplate how long the key of one may be,
// in bytes.
const (
	MaxLimits   = 8
	maxTemplate = 256
)

// AllLimits returns what the policy decides by at the door: its limits, or its own rule by key. For
// a policy whose queue alone decides it is what the rule says, too.
func (p Policy) AllLimits() Limits {
	if p.Door() && len(p.Limits) > 0 {
		return p.Limits
	}
	return Limits{{Name: p.Name, Key: PlaceholderKey, Rule: p.Rule}}
}

// Enforced returns those of Limits that hold something back.
func (p Policy) Enforced() Limits {
	return slices.DeleteFunc(slices.Clone(p.Limits), func(l Limit) bool {
		return l.Shadow || p.Shadow
	})
}

// Candidates returns the limits that only count what they would have done.
func (p Policy) Candidates() Limits {
	of := p.Limits
	if p.Door() || p.Meter() {
		of = p.AllLimits()
	}
	return slices.DeleteFunc(slices.Clone(of), func(l Limit) bool {
		return !l.Shadow && !p.Shadow
	})
}

// withDefaults returns the limit as one of several.
func (l Limit) withDefaults() Limit {
	if l.Shared != "" {
		l.Name, l.Key = cmp.Or(l.Name, l.Shared), cmp.Or(l.Key, KeyGlobal)
	}
	switch l.Algorithm {
	case LeakingBucket:
		l.Burst = cmp.Or(l.Burst, 1)
	case SlidingLog:
		l.Count = cmp.Or(l.Count, CountAccepted)
	}
	return l
}

// Most is the largest cost that the limit can ever let pass.
func (l Limit) Most() int64 {
	switch l.Algorithm {
	case TokenBucket:
		return l.Capacity
	case LeakingBucket:
		return max(l.Burst, 1)
	}
	return l.Limit
}

// Takes is what a job takes of a limit on starts: its cost of the name that the limit counts, or
// else its cost.
func (l Limit) Takes(cost int64, costs map[string]int64) int64 {
	if n, given := costs[l.Cost]; given && l.Cost != "" {
		return n
	}
	return cost
}

// BeyondLimits returns which limit on the policy's starts can never let a job of these costs start,
// which of the costs is too large, and the most that the limit lets pass; empty when all can.
func (p Policy) BeyondLimits(cost int64, costs map[string]int64) (limit, of string, most int64) {
	if !p.Paced() || p.Shadow {
		return "", "", 0
	}
	for i := range p.Limits { // those that are enforced, without copying them
		if l := &p.Limits[i]; !l.Shadow && l.Takes(cost, costs) > l.Most() {
			if _, given := costs[l.Cost]; given {
				of = l.Cost
			}
			return l.Name, of, l.Most()
		}
	}
	return "", "", 0
}

// Expand returns what a request of a key and a client's address is counted by.
func (l Limit) Expand(key, ip string) string {
	if l.Key == PlaceholderKey {
		return key
	}
	return strings.NewReplacer(PlaceholderKey, key, PlaceholderIP, ip).Replace(l.Key)
}

// ByIP reports whether the client's address must be known.
func (l Limit) ByIP() bool { return strings.Contains(l.Key, PlaceholderIP) }

// Share is an n-th part of the limit, for one of n that decide without knowing of each other: a
// whole number of units, at least 1, at an n-th of the rate, but not less than one per 366 days.
func (l Limit) Share(n int) Limit {
	if n <= 1 {
		return l
	}
	part := func(units int64) int64 {
		if units == 0 {
			return 0
		}
		return max(1, units/int64(n))
	}
	l.Capacity, l.Limit, l.Burst = part(l.Capacity), part(l.Limit), part(l.Burst)
	l.Outflow, l.Refill = slower(l.Outflow, n), slower(l.Refill, n)
	for _, rate := range []algorithms.Rate{l.Outflow, l.Refill} {
		if !rate.IsZero() { // rounded down, it may make too little for the capacity
			l.Capacity = max(1,
				min(l.Capacity, int64(rate.PerSecond()*time.Duration(longestDrain).Seconds())))
		}
	}
	l.Burst = min(l.Burst, l.Capacity)
	return l
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

// checkCalendar checks windows that are days or months of a zone.
func (r Rule) checkCalendar(c *checker) {
	months := r.Window > 0 && time.Duration(r.Window)%algorithms.Month == 0
	switch {
	case r.Algorithm != FixedWindow:
		if months {
			c.add("window", "%s: months are windows of %s: give days, such as 31d", r.Window,
				FixedWindow)
		}
	case r.Zone == "":
	case !months && r.Window%day != 0:
		c.add("window", "must be whole days, weeks or months of the zone, not %s", r.Window)
		fallthrough
	default:
		if _, err := zones.Load(r.Zone); err != nil {
			c.add("zone", "%v", err)
		}
	}
}

// Fixed returns the rule of a fixed window. Its zone is one that Validate has found.
func (r Rule) Fixed() algorithms.FixedWindow {
	rule := algorithms.FixedWindow{Limit: r.Limit, Window: time.Duration(r.Window)}
	if r.Zone == "" {
		return rule
	}
	if zone, err := zones.Load(r.Zone); err == nil && zone.String() != "UTC" {
		rule.Zone = zone
	}
	return rule
}

// OnRedis reports why the limits of a policy cannot be kept in Redis, whose scripts know no zones
// and no months.
func (p Policy) OnRedis() (problems []Problem) {
	if p.Paced() {
		return nil // what limits starts is not kept there
	}
	for i, l := range p.AllLimits() {
		if l.Algorithm != FixedWindow || !l.Fixed().ByCalendar() {
			continue
		}
		at, field := "", "zone"
		if len(p.Limits) > 0 {
			at = fmt.Sprintf("limits[%d].", i)
		}
		if l.Zone == "" {
			field = "window"
		}
		problems = append(problems, Problem{at + field, "days of a zone and months need a policy " +
			"with a queue, or state.store: memory: Redis knows only days and weeks in UTC"})
	}
	return problems
}

// OnCluster reports why the limits cannot be kept in a Redis Cluster: the keys of one question must
// lie in one slot there, which they do when all limits count by the same.
func (p Policy) OnCluster() []Problem {
	if p.Paced() {
		return nil // what limits starts is not kept there
	}
	var problems []Problem
	enforced := p.Enforced()
	for i, l := range enforced {
		if l.Key != enforced[0].Key {
			problems = append(problems, Problem{fmt.Sprintf("limits[%d].key", i), fmt.Sprintf(
				"%s: must be %s as in the first limit with a Redis Cluster, where all that one "+
					"question asks lies in one slot",
				quote(l.Key), quote(enforced[0].Key))})
		}
	}
	return problems
}

// checkLimits checks the limits of a policy that lists some, and that it has no algorithm besides.
func (p Policy) checkLimits(c *checker) {
	given := given(p)
	for _, field := range append([]string{"algorithm"}, algorithmNumbers...) {
		if given[field] {
			c.add(field, "stands beside limits: give it in one of them")
		}
	}
	p.checkEach(c)
}

// checkEach checks the limits, and that their names differ.
func (p Policy) checkEach(c *checker) {
	if len(p.Limits) > MaxLimits {
		c.add("limits", "must be at most %d, not %d", MaxLimits, len(p.Limits))
		return
	}
	for i, l := range p.Limits {
		in := checker{at: fmt.Sprintf("limits[%d].", i)}
		if l.Name == "" && len(p.Limits) == 1 {
			l.Name = p.Name
		}
		if p.Paced() {
			l.checkStarts(&in)
		} else {
			l.check(&in)
		}
		same := func(other Limit) bool { return other.Name == l.Name }
		if first := slices.IndexFunc(p.Limits, same); first < i && l.Name != "" {
			in.add("name", "%s is the name of limits[%d] already", quote(l.Name), first)
		}
		c.problems = append(c.problems, in.problems...)
	}
}

func (l Limit) checkName(c *checker) {
	switch {
	case l.Name == "":
		c.add("name", "is required among several limits, which keep their state by it")
	case !namePattern.MatchString(l.Name):
		c.add("name", "%s: %s", quote(l.Name), nameForm)
	}
}

// checkStartLimits checks the limits of a policy whose starts obey them, and the guard beside them.
func (p Policy) checkStartLimits(c *checker) {
	if p.Meter() {
		c.add("limits", "belong to policies with a queue, or take the place of the algorithm")
		return
	}
	if p.Outflow.IsZero() && p.OutflowTotal.IsZero() && p.Burst > 1 {
		c.add("burst", "needs an outflow")
	}
	p.checkEach(c)
	if i := p.together(); i >= 0 && p.Partitions > 1 {
		what := "key: " + KeyGlobal
		if shared := p.Limits[i].Shared; shared != "" {
			what = "shared: " + shared
		}
		c.add("partitions", "must be 1 with %s of limits[%d], not %d: one valve must see all keys",
			what, i, p.Partitions)
	}
	longest := Duration(time.Minute)
	if w := p.shortestWindow(); w > 0 {
		longest = min(longest, w/8)
	}
	if p.Guard < leastGuard || p.Guard > longest {
		c.add("guard", "must be %s to %s, an eighth of the shortest window, not %s", leastGuard,
			longest, p.Guard)
	}
}

const leastGuard = Duration(time.Millisecond)

// shortestWindow is that of the limits; 0: none has one.
func (p Policy) shortestWindow() (shortest Duration) {
	for _, l := range p.Limits {
		if l.Window > 0 && (shortest == 0 || l.Window < shortest) {
			shortest = l.Window
		}
	}
	return shortest
}

// leastWindow is that of a limit on starts: an eighth of it is a guard.
const leastWindow = 8 * leastGuard

// checkStarts checks a limit on starts. The queue holds what waits, so that a leaking bucket is the
// rate at which units leave it.
func (l Limit) checkStarts(c *checker) {
	switch {
	case l.Shared == "":
		l.checkName(c)
	case !namePattern.MatchString(l.Shared):
		c.add("shared", "%s: %s", quote(l.Shared), nameForm)
	case l.Name != l.Shared:
		c.add("name", "must be that of the shared limit, %s, or left out", l.Shared)
	case !l.Together():
		c.add("key", "must be %s for a shared limit, or left out", KeyGlobal)
	case l.Algorithm == "":
		c.add("shared", "%s is not told here: a file says it under shared_limits; elsewhere give "+
			"its algorithm and numbers, as the other policies that share it have them", l.Shared)
		return
	}
	if l.Shadow && l.Together() {
		c.add("shadow", "belongs to limits of each key: what all keys share, enforce or leave out")
	}
	if l.Key != PlaceholderKey && !l.Together() {
		c.add("key", "%s: want %s, or %s for the starts of all keys together", quote(l.Key),
			PlaceholderKey, KeyGlobal)
	}
	if l.Cost != "" && !namePattern.MatchString(l.Cost) {
		c.add("cost", "%s: %s", quote(l.Cost), nameForm)
	}
	if l.Window > 0 && l.Window < leastWindow {
		c.add("window", "must be at least %s, not %s", leastWindow, l.Window)
	}
	p := Policy{Rule: l.Rule}
	if l.Algorithm == LeakingBucket {
		if l.Capacity != 0 {
			c.add("capacity", "belongs to the policy: its queue holds what waits")
		}
		p.checkFields(c, []string{"outflow"}, []string{"burst", "capacity"})
	} else {
		p.checkAlgorithm(c)
	}
	p.checkNumbers(c)
	if l.Count == CountAll {
		c.add("count", "must be %s: what may not start waits, and is not refused", CountAccepted)
	}
}

func (l Limit) check(c *checker) {
	l.checkName(c)
	if l.Shared != "" {
		c.add("shared", "belongs to limits on starts, of a leaking bucket with a queue")
	}
	if l.Cost != "" {
		c.add("cost", "belongs to limits on starts, of a leaking bucket with a queue")
	}
	rest := strings.NewReplacer(PlaceholderKey, "", PlaceholderIP, "").Replace(l.Key)
	switch {
	case l.Key == "":
		c.add("key", "is required: what is counted together, such as %s, %s or global",
			PlaceholderKey, PlaceholderIP)
	case len(l.Key) > maxTemplate:
		c.add("key", "must have at most %d bytes, not %d", maxTemplate, len(l.Key))
	case strings.ContainsAny(rest, "{}"):
		c.add("key", "%s: the only placeholders are %s and %s", quote(l.Key), PlaceholderKey,
			PlaceholderIP)
	}
	p := Policy{Rule: l.Rule, Queue: &Queue{Off: true}}
	p.checkAlgorithm(c)
	p.checkNumbers(c)
	if l.Count == CountAll {
		c.add("count", "must be %s among several limits: a refusal takes nothing from any of them",
			CountAccepted)
	}
}
