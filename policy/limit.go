package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/base/zones"
)

// Limit is one of several rules of a policy, which all must allow a request.
type Limit struct {
	// Name identifies the limit and its state, 1 to 32 of a-z, 0-9 and -; required if there are
	// several.
	Name string `json:"name,omitempty"`
	// Key is a template of the counted key: "{key}" is the request's key, "{ip}" the client's
	// address; a text without either counts all requests together. Limits on starts count by
	// "{key}" (default) or "global", which needs one partition.
	Key string `json:"key"`
	// Cost names another cost for a limit on starts: tokens is the header Penstock-Cost-Tokens.
	Cost string `json:"cost,omitempty"`
	// Shadow lets the limit decide without effect; its refusals and delays are counted.
	Shadow bool `json:"shadow,omitempty"`
	// Shared names a limit on starts of several policies with the same rule and one partition each;
	// see [Limit.CheckAsShared].
	Shared string `json:"shared,omitempty"`
	// CountFrom says when a unit of a limit on starts begins to count: at the start (default), when
	// it is answered, or at the end.
	CountFrom CountFrom `json:"count_from,omitempty"`
	Rule
}

// CountFrom is the moment from which a unit counts. Until then it is held: it lessens what is left
// for others.
type CountFrom string

const (
	// CountFromStart bounds the starts of a window, by the drainer's clock.
	CountFromStart CountFrom = "start"
	// CountFromAnswer bounds the requests that arrive at the target in a window, by its clock.
	CountFromAnswer CountFrom = "answer"
	// CountFromEnd is for a named cost whose real usage the target books at the end.
	CountFromEnd CountFrom = "end"
)

// Arrivals reports whether the limit bounds arrivals instead of starts.
func (l Limit) Arrivals() bool {
	return l.CountFrom == CountFromAnswer || l.CountFrom == CountFromEnd
}

// CountsArrivals reports whether a limit of the policy bounds arrivals.
func (p Policy) CountsArrivals() bool {
	return p.Paced() && slices.ContainsFunc(p.Limits, Limit.Arrivals)
}

// Limits are the limits of a policy, in its order.
type Limits []Limit

// Together reports whether all keys share one state.
func (l Limit) Together() bool { return l.Key == KeyGlobal }

// together returns the index of the limit for all keys, or -1.
func (p Policy) together() int {
	if !p.Paced() {
		return -1
	}
	return slices.IndexFunc(p.Limits, Limit.Together)
}

// KeyGlobal is the [Limit.Key] that counts all keys together.
const KeyGlobal = "global"

// Placeholders of [Limit.Key].
const (
	PlaceholderKey = "{key}"
	placeholderIP  = "{ip}"
)

const (
	// MaxLimits bounds the limits of a policy.
	MaxLimits   = 8
	maxTemplate = 256
)

// AllLimits returns a door policy's limits, or the policy's own rule.
func (p Policy) AllLimits() Limits {
	if p.Door() && len(p.Limits) > 0 {
		return p.Limits
	}
	return Limits{{Name: p.Name, Key: PlaceholderKey, Rule: p.Rule}}
}

// Enforced returns the limits that are no shadows.
func (p Policy) Enforced() Limits {
	return slices.DeleteFunc(slices.Clone(p.Limits), func(l Limit) bool {
		return l.Shadow || p.Shadow
	})
}

// Candidates returns the shadow limits, which only report what they would do.
func (p Policy) Candidates() Limits {
	of := p.Limits
	if p.Door() || p.Meter() {
		of = p.AllLimits()
	}
	return slices.DeleteFunc(slices.Clone(of), func(l Limit) bool {
		return !l.Shadow && !p.Shadow
	})
}

func (l Limit) withDefaults() Limit {
	if l.Shared != "" {
		l.Name, l.Key = cmp.Or(l.Name, l.Shared), cmp.Or(l.Key, KeyGlobal)
	}
	l.Rule = l.Rule.withDefaults(true)
	return l
}

// Most returns the largest cost that can ever pass.
func (l Limit) Most() int64 {
	if a := l.Algorithm.known(); a != nil {
		return a.most(l.Rule)
	}
	return 0
}

// Takes is the units of the limit that a request takes, with its cost and its named costs.
func (l Limit) Takes(cost int64, costs map[string]int64) int64 {
	if n, given := costs[l.Cost]; given && l.Cost != "" {
		return n
	}
	return cost
}

// BeyondLimits returns the limit on starts that a job of these costs exceeds, the name of the cost,
// and its maximum; "" without one.
func (p Policy) BeyondLimits(cost int64, costs map[string]int64) (limit, of string, most int64) {
	if !p.Paced() || p.Shadow {
		return "", "", 0
	}
	for i := range p.Limits {
		if l := &p.Limits[i]; !l.Shadow && l.Takes(cost, costs) > l.Most() {
			if _, given := costs[l.Cost]; given {
				of = l.Cost
			}
			return l.Name, of, l.Most()
		}
	}
	return "", "", 0
}

