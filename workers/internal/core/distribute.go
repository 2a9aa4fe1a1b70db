package core

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// favourites says which drainer should own each partition: rendezvous hashing (Thaler and
// Ravishankar, 1996), with at most ⌈partitions / drainers⌉ for each drainer. All drainers that know
// the same leases and policies agree on it.
//
// Nobody has to agree with anybody for what is right, only for what is balanced: a drainer that
// errs releases what it could have kept, or waits favouriteFirst for nothing. Rendezvous hashing
// moves few partitions when a drainer comes or goes; the quota is there because hashing alone is
// uneven where partitions are few. It counts load in the order of the keys, which is why all must
// go through the shares in the same order.
//
// What hangs together by limits that policies share goes to one drainer, of those that may own most
// of it. It comes together as everything comes to its favourite: within half a lease of a takeover
// in which some of it went elsewhere. Until then only what is with its limits starts.
func (c *Core) favourites() map[*share]string {
	able := map[string][]string{}
	drainers := map[string]bool{}
	offer := func(id string, policies []string) {
		drainers[id] = true
		for _, name := range policies {
			able[name] = append(able[name], id)
		}
	}
	if c.Lease.Held && !c.Leaving {
		offer(c.Lease.Id, c.runnable())
	}
	for id, p := range c.peers {
		if !p.gone && !p.record.Leaving && p.revision > 0 {
			offer(id, p.record.Policies)
		}
	}
	result := map[*share]string{}
	if len(drainers) == 0 {
		return result
	}
	quota := (len(c.shares) + len(drainers) - 1) / len(drainers)
	load := map[string]int{}
	pick := func(from []string, key string) (best string) {
		for _, id := range from {
			if best == "" || cmp.Or(
				cmp.Compare(max(load[best]+1, quota), max(load[id]+1, quota)),
				cmp.Compare(weight(id, key), weight(best, key)),
				cmp.Compare(best, id)) > 0 {
				best = id
			}
		}
		return best
	}
	picked := map[string]string{} // by line
	for _, s := range c.sortedShares() {
		best := ""
		if line := c.lines[s.policy]; line != "" {
			if picked[line] == "" {
				picked[line] = pick(c.ableOf(line, able), line)
			}
			best = picked[line]
		}
		if !slices.Contains(able[s.policy], best) {
			best = pick(able[s.policy], s.key())
		}
		if best != "" {
			load[best]++
			result[s] = best
		}
	}
	return result
}

