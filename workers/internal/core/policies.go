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

type livePolicy struct {
	*valve.Valve
	ending  bool      // this drainer may no longer own it
	retired bool      // its stream is deleted once empty
	tenure  uint64    // distinguishes valves of a policy that came back
	shared  bool      // it stands for a shared limit …
	stored  time.Time // … of policies since then
	shares  []*share
	awake   bool // in Core.awake
	// of the valve's policy; 0: unknown
	revision uint64

	// of Core.Tell

	told        bool // all of it, and the valve rests since
	toldLowered int
	toldBroken  valve.Breakers
	toldLeft    bool // whether there were balances
}

func (c *Core) runnable() []string {
	var names []string
	for name, v := range c.valves {
		if !v.ending {
			names = append(names, name)
		}
	}
	if len(names) > 0 && len(names) == len(c.known) {
		return []string{record.Every}
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
		s.valve, s.ending = nil, false
		if v := c.valves[s.policy]; v != nil {
			s.valve, s.ending = v.Valve, v.ending
			v.shares = append(v.shares, s)
		}
	}
	c.awake = slices.DeleteFunc(c.awake, func(v *livePolicy) bool {
		return c.valves[v.Policy.Name] != v
	})
	if len(c.lines) > 0 || c.slots.Most > 0 {
		c.rouseAll()
	}
	c.link()
}

// prune removes ending valves without partitions or runs.
func (c *Core) prune() {
	if !slices.ContainsFunc(c.sorted, func(v *livePolicy) bool { return v.ending }) {
		return
	}
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
				// The policy is gone: outcomes have no receiver.
				delete(c.unsettled, key)
			}
		}
	}
	c.stale = true
	c.sortValves()
}

type QueuePolicy struct {
	policy.Policy
	Paused  bool
	Retired bool // its stream is deleted once empty
	Own     bool // this drainer may own its valve
	Local   bool // there are workers here
	Stored  time.Time
	// Revision changes with the policy and with Paused; 0: unknown.
	Revision uint64
	shared   bool // it stands for a shared limit
}

// An unchanged policy costs little, as long as none shares a limit. A partition of a removed policy
// stays until released.
func (e Configured) apply(c *Core, now pace.Instant) {
	shares := make(map[string]*share, len(c.shares))
	seen := make(map[string]bool, len(e.Policies))
	c.known = make(map[string]bool, len(e.Policies))
	members, lines := false, c.lines // members: partitions or valves come or go
	var policies []QueuePolicy
	policies, c.lines = withShared(e.Policies)
	for i := range policies {
		p := &policies[i] // copies would take most of the time
		c.known[p.Name] = true
		for number := range p.Partitions {
			key := record.ShareKey(p.Name, number)
			s := c.shares[key]
			if s == nil {
				s, members = &share{policy: p.Name, number: number}, true
				if p.Stored.Before(c.options.OwnersMade) {
					// an owner may live and write it again, unless a record arrives
					s.vanished = now
				}
			}
			if s.over && !p.Retired { // the policy is back
				s.over, s.actAt = false, now
				c.stir(s)
			}
			shares[key] = s
		}
		v := c.valves[p.Name]
		if v != nil && (p.Revision == 0 || p.Revision != v.revision) {
			v.Change(p.Policy, p.Paused, now) // even while it ends, as its workers may be lent
			v.revision = p.Revision
			c.rouse(v)
		}
		if !p.Own {
			continue
		}
		seen[p.Name] = true
		if v == nil {
			c.tenures++
			v = &livePolicy{tenure: c.tenures, Valve: valve.New(p.Policy, p.Paused, c.Lease.Id,
				c.options.Random, c.clock, &c.out.Actions)}
			v.Share(c.memory, &c.slots)
			v.SetOverrides(c.overrides[p.Name])
			v.revision = p.Revision
			c.valves[p.Name], members = v, true
			c.rouse(v)
		}
		v.Local, v.retired = p.Local, p.Retired
		v.shared, v.stored = p.shared, p.Stored
	}
	for name, v := range c.valves {
		members = members || v.ending == seen[name]
		v.ending = !seen[name]
	}
	for _, s := range c.sortedShares() {
		if s.state == shareIdle || seen[s.policy] {
			continue
		}
		shares[s.key()] = s // it cannot be taken from a live process
		if s.part != nil && s.part.Owned() {
			s.part.Quiesce()
		}
	}
	members = members || len(shares) != len(c.shares)
	if members || !maps.Equal(lines, c.lines) {
		c.changed = true
		if c.Lease.Held && !slices.Equal(c.Lease.told, c.runnable()) {
			c.Lease.renewAt = now // so that others know
		}
	} else if len(lines) == 0 {
		return
	}
	c.shares, c.stale = shares, true
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