// Expand returns the counted key of a request.
func (l Limit) Expand(key, ip string) string {
	if l.Key == PlaceholderKey {
		return key
	}
	return strings.NewReplacer(PlaceholderKey, key, placeholderIP, ip).Replace(l.Key)
}

// ByIP reports whether requests need an IP address.
func (l Limit) ByIP() bool { return strings.Contains(l.Key, placeholderIP) }

// Share returns an n-th of the limit, at least 1 unit, for n processes that decide alone.
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
		if !rate.IsZero() { // rounding down may leave it too slow for the capacity
			l.Capacity = max(1,
				min(l.Capacity, int64(rate.PerSecond()*time.Duration(longestDrain).Seconds())))
		}
	}
	l.Burst = min(l.Burst, l.Capacity)
	return l
}

// slower returns an n-th of a rate, rounded only if its period would be too long.
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

func (r Rule) checkCalendar(c *checker) {
	months := r.Window > 0 && time.Duration(r.Window)%algorithms.Month == 0
	switch {
	case r.Algorithm != FixedWindow:
		if months {
			c.add("window", "%s: only a %s can have months: use days, such as 31d", r.Window,
				FixedWindow)
		}
	case r.Zone == "":
	case !months && r.Window%day != 0:
		c.add("window", "must be whole days, weeks or months when a zone is set, not %s", r.Window)
		fallthrough
	default:
		if _, err := zones.Load(r.Zone); err != nil {
			c.add("zone", "%v", err)
		}
	}
}

// Fixed returns the rule of a fixed window.
func (r Rule) Fixed() algorithms.FixedWindow {
	rule := algorithms.FixedWindow{Limit: r.Limit, Window: time.Duration(r.Window),
		SinceEpoch: r.SinceEpoch}
	if r.Zone == "" {
		return rule
	}
	if zone, err := zones.Load(r.Zone); err == nil && zone.String() != "UTC" {
		rule.Zone = zone
	}
	return rule
}

// OnRedis reports limits that Redis cannot keep: its scripts lack zones and months.
func (p Policy) OnRedis() (problems []Problem) {
	if p.Paced() {
		return nil
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
		problems = append(problems, Problem{at + field, "zones and months require a policy with " +
			"a queue, or state.store: memory; Redis supports only days and weeks in UTC"})
	}
	return problems
}

// OnCluster reports limits that a Redis Cluster cannot keep: the keys of a decision must be in one
// slot.
func (p Policy) OnCluster() []Problem {
	if p.Paced() {
		return nil
	}
	var problems []Problem
	enforced := p.Enforced()
	for i, l := range enforced {
		if l.Key != enforced[0].Key {
			problems = append(problems, Problem{fmt.Sprintf("limits[%d].key", i), fmt.Sprintf(
				"%s: must be %s as in the first limit: a Redis Cluster can only combine limits "+
					"in one slot",
				quote(l.Key), quote(enforced[0].Key))})
		}
	}
	return problems
}

func (p Policy) checkLimits(c *checker) bool {
	given := given(p)
	if p.Algorithm == "" && (given["capacity"] || given["outflow"]) {
		return c.add("algorithm", "is required: %s makes a queue whose starts obey the limits; "+
			"without one they answer checks, and have no capacity or outflow", LeakingBucket)
	}
	for _, field := range append([]string{"algorithm"}, algorithmNumbers...) {
		if given[field] {
			c.add(field, "cannot be combined with limits: set it in one of them")
		}
	}
	p.checkEach(c)
	return true
}

func (p Policy) checkEach(c *checker) {
	if len(p.Limits) > MaxLimits {
		c.add("limits", "must have at most %d entries, not %d", MaxLimits, len(p.Limits))
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
			in.add("name", "%s is already the name of limits[%d]", quote(l.Name), first)
		}
		c.problems = append(c.problems, in.problems...)
	}
}

func (l Limit) checkName(c *checker) {
	switch {
	case l.Name == "":
		c.add("name", "is required with several limits: it identifies their state")
	case !namePattern.MatchString(l.Name):
		c.add("name", "%s: %s", quote(l.Name), nameForm)
	}
}

func (p Policy) checkStartLimits(c *checker) {
	if p.Meter() {
		c.add("limits", "cannot be combined with queue: false; replace the algorithm with limits")
		return
	}
	if p.Outflow.IsZero() && p.OutflowTotal.IsZero() && p.Burst > 1 {
		c.add("burst", "requires an outflow")
	}
	p.checkEach(c)
	if i := p.together(); i >= 0 && p.Partitions > 1 {
		what := "key: " + KeyGlobal
		if shared := p.Limits[i].Shared; shared != "" {
			what = "shared: " + shared
		}
		c.add("partitions", "must be 1 because limits[%[2]d] has %[1]s, not %[3]d",
			what, i, p.Partitions)
	}
	longest := Duration(time.Minute)
	if w := p.shortestWindow(); w > 0 {
		longest = min(longest, w/8)
	}
	if p.WindowMargin < p.leastMargin() || p.WindowMargin > longest {
		c.add("window_margin", "must be %s to %s (an eighth of the shortest window), not %s",
			p.leastMargin(), longest, p.WindowMargin)
	}
}

