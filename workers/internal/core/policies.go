package core

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// prune removes ending valves without partitions or runs.
func (c *Core) prune() {
	gone := c.valves.prune()
	for _, name := range gone {
		c.shares.keep(name, c.policies[name], nil)
		c.dismiss(name)
	}
	if len(gone) > 0 {
		c.valves.link(c.lines, &c.slots)
	}
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
	if v := c.valves.all[policy]; v != nil {
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
		names = append(names, inforce.Changed(before, c.policies)...)
		members = !maps.Equal(lines, c.lines)
	}
	slices.Sort(names)
	for _, name := range names {
		members = c.configure(name, now) || members
	}
	if members {
		c.shares.changed = true
		if c.Lease.Held && !slices.Equal(c.Lease.told, c.valves.runnable(len(c.policies))) {
			c.Lease.renewAt = now // announces the change
		}
	}
	if sharing || members && c.slots.Most > 0 {
		c.valves.link(c.lines, &c.slots)
	}
}

// divide makes the partitions that a policy did not have before, and reports whether there are any.
func (c *Core) divide(p *QueuePolicy, now pace.Instant) (made bool) {
	for number := range p.Partitions {
		s := c.shares.all[record.ShareKey(p.Name, number)]
		if s == nil {
			s = &share{policy: p.Name, number: number}
			if p.Stored.Before(c.options.OwnersMade) {
				// a live owner may write it again, unless a record arrives
				s.vanished = now
			}
			c.shares.add(s)
			if found, ok := c.owners[s.key()]; ok {
				c.ownerSeen(s, found, now)
			}
			made = true
		}
		if s.over && !p.Retired {
			s.over, s.actAt = false, now
			c.shares.stir(s)
		}
	}
	return made
}

// configure makes or changes a policy's valve, and reports whether partitions may be distributed in
// another way.
func (c *Core) configure(name string, now pace.Instant) (members bool) {
	p, v := c.policies[name], c.valves.all[name]
	own := p != nil && p.Own
	if p != nil && v != nil {
		v.Change(p.Policy, p.Paused, now) // even while it ends, because its jobs may still run
		c.valves.rouse(v)
	}
	if p != nil {
		w := c.workersOf(name)
		w.Local, w.Most = p.Local, p.Workers
		members = c.divide(p, now)
	}
	if own && v == nil {
		v = &livePolicy{ending: true, Valve: valve.New(p.Policy, p.Paused, c.Lease.Id,
			c.options.Random, c.server.read, &c.out.Actions)}
		v.Share(c.memory, c.workersOf(name))
		v.SetOverrides(c.overrides[name])
		c.valves.add(v)
	}
	if own {
		v.of = p
	}
	if v != nil {
		members = members || v.ending == own
		v.ending = !own
	}
	c.dismiss(name)
	return c.shares.keep(name, p, v) || members
}

func (e Overridden) apply(c *Core, now pace.Instant) {
	name, key, o := e.Policy, e.Key, e.Override
	all := c.overrides[name]
	switch {
	case !o.IsZero() && all == nil:
		c.overrides[name] = map[queue.Key]inforce.Override{key: o}
	case !o.IsZero():
		all[key] = o
	default:
		if delete(all, key); len(all) == 0 {
			delete(c.overrides, name)
		}
	}
	if v := c.valves.visit(name); v != nil {
		v.SetOverride(key, o, now)
	}
}