func weight(id, key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	h.Write([]byte{0})
	h.Write([]byte(key))
	x := h.Sum64() // FNV's high bits are weak for short inputs: mix (the finalizer of MurmurHash3)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// distribute takes and releases partitions.
//
// It runs ten times a second, and at once after anything that it looks at has changed. Nothing else
// takes a partition or gives one up of this process's own will; the rest notes what is so, and lets
// it look.
func (c *Core) distribute(now pace.Instant) {
	if c.changed {
		c.changed = false
		c.favourite = c.favourites()
		c.steadyAt = now.Add(steadyFor)
	}
	c.prune()
	for _, s := range c.sortedShares() {
		v := c.valves[s.policy]
		if s.part != nil {
			v.LookFor(s.part.Part, now)
		}
		switch {
		case s.state == shareIdle && s.exists && s.record.Owner == c.Lease.Id && !s.record.Released:
			// A taking that was applied when nobody waited for it any more.
			if v == nil || v.ending {
				c.giveBack(s, now)
			} else {
				c.takeUp(s, now)
			}
			continue
		case s.state == shareReleasing:
			if s.unwritten != nil && now >= s.actAt {
				c.write(s, *s.unwritten, whyRelease, now)
				s.unwritten = nil
			}
			continue
		case v == nil:
			continue
		case s.state == shareOwned && s.part.unopened &&
			(c.givesUp(s) || s.over || c.othersMay(s, now)) && c.letGo(s, now):
			continue
		case now < s.actAt:
			continue
		}
		switch s.state {
		case shareIdle:
			c.considerTaking(s, now)
		case shareOwned:
			c.considerRelease(s, now)
		}
	}
}

// considerTaking takes a partition that is free, if this process is its favourite or the favourite
// has had its time. That is how long the partition has been free as seen here, on this process's
// own clock.
func (c *Core) considerTaking(s *share, now pace.Instant) {
	if c.valves[s.policy].ending || !c.free(s, now) {
		s.freeSince = 0
		return
	}
	if s.freeSince == 0 {
		s.freeSince = now
	}
	switch {
	case c.Leaving:
		// Outcomes of jobs that we still run find no successor: take the partition back, to
		// acknowledge only.
		to := c.favourite[s]
		heir := to != "" && c.peers[to].alive(now, c.options.Lease)
		if c.unsettled[s.key()] > 0 && now.Since(s.freeSince) > steadyFor && !heir {
			c.take(s, now)
		}
	case c.favourite[s] == c.Lease.Id || now.Since(s.freeSince) >= favouriteFirst:
		c.take(s, now)
	}
}

// considerRelease looks at what a partition of ours needs: to be opened, taken again or handed
// over. It moves only to a favourite that was heard of lately, only when the drainers have been the
// same for a while, and not before half a lease has passed since it was taken: where drainers do
// not know the same of each other for a moment, it would go back and forth, and stand still each
// time. Once a valve was stopped for it there is no way back: it is not started again, and whoever
// is to have the partition takes it by its record.
func (c *Core) considerRelease(s *share, now pace.Instant) {
	switch {
	case s.part.unopened: // nothing came of this epoch yet: it can be used again
		s.part.unopened = false
		c.out.opens = append(c.out.opens, Opening{s.part.Partition, s.part.Epoch, s.part.fresh})
		return
	case s.part.broken:
		s.part.broken = false
		c.take(s, now)
		return
	case s.part.fresh:
		return // what it inherits must be known before it can be handed on
	case c.givesUp(s):
		if c.canGo(s, now) {
			c.release(s, now)
		}
		return
	}
	to := c.favourite[s]
	if s.part.Quiesced {
		c.release(s, now) // once begun it is done
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

// othersMay reports whether another drainer may have more luck with a partition that cannot be
// opened here.
//
// Where there is none, it is tried here for ever: a partition of nobody would be no better.
func (c *Core) othersMay(s *share, now pace.Instant) bool {
	if s.failures < mostFailures {
		return false
	}
	for _, p := range c.peers {
		if p.alive(now, c.options.Lease) && !p.record.Leaving &&
			slices.Contains(p.record.Policies, s.policy) {
			return true
		}
	}
	return false
}

// letGo gives up a partition that cannot be opened, and reports whether it did. Its stream may be
// gone for good: nobody waits for it. While it may be there, what has finished must still be
// acknowledged, so it is opened again in time.
//
// What was not taken in yet is given back as it was; what was is handed over in order. If it comes
// back here, because nobody else could open it, that is not before reopenMost.
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

// givesUp reports whether this drainer is not to keep a partition.
func (c *Core) givesUp(s *share) bool { return c.Leaving || c.valves[s.policy].ending }

// canGo reports whether a partition that this drainer gives up can be released: there is an heir,
// or nothing to be left.
//
// Outcomes of what runs are told to the next owner. Without an heir there would be nobody to tell,
// and jobs that ended well here would run again; so the partition is kept, and starts nothing,
// until all of them are acknowledged (law 6: a shutdown costs no attempt).
func (c *Core) canGo(s *share, now pace.Instant) bool {
	to := c.favourite[s]
	return to != "" && c.peers[to].alive(now, c.options.Lease) || c.quiet(s)
}

// quiet reports whether nothing of a partition is under way here or still to be told, and stops it
// from starting more.
func (c *Core) quiet(s *share) bool {
	v := c.valve(s.policy)
	v.Quiesce(s.part.Part)
	return c.unsettled[s.key()] == 0 && v.Quiet(s.part.Part)
}