const leastWindowMargin = Duration(time.Millisecond)

// leastMargin is 0 if no limit needs a margin: arrivals are counted however late they are, but
// windows of the clock differ by the clocks' difference.
func (p Policy) leastMargin() Duration {
	for _, l := range p.Limits {
		if !l.Arrivals() || l.Algorithm == FixedWindow {
			return leastWindowMargin
		}
	}
	return 0
}

func (p Policy) shortestWindow() (shortest Duration) {
	for _, l := range p.Limits {
		if l.Window > 0 && (shortest == 0 || l.Window < shortest) {
			shortest = l.Window
		}
	}
	return shortest
}

// leastWindow leaves an eighth for the margin.
const leastWindow = 8 * leastWindowMargin

// checkStarts checks a limit on starts. Jobs wait in the queue, so a leaking bucket has no capacity
// here.
func (l Limit) checkStarts(c *checker) {
	switch {
	case l.Shared == "":
		l.checkName(c)
	case !namePattern.MatchString(l.Shared):
		c.add("shared", "%s: %s", quote(l.Shared), nameForm)
	case l.Name != l.Shared:
		c.add("name", "must be omitted, or be %s as the shared limit", l.Shared)
	case !l.Together():
		c.add("key", "must be omitted, or be %s for a shared limit", KeyGlobal)
	case l.Algorithm == "":
		c.add("shared", "%s is not defined: a file defines it under shared_limits; over the API, "+
			"repeat the algorithm and numbers of the other policies that share it", l.Shared)
		return
	}
	if l.Shadow && l.Together() {
		c.add("shadow", "applies only to limits per key, not to limits that keys share")
	}
	if l.Key != PlaceholderKey && !l.Together() {
		c.add("key", "%s: want %s, or %s to count all keys together", quote(l.Key),
			PlaceholderKey, KeyGlobal)
	}
	if l.Cost != "" && !namePattern.MatchString(l.Cost) {
		c.add("cost", "%s: %s", quote(l.Cost), nameForm)
	}
	if l.Window > 0 && l.Window < leastWindow {
		c.add("window", "must be at least %s, not %s", leastWindow, l.Window)
	}
	l.checkCountFrom(c)
	p := Policy{Rule: l.Rule}
	if l.Algorithm == LeakingBucket {
		if l.Capacity != 0 {
			c.add("capacity", "applies only to the policy, whose queue holds the waiting jobs")
		}
		p.checkFields(c, []string{"outflow"}, []string{"burst", "capacity"})
	} else {
		p.checkAlgorithm(c)
	}
	p.checkNumbers(c)
	if l.Count == CountAll {
		c.add("count", "must be %s: jobs over the limit wait and are not refused", CountAccepted)
	}
}

func (l Limit) checkCountFrom(c *checker) {
	rule := l.OnStarts()
	switch {
	case l.CountFrom == CountFromStart, l.CountFrom == "",
		!oneOf(c, "count_from", l.CountFrom, CountFromStart, CountFromAnswer, CountFromEnd):
	case rule != nil && rule.Bound().Arrivals() != nil:
		c.add("count_from", "must be %s: %v; use a %s or %s", CountFromStart,
			rule.Bound().Arrivals(), SlidingLog, FixedWindow)
	case l.CountFrom == CountFromEnd && l.Cost == "":
		c.add("count_from", "%s requires a cost: the target counts a request itself when it "+
			"arrives, so want %s", CountFromEnd, CountFromAnswer)
	}
}

func (l Limit) check(c *checker) {
	l.checkName(c)
	given := given(l)
	for _, field := range []string{"count_from", "shared", "cost"} {
		if given[field] {
			c.add(field, "applies only to limits on starts of a leaking bucket with a queue")
		}
	}
	rest := strings.NewReplacer(PlaceholderKey, "", placeholderIP, "").Replace(l.Key)
	switch {
	case l.Key == "":
		c.add("key", "is required: what to count by, such as %s, %s or global",
			PlaceholderKey, placeholderIP)
	case len(l.Key) > maxTemplate:
		c.add("key", "must have at most %d bytes, not %d", maxTemplate, len(l.Key))
	case strings.ContainsAny(rest, "{}"):
		c.add("key", "%s: the only placeholders are %s and %s", quote(l.Key), PlaceholderKey,
			placeholderIP)
	}
	p := Policy{Rule: l.Rule, Queue: &Queue{Off: true}}
	p.checkAlgorithm(c)
	p.checkNumbers(c)
	if l.Count == CountAll {
		c.add("count", "must be %s with several limits: a refusal takes nothing from any of them",
			CountAccepted)
	}
}
