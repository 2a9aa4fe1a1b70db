package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// A shared limit is owned like a partition, and has a valve without jobs. Policies connected by
// shared limits form a line, which one drainer should own; see prefer.

// withShared adds a policy for each shared limit, instead of former ones, and returns the lines.
func withShared(policies map[string]*QueuePolicy) (all map[string]*QueuePolicy,
	lines map[string]string) {
	all, lines = maps.Clone(policies), map[string]string{}
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
			joinLines(lines, p.Name, name)
		}
	}
	for name := range newest {
		all[name].Policy = all[name].Policy.WithDefaults()
	}
	return all, lines
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

func joinLines(lines map[string]string, a, b string) {
	from, to := cmp.Or(lines[a], a), cmp.Or(lines[b], b)
	if to > from {
		from, to = to, from
	}
	lines[a], lines[b] = to, to
	for name, line := range lines {
		if line == from {
			lines[name] = to
		}
	}
}

// link lets valves affect each other.
func (c *Core) link() {
	if len(c.lines) > 0 || c.slots.Most > 0 {
		c.rouseAll()
	}
	lines := map[string][]*valve.Valve{}
	for _, v := range c.sorted {
		var shared []valve.SharedLimit
		for _, l := range v.Policy.SharedLimits() {
			s := valve.SharedLimit{Name: l.Shared}
			if of := c.valves[record.SharedName(l.Shared)]; of != nil {
				s.Of = of.Valve
			}
			shared = append(shared, s)
		}
		v.ShareLimits(shared)
		line := c.lines[v.Policy.Name]
		if c.slots.Most > 0 {
			line = "all"
		}
		if line != "" && !v.of.shared {
			lines[line] = append(lines[line], v.Valve)
		} else {
			valve.Join([]*valve.Valve{v.Valve})
		}
	}
	for _, line := range lines {
		valve.Join(line)
	}
}

func (c *Core) ableOf(line string, able func(name string) []string) (ids []string) {
	count := map[string]int{}
	for name, in := range c.lines {
		if in == line {
			for _, id := range able(name) {
				count[id]++
			}
		}
	}
	best := 0
	for _, id := range slices.Sorted(maps.Keys(count)) {
		if n := count[id]; n >= best {
			if n > best {
				ids = nil
			}
			best, ids = n, append(ids, id)
		}
	}
	return ids
}
