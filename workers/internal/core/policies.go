package core

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// livePolicy is a policy that this drainer runs jobs of, or did a moment ago.
type livePolicy struct {
	*valve.Valve
	ending  bool      // this drainer may not own it any more
	retired bool      // its stream goes when it is empty
	tenure  uint64    // a policy that comes back has another valve
	shared  bool      // it is none but a limit that policies share …
	stored  time.Time // … of which the first was stored then
	shares  []*share
	awake   bool // it is among Core.awake
}

// runnable lists the policies whose valves this drainer may own.
func (c *Core) runnable() []string {
	var names []string
	for name, v := range c.valves {
		if !v.ending {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *Core) sortValves() {
	c.sorted = c.sorted[:0]
	for _, name := range slices.Sorted(maps.Keys(c.valves)) {
		v := c.valves[name]
		v.shares = nil
		c.sorted = append(c.sorted, v)
	}
	for _, s := range c.sortedShares() {
		if v := c.valves[s.policy]; v != nil {
			v.shares = append(v.shares, s)
		}
	}
	c.rouseAll()
	c.link()
}

// prune forgets the valves of policies that this drainer may not own any more, once they own
// nothing and nothing runs.
//
// Its workers may be lent, and what runs must be heard of, so a valve stays for as long as anything
// of it does.
func (c *Core) prune() {
	for _, v := range c.sorted {
		if v.ending {
			c.pruneEnding()
			return
		}
	}
}

func (c *Core) pruneEnding() {
	held := map[string]bool{}
	for _, s := range c.shares {
		if s.state != shareIdle {
			held[s.policy] = true
		}
	}
	for name, v := range c.valves {
		if !v.ending || held[name] || v.Running() > 0 {
			continue
		}
		delete(c.valves, name)
		for key, s := range c.shares {
			if s.policy == name && !c.known[name] {
				delete(c.shares, key)
				// of a policy that is no more: nobody will take the outcomes
				delete(c.unsettled, key)
			}
		}
		c.order = nil
	}
	c.sortValves()
}

// QueuePolicy is a policy with a queue, as the core is told of it.
type QueuePolicy struct {
	policy.Policy
	Paused  bool
	Retired bool // its stream goes when it is empty
	Own     bool // this drainer may own its valve
	Local   bool // there are workers in this process
	Stored  time.Time
	shared  bool // it is none but a limit that policies share
}

// It is told all of them each time, as they are: what is not among them is gone, also when the
// message that said so was lost. A partition of a policy that is gone stays until it is released,
// for its record names a process that lives, and nobody may take it from that.
func (e Configured) apply(c *Core, now pace.Instant) {
	shares := map[string]*share{}
	seen := map[string]bool{}
	c.known = map[string]bool{}
	before, lines := c.runnable(), c.lines
	var policies []QueuePolicy
	policies, c.lines = withShared(e.Policies)
	for _, p := range policies {
		c.known[p.Name] = true
		for number := range p.Partitions {
			key := record.ShareKey(p.Name, number)
			s := c.shares[key]
			if s == nil {
				s = &share{policy: p.Name, number: number}
				if p.Stored.Before(c.options.OwnersMade) {
					// unless a record is told, its owner may live and write it again
					s.vanished = now
				}
			}
			if s.over && !p.Retired { // the policy is back
				s.over, s.actAt = false, now
			}
			shares[key] = s
		}
		v := c.valves[p.Name]
		if v != nil {
			v.Change(p.Policy, p.Paused, now) // also while it ends: its workers may be lent
		}
		if !p.Own {
			continue
		}
		seen[p.Name] = true
		if v == nil {
			c.tenures++
			v = &livePolicy{tenure: c.tenures, Valve: valve.New(p.Policy, p.Paused, c.Lease.Id,
				c.options.Random, c.Wall, &c.out.Actions)}
			v.Share(c.memory)
			v.SetOverrides(c.overrides[p.Name])
			c.valves[p.Name] = v
		}
		v.Local, v.retired, v.ending = p.Local, p.Retired, false
		v.shared, v.stored = p.shared, p.Stored
	}
	for name, v := range c.valves {
		v.ending = !seen[name]
	}
	for _, s := range c.sortedShares() {
		if s.state == shareIdle || seen[s.policy] {
			continue
		}
		shares[s.key()] = s // until it is released: nobody can take it from a live process
		if s.part != nil && s.part.Owned() {
			c.valves[s.policy].Quiesce(s.part.Part)
		}
	}
	if len(shares) != len(c.shares) || !slices.Equal(before, c.runnable()) ||
		!maps.Equal(lines, c.lines) {
		c.changed = true
		if c.Lease.Held {
			c.Lease.renewAt = now // so that others know
		}
	}
	c.shares, c.order = shares, nil
	c.sortValves()
	for _, s := range c.sortedShares() {
		if found, ok := c.owners[s.key()]; ok && s.revision < found.Revision {
			c.ownerSeen(s, found, now)
		}
	}
}

func (e Overridden) apply(c *Core, now pace.Instant) {
	name, key, o := e.Policy, e.Key, e.Override
	all := c.overrides[name]
	if all == nil {
		all = map[job.Key]policy.Override{}
		c.overrides[name] = all
	}
	if all[key] = o; o.IsZero() {
		delete(all, key)
	}
	if v := c.valve(name); v != nil {
		v.SetOverride(key, o, now)
	}
}
