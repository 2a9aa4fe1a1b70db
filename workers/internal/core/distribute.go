package core

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// candidates are the drainers that may own partitions.
type candidates struct {
	some  map[string][]string // by policy
	every []string            // of all policies
	// partitions by drainer, of those that may own any; none should have more than the quota
	load  map[string]int
	quota int
}

func (c *candidates) add(id string, policies []string) {
	c.load[id] = 0
	for _, name := range policies {
		if name == record.Every {
			c.every = append(c.every, id)
		} else {
			c.some[name] = append(c.some[name], id)
		}
	}
}

// able returns those that may own a policy's partitions. Who may own every policy knows those that
// this drainer knows.
func (c *candidates) able(policy string, known bool) []string {
	switch {
	case !known:
		return c.some[policy]
	case len(c.some[policy]) == 0:
		return c.every
	}
	return slices.Concat(c.some[policy], c.every)
}

// pick returns one of several drainers for a partition, or none.
func (c *candidates) pick(from []string, key string) (best string) {
	for _, id := range from {
		if best == "" || cmp.Or(
			cmp.Compare(max(c.load[best]+1, c.quota), max(c.load[id]+1, c.quota)),
			cmp.Compare(weight(id, key), weight(best, key)), cmp.Compare(best, id)) > 0 {
			best = id
		}
	}
	return best
}

// prefer assigns each partition a preferred drainer by rendezvous hashing (Thaler and Ravishankar,
// 1996), with a quota of ⌈partitions / drainers⌉, because hashing alone is uneven. Drainers that
// disagree only lose balance.
//
// Policies that share a limit go to one drainer, of those eligible for most of them.
func (c *Core) prefer() {
	from := candidates{some: map[string][]string{}, load: map[string]int{}}
	if c.Lease.Held && !c.Leaving {
		from.add(c.Lease.Id, c.valves.runnable(len(c.policies)))
	}
	for id, p := range c.peers.all {
		if p.exists && !p.gone && !p.record.Leaving {
			from.add(id, p.record.Policies)
		}
	}
	from.quota = (len(c.shares.order) + len(from.load) - 1) / max(1, len(from.load))
	able := func(policy string) []string { return from.able(policy, c.policies[policy] != nil) }
	picked := map[string]string{} // by line
	for _, s := range c.shares.order {
		best := ""
		if line := c.lines[s.policy]; line != "" {
			if picked[line] == "" {
				picked[line] = from.pick(c.lines.able(line, able), line)
			}
			best = picked[line]
		}
		if !slices.Contains(able(s.policy), best) {
			best = from.pick(able(s.policy), s.key())
		}
		if s.favourite = best; best != "" {
			from.load[best]++
		}
	}
}

func weight(id, key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	h.Write([]byte{0})
	h.Write([]byte(key))
	x := h.Sum64() // MurmurHash3's finalizer: FNV's high bits are weak for short inputs
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// distribute takes and releases partitions. Calm shares are visited at intervals, and after stir.
func (c *Core) distribute(now pace.Instant) {
	c.prune()
	of := c.shares
	all := now >= of.allAt
	if of.changed {
		of.changed = false
		c.prefer()
		of.steadyAt = now.Add(steadyFor)
	}
	if of.calm && !all {
		return
	}
	if of.calm = true; all {
		of.allAt = now.Add(allEvery)
	}
	v := c.view(now)
	for _, s := range of.order {
		if all || !s.calm {
			s.calm = c.settle(s, v)
		}
		of.calm = of.calm && s.calm
	}
}

func (c *Core) view(now pace.Instant) view {
	return view{now: now, self: c.Lease.Id, leaving: c.Leaving, steady: now >= c.shares.steadyAt,
		peers: c.peers}
}

// settle does what is to be done about a partition, and reports whether that was nothing, and stays
// so without an event.
func (c *Core) settle(s *share, v view) (calm bool) {
	if s.part != nil && s.givesUp(v) {
		c.valves.visit(s.policy)
	}
	switch s.next(v) {
	case moveNone:
		return true
	case moveTake:
		c.take(s, v.now)
	case moveTakeUp:
		c.takeUp(s, v.now)
	case moveOpen:
		c.open(s.part)
	case moveRelease:
		c.release(s, v.now)
	case moveRepeat:
		p := *s.unwritten
		p.Revision, p.Aside, p.sent, s.unwritten = s.base(), s.damaged, v.now, nil
		c.out.puts = append(c.out.puts, p)
	case moveGiveBack:
		c.giveBack(s, v.now)
	}
	return false
}
