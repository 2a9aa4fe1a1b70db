package core

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// prefer assigns each partition a preferred drainer by rendezvous hashing (Thaler and Ravishankar,
// 1996), with a quota of ⌈partitions / drainers⌉, because hashing alone is uneven. Drainers that
// disagree only lose balance.
//
// Policies that share a limit go to one drainer, of those eligible for most of them.
func (c *Core) prefer() {
	some, every := map[string][]string{}, []string(nil)
	drainers := map[string]bool{}
	offer := func(id string, policies []string) {
		drainers[id] = true
		for _, name := range policies {
			if name == record.Every {
				every = append(every, id)
			} else {
				some[name] = append(some[name], id)
			}
		}
	}
	able := func(name string) []string {
		switch {
		case c.policies[name] == nil:
			return some[name]
		case len(some[name]) == 0:
			return every
		}
		return slices.Concat(some[name], every)
	}
	if c.Lease.Held && !c.Leaving {
		offer(c.Lease.Id, c.runnable())
	}
	for id, p := range c.peers {
		if !p.gone && !p.record.Leaving && p.revision > 0 {
			offer(id, p.record.Policies)
		}
	}
	quota := (len(c.shares) + len(drainers) - 1) / max(1, len(drainers))
	load := map[string]int{}
	pick := func(from []string, key string) (best string) {
		for _, id := range from {
			if best == "" || cmp.Or(cmp.Compare(max(load[best]+1, quota), max(load[id]+1, quota)),
				cmp.Compare(weight(id, key), weight(best, key)), cmp.Compare(best, id)) > 0 {
				best = id
			}
		}
		return best
	}
	picked := map[string]string{} // by line
	for _, s := range c.order {
		best := ""
		if line := c.lines[s.policy]; line != "" {
			if picked[line] == "" {
				picked[line] = pick(c.ableOf(line, able), line)
			}
			best = picked[line]
		}
		if !slices.Contains(able(s.policy), best) {
			best = pick(able(s.policy), s.key())
		}
		if s.favourite = best; best != "" {
			load[best]++
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

// distribute takes and releases partitions. Calm shares are visited once a second, and after stir.
func (c *Core) distribute(now pace.Instant) {
	all := now >= c.allAt
	if c.changed {
		c.changed = false
		c.prefer()
		c.steadyAt = now.Add(steadyFor)
	}
	if c.calm && !all {
		return
	}
	if c.calm = true; all {
		c.allAt = now.Add(allEvery)
	}
	c.prune()
	for _, s := range c.order {
		if all || !s.calm {
			c.settle(s, now)
			s.calm = c.isCalm(s, now)
		}
		c.calm = c.calm && s.calm
	}
}

func (c *Core) isCalm(s *share, now pace.Instant) bool {
	switch {
	case s.state == shareOwned:
		p := s.part
		return !c.givesUp(s) && !p.fresh && !p.broken && !p.unopened && !p.Quiesced &&
			!p.LookFor(now) && (s.favourite == "" || s.favourite == c.Lease.Id)
	case s.state != shareIdle || s.ending:
		return false
	}
	return s.valve == nil || s.exists && s.record.Owner != c.Lease.Id && s.vanished == 0 &&
		s.damaged == nil && !c.free(s, now)
}

func (c *Core) settle(s *share, now pace.Instant) {
	v := s.valve
	if s.part != nil {
		s.part.LookFor(now)
	}
	switch {
	case s.state == shareIdle && s.exists && s.record.Owner == c.Lease.Id && !s.record.Released:
		// A late taking was applied.
		if v == nil || s.ending {
			c.giveBack(s, now)
		} else {
			c.takeUp(s, now)
		}
		return
	case s.state == shareReleasing:
		if s.unwritten != nil && now >= s.actAt {
			c.write(s, *s.unwritten, whyRelease, now)
			s.unwritten = nil
		}
		return
	case v == nil:
		return
	case s.state == shareOwned && s.part.unopened &&
		(c.givesUp(s) || s.over || c.othersMay(s, now)) && c.letGo(s, now):
		return
	case now < s.actAt:
		return
	}
	switch s.state {
	case shareIdle:
		c.considerTaking(s, now)
	case shareOwned:
		c.considerRelease(s, now)
	}
}

func (c *Core) considerTaking(s *share, now pace.Instant) {
	if s.ending || !c.free(s, now) {
		s.freeSince = 0
		return
	}
	s.freeSince = cmp.Or(s.freeSince, now)
	switch {
	case c.Leaving:
		// Outcomes of our runs have no successor: take the partition back to acknowledge.
		to := s.favourite
		heir := to != "" && c.peers[to].alive(now, c.options.Lease)
		if c.unsettled[s.key()] > 0 && now.Since(s.freeSince) > steadyFor && !heir {
			c.take(s, now)
		}
	case s.favourite == c.Lease.Id || now.Since(s.freeSince) >= favouriteFirst:
		c.take(s, now)
	}
}

// considerRelease opens, retakes or hands over an owned partition: only to a recently live
// favourite, after a stable set of drainers, and not within half a lease of its taking.
func (c *Core) considerRelease(s *share, now pace.Instant) {
	switch {
	case s.part.unopened:
		s.part.unopened = false
		c.out.opens = append(c.out.opens, Opening{s.part.Partition, s.part.Epoch, s.part.fresh})
		return
	case s.part.broken:
		s.part.broken = false
		c.take(s, now)
		return
	case s.part.fresh:
		return
	case c.givesUp(s):
		if c.canGo(s, now) {
			c.release(s, now)
		}
		return
	}
	to := s.favourite
	if s.part.Quiesced {
		c.release(s, now)
		return
	}
	if to == "" || to == c.Lease.Id || now < c.steadyAt ||
		!c.peers[to].alive(now, c.options.Lease) {
		return
	}
	if now.Since(s.takenAt) >= c.options.Lease/2 {
		c.release(s, now)
	}
}

func (c *Core) othersMay(s *share, now pace.Instant) bool {
	if s.failures < mostFailures {
		return false
	}
	for _, p := range c.peers {
		if p.alive(now, c.options.Lease) && !p.record.Leaving && p.record.Runs(s.policy) {
			return true
		}
	}
	return false
}

// letGo gives up a partition that cannot be opened, and reports whether it did. If its stream may
// still exist, it is opened again later, to acknowledge finished jobs. State that was not taken
// over is given back.
func (c *Core) letGo(s *share, now pace.Instant) bool {
	switch {
	case s.part.fresh:
		c.giveBack(s, now)
	case !c.givesUp(s) || s.over || c.canGo(s, now):
		c.release(s, now)
	}
	switch {
	case s.state != shareReleasing:
		return false
	case s.over:
		s.actAt = now.Add(overFor)
	case !c.givesUp(s):
		s.failures, s.actAt = 0, now.Add(reopenMost)
	}
	return true
}

func (c *Core) givesUp(s *share) bool { return c.Leaving || s.ending }

// canGo reports whether a given-up partition has an heir for its runs' outcomes, or no outcomes to
// report (law 6).
func (c *Core) canGo(s *share, now pace.Instant) bool {
	to := s.favourite
	return to != "" && c.peers[to].alive(now, c.options.Lease) || c.quiet(s)
}

func (c *Core) quiet(s *share) bool {
	c.valve(s.policy)
	s.part.Quiesce()
	return c.unsettled[s.key()] == 0 && s.part.Quiet()
}
