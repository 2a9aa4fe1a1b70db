package core

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

type livePolicy struct {
	*valve.Valve
	of     *QueuePolicy
	ending bool // this drainer may no longer own it
	shares []*share
	awake  bool

	told        bool
	toldLowered int
	toldBroken  valve.Breakers
	toldLeft    bool
}

func (c *Core) runnable() []string {
	n := 0
	for _, v := range c.sorted {
		if !v.ending {
			n++
		}
	}
	if n > 0 && n == len(c.policies) {
		return []string{record.Every}
	}
	names := make([]string, 0, n)
	for _, v := range c.sorted {
		if !v.ending {
			names = append(names, v.Policy.Name)
		}
	}
	return names
}

// prune removes ending valves without partitions or runs.
func (c *Core) prune() {
	before := len(c.valves)
	for _, v := range c.sorted {
		if v.ending && v.Crew.Running() == 0 && !slices.ContainsFunc(v.shares,
			func(s *share) bool { return s.state != shareIdle }) {
			delete(c.valves, v.Policy.Name)
			c.gather(v.Policy.Name)
		}
	}
	if len(c.valves) < before {
		gone := func(v *livePolicy) bool { return c.valves[v.Policy.Name] != v }
		c.sorted, c.awake = slices.DeleteFunc(c.sorted, gone), slices.DeleteFunc(c.awake, gone)
		c.link()
	}
}

func (c *Core) gather(name string) (dropped bool) {
	p, v := c.policies[name], c.valves[name]
	from, _ := slices.BinarySearchFunc(c.order, &share{policy: name}, byName)
	to := from
	var kept []*share
	for ; to < len(c.order) && c.order[to].policy == name; to++ {
		s := c.order[to]
		if s.state == shareIdle && (p == nil || s.number >= p.Partitions) {
			delete(c.shares, s.key())
			delete(c.unsettled, s.key())
			continue
		}
		kept = append(kept, s)
		c.stir(s)
		if s.valve, s.ending = nil, false; v == nil {
			continue
		}
		if s.valve, s.ending = v.Valve, v.ending; v.ending && s.part != nil && s.part.Owned() {
			s.part.Quiesce()
		}
	}
	if v != nil {
		v.shares = kept
	}
	c.order = slices.Replace(c.order, from, to, kept...)
	return len(kept) < to-from
}

type QueuePolicy struct {
	policy.Policy
	Paused  bool
	Retired bool // its stream is deleted once empty
	Own     bool // this drainer may own its valve
	Local   bool // there are workers here
	Stored  time.Time
	shared  bool // represents a shared limit
}

// MayOwn reports whether this drainer may own a policy's valve.
func (c *Core) MayOwn(policy string) bool {
	p := c.policies[policy]
	return p != nil && p.Own
}

// Held returns the partitions of a policy that this drainer holds.
func (c *Core) Held(policy string) (held []handle.Partition) {
	if v := c.valves[policy]; v != nil {
		for _, s := range v.shares {
			if s.part != nil {
				held = append(held, s.part.Partition)
			}
		}
	}
	return held
}

// A change concerns other policies only if they share limits. A partition of a removed policy stays
// until released.
func (e Configured) apply(c *Core, now pace.Instant) {
	names, sharing := slices.Collect(maps.Keys(e)), false
	for name, p := range e {
		sharing = sharing || c.lines[name] != "" || p != nil && len(p.SharedLimits()) > 0
		if c.policies[name] = p; p == nil {
			delete(c.policies, name)
		}
	}
	members := false
	if sharing {
		before, lines := c.policies, c.lines
		c.policies, c.lines = withShared(before)
		names = append(names, policy.Changed(before, c.policies)...)
		members = !maps.Equal(lines, c.lines)
	}
	slices.Sort(names)
	var made []*share
	for _, name := range names {
		p, v := c.policies[name], c.valves[name]
		if p == nil {
			p = &QueuePolicy{}
		} else if v != nil {
			v.Change(p.Policy, p.Paused, now) // even while it ends, because its workers may be lent
			c.rouse(v)
		}
		for number := range p.Partitions {
			s := c.shares[record.ShareKey(name, number)]
			if s == nil {
				s = &share{policy: name, number: number}
				if p.Stored.Before(c.options.OwnersMade) {
					// a live owner may write it again, unless a record arrives
					s.vanished = now
				}
				c.shares[s.key()], c.order = s, inserted(c.order, s, byName)
				made = append(made, s)
			}
			if s.over && !p.Retired {
				s.over, s.actAt = false, now
				c.stir(s)
			}
		}
		if v == nil && p.Own {
			v = &livePolicy{ending: true, Valve: valve.New(p.Policy, p.Paused, c.Lease.Id,
				c.options.Random, c.server.read, &c.out.Actions)}
			v.Share(c.memory, &c.slots)
			v.SetOverrides(c.overrides[name])
			c.valves[name], c.sorted = v, inserted(c.sorted, v, byPolicy)
			c.rouse(v)
		}
		if p.Own {
			v.Crew.Local, v.of = p.Local, p
		}
		if v != nil {
			members = members || v.ending == p.Own
			v.ending = !p.Own
		}
		members = c.gather(name) || members
	}
	if members = members || len(made) > 0; members {
		c.changed = true
		if c.Lease.Held && !slices.Equal(c.Lease.told, c.runnable()) {
			c.Lease.renewAt = now // announces the change
		}
	}
	if sharing || members && c.slots.Most > 0 {
		c.link()
	}
	for _, s := range made {
		if found, ok := c.owners[s.key()]; ok {
			c.ownerSeen(s, found, now)
		}
	}
}

func (e Overridden) apply(c *Core, now pace.Instant) {
	name, key, o := e.Policy, e.Key, e.Override
	all := c.overrides[name]
	switch {
	case !o.IsZero() && all == nil:
		c.overrides[name] = map[job.Key]policy.Override{key: o}
	case !o.IsZero():
		all[key] = o
	default:
		if delete(all, key); len(all) == 0 {
			delete(c.overrides, name)
		}
	}
	if v := c.valve(name); v != nil {
		v.SetOverride(key, o, now)
	}
}
