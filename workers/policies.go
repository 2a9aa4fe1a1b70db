package workers

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// runnable lists the policies whose valves this drainer may own.
func (c *core) runnable() []string {
	var names []string
	for name, v := range c.valves {
		if !v.ending {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *core) sortValves() {
	c.sorted = c.sorted[:0]
	for _, name := range slices.Sorted(maps.Keys(c.valves)) {
		c.sorted = append(c.sorted, c.valves[name])
	}
}

// prune forgets the valves of policies that this drainer may not own any more, once they own nothing and nothing runs.
func (c *core) prune() {
	for _, v := range c.sorted {
		if v.ending {
			c.pruneEnding()
			return
		}
	}
}

func (c *core) pruneEnding() {
	held := map[string]bool{}
	for _, s := range c.shares {
		if s.state != shareIdle {
			held[s.policy] = true
		}
	}
	for name, v := range c.valves {
		if !v.ending || held[name] || v.busy+v.lent+v.claims.running > 0 {
			continue
		}
		delete(c.valves, name)
		for key, s := range c.shares {
			if s.policy == name && !c.known[name] {
				delete(c.shares, key)
				delete(c.unsettled, key) // of a policy that is no more: nobody will take the outcomes
			}
		}
		c.order = nil
	}
	c.sortValves()
}

// queuePolicy is a policy with a queue, as the core is told of it.
type queuePolicy struct {
	policy.Policy
	paused  bool
	retired bool // its stream goes when it is empty
	own     bool // this drainer may own its valve
	local   bool // there are workers in this process
	stored  time.Time
}

// setPolicies tells which policies have queues.
func (c *core) setPolicies(policies []queuePolicy, now instant) {
	shares := map[string]*share{}
	seen := map[string]bool{}
	c.known = map[string]bool{}
	before := c.runnable()
	for _, p := range policies {
		c.known[p.Name] = true
		for number := range p.Partitions {
			key := shareKey(p.Name, number)
			s := c.shares[key]
			if s == nil {
				s = &share{policy: p.Name, number: number}
				if p.stored.Before(c.options.ownersMade) {
					s.vanished = now // unless a record is told, its owner may live and write it again
				}
			}
			if s.over && !p.retired { // the policy is back
				s.over, s.actAt = false, now
			}
			shares[key] = s
		}
		v := c.valves[p.Name]
		if v != nil {
			v.change(p.Policy, p.paused, now) // also while it ends: its workers may be lent
		}
		if !p.own {
			continue
		}
		seen[p.Name] = true
		if v == nil {
			v = newValve(p.Policy, p.paused, c.lease.id, c.options.random, &c.out)
			v.setOverrides(c.overrides[p.Name])
			c.valves[p.Name] = v
		}
		v.local, v.retired, v.ending = p.local, p.retired, false
	}
	for name, v := range c.valves {
		v.ending = !seen[name]
	}
	for _, s := range c.sortedShares() {
		if s.state == shareIdle || seen[s.policy] {
			continue
		}
		shares[s.key()] = s // until it is released: nobody can take it from a live process
		if s.part != nil && s.part.state <= partitionLive {
			c.valves[s.policy].quiesce(s.part)
		}
	}
	c.sortValves()
	if len(shares) != len(c.shares) || !slices.Equal(before, c.runnable()) {
		c.changed = true
		if c.lease.held {
			c.lease.renewAt = now // so that others know
		}
	}
	c.shares, c.order = shares, nil
	for _, s := range c.sortedShares() {
		if found, ok := c.owners[s.key()]; ok && s.revision < found.revision {
			c.ownerSeen(s, found, now)
		}
	}
}

// setOverride tells what a key of a policy obeys; the zero override takes that away.
func (c *core) setOverride(name string, key queue.Key, o policy.Override, now instant) {
	all := c.overrides[name]
	if all == nil {
		all = map[queue.Key]policy.Override{}
		c.overrides[name] = all
	}
	if all[key] = o; o.IsZero() {
		delete(all, key)
	}
	if v := c.valves[name]; v != nil {
		v.setOverride(key, o, now)
	}
}
