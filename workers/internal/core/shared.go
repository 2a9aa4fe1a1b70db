package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A shared limit is owned like a partition, and has a valve without jobs. Policies connected by
// shared limits form a line, which one drainer should own; see prefer.

// withShared adds a policy for each shared limit, instead of former ones, and returns the lines.
func withShared(policies map[string]*QueuePolicy) (all map[string]*QueuePolicy,
	formed lines) {
	all, formed = maps.Clone(policies), lines{}
	newest := map[string]*QueuePolicy{}
	maps.DeleteFunc(all, func(_ string, p *QueuePolicy) bool { return p.shared })
	for _, p := range policies {
		if len(p.Limits) == 0 {
			continue
		}
		for _, l := range p.SharedLimits() {
			name := record.SharedName(l.Shared)
			q := all[name]
			if q == nil {
				q = &QueuePolicy{Stored: p.Stored, shared: true}
				all[name] = q
			}
			q.Own = q.Own || p.Own
			if p.Stored.Before(q.Stored) {
				q.Stored = p.Stored
			}
			guard, delay := max(q.WindowMargin, p.WindowMargin), max(q.MaxDelay, p.MaxDelay)
			timeout := max(q.Timeout, p.Timeout)
			if before := newest[name]; before == nil || p.says(before) > 0 {
				newest[name] = p
				l.Shared = ""
				q.Policy = policy.Policy{Name: name, Limits: policy.Limits{l},
					Rule: policy.Rule{Algorithm: policy.LeakingBucket, Capacity: 1}}
			}
			q.WindowMargin, q.MaxDelay, q.Timeout = guard, delay, timeout
			formed.join(p.Name, name)
		}
	}
	for name := range newest {
		all[name].Policy = all[name].Policy.WithDefaults()
	}
	return all, formed
}

// says orders policies by precedence in defining a shared limit.
func (p *QueuePolicy) says(other *QueuePolicy) int {
	if p.Retired && !other.Retired {
		return -1
	}
	if other.Retired && !p.Retired {
		return 1
	}
	return cmp.Or(p.Stored.Compare(other.Stored), cmp.Compare(p.Name, other.Name))
}

// lines names the line of each policy with shared limits, after its first one.
type lines map[string]string

func (l lines) join(a, b string) {
	from, to := cmp.Or(l[a], a), cmp.Or(l[b], b)
	if to > from {
		from, to = to, from
	}
	l[a], l[b] = to, to
	for name, line := range l {
		if line == from {
			l[name] = to
		}
	}
}

// able returns the drainers that may own most of a line's policies.
func (l lines) able(line string, of func(policy string) []string) []string {
	count := map[string]int{}
	for name, in := range l {
		if in == line {
			for _, id := range of(name) {
				count[id]++
			}
		}
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n < most })
	return slices.Sorted(maps.Keys(count))
}
