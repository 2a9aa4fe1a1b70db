package workers

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
)

// share is one partition of one policy as all drainers see it, and what this one is doing about it.
type share struct {
	policy string
	number int

	revision uint64
	exists   bool
	strange  bool    // the record is of another format version: nobody here may touch it
	vanished instant // 0, or when it was found that the record is gone though nobody deleted it; what it said stands
	record   ownerRecord
	stored   time.Time // when JetStream stored the record
	seen     instant   // when this process saw that, live; 0: it came later

	state     shareState
	part      *partition  // owned, or being released
	before    predecessor // as the record stood when it was claimed
	freeSince instant     // 0: it is not free
	takenAt   instant
	actAt     instant      // not before: a new attempt after one that failed
	failures  int          // openings in a row
	unwritten *ownerRecord // a release to be written again
	rewrites  int          // of it
	over      bool         // its stream is gone for good, as far as is known
}

type shareState uint8

const (
	shareIdle      shareState = iota
	shareClaiming             // a claim is under way, of a free partition or of our own for a new epoch
	shareOwned                // part is set
	shareReleasing            // part is set, its record is being written
)

// predecessor is the record that a claim replaced.
type predecessor struct {
	exists   bool
	record   ownerRecord
	revision uint64
	stored   time.Time
	seen     instant
}

const (
	// favouriteFirst is how long a free partition is left to the drainer that should have it.
	favouriteFirst = time.Second
	// settleTime is how long the set of drainers must have been the same before partitions move.
	settleTime = 500 * time.Millisecond
	// reopenAfter is the wait before a backlog that could not be opened is tried again, doubled for each further failure up
	// to reopenMost: its stream may not be there yet, or not any more.
	reopenAfter = 500 * time.Millisecond
	reopenMost  = 10 * time.Second
	// releaseAgain is the wait before a release that was not applied is written again, doubled likewise.
	releaseAgain = 100 * time.Millisecond
	// mostFailures is after how many openings that failed in a row, some 15 s, a partition is left to another drainer.
	mostFailures = 5
	// overFor is how long nobody looks again whether the stream of a retired policy is there after all.
	overFor = 10 * time.Minute
)

func shareKey(policy string, number int) string { return policy + "." + strconv.Itoa(number) }

func (s *share) key() string { return shareKey(s.policy, s.number) }

// free reports whether anyone may take the partition.
func (c *core) free(s *share, now instant) bool {
	if !s.exists || s.record.Released {
		// Somebody may have claimed it just before its record vanished, and writes that again.
		return s.vanished == 0 || now.since(s.vanished) >= c.options.lease
	}
	if s.strange {
		return false
	}
	if s.record.Owner == c.lease.id {
		return false
	}
	return c.peer(s.record.Owner, now).gone
}

// named reports whether an ownership record names a drainer.
func (c *core) named(id string) bool {
	for _, s := range c.shares {
		if s.exists && s.record.Owner == id && !s.record.Released {
			return true
		}
		for _, r := range s.record.Running {
			if r.Holder == id {
				return true
			}
		}
	}
	return false
}

// claim asks for a partition, or for a new epoch of our own.
func (c *core) claim(s *share, now instant) {
	if s.part == nil && s.exists && s.stored.IsZero() && s.vanished == 0 { // how long ago it was released must be known: look first
		s.actAt = never
		c.out.reads = append(c.out.reads, read{put{table: tablePartitions, key: s.key(), why: whyClaim}})
		return
	}
	if s.part == nil {
		s.before = predecessor{s.exists, s.record, s.revision, s.stored, s.seen}
	}
	r := ownerRecord{V: version, Owner: c.lease.id, Nonce: c.nonce()}
	switch {
	case s.part != nil && !s.part.fresh:
		r.Running, r.Stream = c.valves[s.policy].runningJobs(s.part), s.part.stream()
		r.After, r.At = s.part.epoch, c.wall(now).UnixMicro() // checkpoints go on under the old epoch until this is answered
	case s.before.exists: // not taken in yet
		b := s.before.record
		r.Running, r.Done, r.Stream, r.Last = b.Running, b.Done, b.Stream, b.Last
		if !s.before.record.Released {
			r.After = cmp.Or(s.before.record.After, s.before.revision)
		}
	}
	s.state = shareClaiming
	c.write(s, r, whyClaim, now)
}

func (c *core) write(s *share, r ownerRecord, why reason, now instant) {
	r.Running, r.Done = slices.Clone(r.Running), slices.Clone(r.Done) // fit sorts them
	r.fit(c.most)
	revision := s.revision
	if !s.exists || s.vanished != 0 {
		revision = 0
	}
	c.out.puts = append(c.out.puts, put{
		table: tablePartitions, key: s.key(), value: encode(r), revision: revision, nonce: r.Nonce, sent: now, why: why,
	})
}

// claimed takes the answer to a claim or a release.
func (c *core) owned(p put, result putResult, revision uint64, now instant) {
	s := c.shares[p.key]
	if s == nil {
		return
	}
	if result != putOK {
		c.out.reads = append(c.out.reads, read{p})
		return
	}
	var r ownerRecord
	if err := decode(p.value, &r); err != nil {
		panic(fmt.Sprintf("workers: our own record: %v", err))
	}
	if revision < s.revision || r.Owner != c.lease.id {
		return // overtaken: the watch told more, or the lease was lost meanwhile
	}
	if revision > s.revision {
		s.stored, s.seen = time.Time{}, now // the watch will tell
	}
	s.revision, s.exists, s.record, s.vanished = revision, true, r, 0
	c.settleShare(s, now)
}

// settleShare acts on a record of ours that is known to stand.
func (c *core) settleShare(s *share, now instant) {
	switch {
	case s.record.Released:
		if s.state == shareReleasing {
			s.part, s.state, s.freeSince = nil, shareIdle, now
		}
	case s.state == shareReleasing: // a late claim; the release is on its way or is repeated
	case s.part == nil:
		v := c.valves[s.policy]
		if v == nil || v.ending {
			s.state = shareIdle // distribute gives it back
			return
		}
		s.part, s.state, s.takenAt, s.freeSince = v.own(s.number, s.revision), shareOwned, now, 0
		c.out.opens = append(c.out.opens, opening{s.part, true})
	case s.part.epoch != s.revision:
		c.valves[s.policy].reopen(s.part, s.revision)
		s.state = shareOwned
		c.out.opens = append(c.out.opens, opening{s.part, s.part.fresh})
	default:
		s.state = shareOwned
	}
}

// ownerRead takes what a read found after a claim or a release of unknown result.
func (c *core) ownerRead(p put, found record, now instant) {
	s := c.shares[p.key]
	if s == nil {
		return
	}
	c.ownerSeen(s, found, now)
	switch {
	case s.state == shareReleasing && s.exists && s.record.Owner == c.lease.id && !s.record.Released:
		if p.why == whyRelease {
			var r ownerRecord
			if decode(p.value, &r) == nil {
				s.unwritten = &r // it was not applied: once more
				s.actAt = now.add(doubled(releaseAgain, s.rewrites, reopenMost))
				s.rewrites++
			}
		}
	case s.state == shareIdle:
		s.actAt = now
	case s.state == shareClaiming && p.why == whyClaim:
		if s.part != nil {
			s.state = shareOwned // a new epoch of our own is asked for again
			s.part.broken = true
		} else {
			s.state = shareIdle
		}
		s.actAt = now.add(100 * time.Millisecond)
	}
}

// ownerSeen takes an ownership record that the watch or a read delivered.
func (c *core) ownerSeen(s *share, found record, now instant) {
	if found.vanished() && s.exists {
		if s.vanished == 0 {
			s.vanished = now
		}
		if s.state == shareOwned { // then its owner writes it again, for a new epoch
			s.part.broken, s.part.checkpointed.changed = true, true
		}
		return
	}
	if found.revision < s.revision {
		return
	}
	if found.revision == s.revision && s.exists == found.exists {
		s.stored, s.vanished = found.stored, 0 // what was told of a table made anew may come late
		return
	}
	s.revision, s.exists, s.stored, s.seen, s.vanished = found.revision, found.exists, found.stored, found.seen, 0
	s.record, s.strange = ownerRecord{}, false
	if found.exists {
		if err := decode(found.value, &s.record); err != nil {
			c.out.strange++
			s.record, s.strange = ownerRecord{}, true
		}
	}
	if s.exists && !s.strange && s.record.Owner == c.lease.id {
		if c.lease.held {
			c.settleShare(s, now)
		}
		return
	}
	if s.part != nil {
		c.dropShare(s)
	}
	s.state = shareIdle
	s.freeSince = 0
}

// closeBacklog closes the backlog of a partition that this process gives up, also one that was to be opened in this turn: it
// would stay open, and refuse for good what others ask the owner.
func (c *core) closeBacklog(p *partition) {
	c.out.opens = slices.DeleteFunc(c.out.opens, func(o opening) bool { return o.part == p })
	c.out.closes = append(c.out.closes, p)
}

// dropShare forgets a partition that is no longer ours.
func (c *core) dropShare(s *share) {
	c.closeBacklog(s.part)
	if s.part.state <= partitionLive {
		c.valves[s.policy].drop(s.part)
	}
	s.part, s.state, s.freeSince = nil, shareIdle, 0
}

// release hands a partition over to whoever takes it, as soon as no job of it is on its way to a worker: a job that came
// back after the handover would start too late for its order.
func (c *core) release(s *share, now instant) {
	c.valves[s.policy].quiesce(s.part)
	if s.part.undecided.any() || s.part.noting > 0 { // nor may the record of a crash get lost
		c.tickAt = min(c.tickAt, now.add(time.Millisecond))
		return
	}
	c.closeBacklog(s.part)
	var h handover
	if v := c.valves[s.policy]; s.over { // no successor will want to hear what becomes of the jobs
		h = v.handover(s.part, now, 0)
		v.drop(s.part)
	} else {
		h = v.surrender(s.part, now)
		if n := c.unreported(s.part); n > 0 {
			c.unsettled[s.key()] += n
		}
	}
	h.At = c.wall(now).UnixMicro()
	s.state, s.unwritten, s.rewrites = shareReleasing, nil, 0
	c.write(s, ownerRecord{V: version, Owner: c.lease.id, Nonce: c.nonce(), Released: true, handover: h}, whyRelease, now)
}

// giveBack writes again what a claim replaced, so that whoever takes the partition next knows as much: nothing that its
// former owner left was taken in here.
func (c *core) giveBack(s *share, now instant) {
	if s.part != nil {
		c.closeBacklog(s.part)
		c.valves[s.policy].drop(s.part)
	}
	r := s.before.record
	switch {
	case !s.before.exists:
		r = ownerRecord{V: version, Owner: c.lease.id, Released: true, handover: handover{Partial: true}}
	case !r.Released:
		r.After = cmp.Or(r.After, s.before.revision)
	}
	r.Nonce = c.nonce()
	s.state, s.unwritten, s.rewrites = shareReleasing, nil, 0
	c.write(s, r, whyRelease, now)
}

// unreported counts the jobs of a surrendered partition whose outcome its next owner will hear from us.
func (c *core) unreported(p *partition) (n int) {
	for _, j := range p.jobs {
		if j.stage == stageSaving || j.stage == stageBurying && j.ran() || j.stage == stageRunning && j.holder == "" {
			n++
		}
	}
	for _, in := range p.inherited {
		if in.outcome != nil {
			n++
		}
	}
	return n
}

// favourites says which drainer should own each partition: rendezvous hashing (Thaler and Ravishankar, 1996), with at
// most ⌈partitions / drainers⌉ for each drainer. All drainers that know the same leases and policies agree on it.
func (c *core) favourites() map[*share]string {
	able := map[string][]string{}
	drainers := map[string]bool{}
	offer := func(id string, policies []string) {
		drainers[id] = true
		for _, name := range policies {
			able[name] = append(able[name], id)
		}
	}
	if c.lease.held && !c.leaving {
		offer(c.lease.id, c.runnable())
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
	for _, s := range c.sortedShares() {
		best := ""
		for _, id := range able[s.policy] {
			if best == "" || cmp.Or(
				cmp.Compare(max(load[best]+1, quota), max(load[id]+1, quota)),
				cmp.Compare(weight(id, s.key()), weight(best, s.key())),
				cmp.Compare(best, id)) > 0 {
				best = id
			}
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
func (c *core) distribute(now instant) {
	if c.changed {
		c.changed = false
		c.favourite = c.favourites()
		c.settledAt = now.add(settleTime)
	}
	c.prune()
	for _, s := range c.sortedShares() {
		v := c.valves[s.policy]
		if s.part != nil {
			v.lookFor(s.part, now)
		}
		switch {
		case s.state == shareIdle && s.exists && s.record.Owner == c.lease.id && !s.record.Released:
			// A claim that was applied when nobody waited for it any more.
			if v == nil || v.ending {
				c.giveBack(s, now)
			} else {
				c.settleShare(s, now)
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
		case s.state == shareOwned && s.part.unopened && (c.givesUp(s) || s.over || c.othersMay(s, now)):
			c.letGo(s, now)
			continue
		case now < s.actAt:
			continue
		}
		switch s.state {
		case shareIdle:
			c.considerClaim(s, now)
		case shareOwned:
			c.considerRelease(s, now)
		}
	}
}

func (c *core) considerClaim(s *share, now instant) {
	if c.valves[s.policy].ending || !c.free(s, now) {
		s.freeSince = 0
		return
	}
	if s.freeSince == 0 {
		s.freeSince = now
	}
	switch {
	case c.leaving:
		// Outcomes of jobs that we still run find no successor: take the partition back, to acknowledge only.
		to := c.favourite[s]
		heir := to != "" && c.peers[to].alive(now, c.options.lease)
		if c.unsettled[s.key()] > 0 && now.since(s.freeSince) > settleTime && !heir {
			c.claim(s, now)
		}
	case c.favourite[s] == c.lease.id || now.since(s.freeSince) >= favouriteFirst:
		c.claim(s, now)
	}
}

func (c *core) considerRelease(s *share, now instant) {
	switch {
	case s.part.unopened: // nothing came of this epoch yet: it can be used again
		s.part.unopened = false
		c.out.opens = append(c.out.opens, opening{s.part, s.part.fresh})
		return
	case s.part.broken:
		s.part.broken = false
		c.claim(s, now)
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
	if s.part.quiesced {
		c.release(s, now) // once begun it is done
		return
	}
	if to == "" || to == c.lease.id || now < c.settledAt || !c.peers[to].alive(now, c.options.lease) {
		return
	}
	if now.since(s.takenAt) >= c.options.lease/2 {
		c.release(s, now)
	}
}

// othersMay reports whether another drainer may have more luck with a partition that cannot be opened here.
func (c *core) othersMay(s *share, now instant) bool {
	if s.failures < mostFailures {
		return false
	}
	for _, p := range c.peers {
		if p.alive(now, c.options.lease) && !p.record.Leaving && slices.Contains(p.record.Policies, s.policy) {
			return true
		}
	}
	return false
}

// letGo gives up a partition that cannot be opened. Its stream may be gone for good: nobody waits for it.
func (c *core) letGo(s *share, now instant) {
	switch {
	case s.part.fresh:
		c.giveBack(s, now)
	case !c.givesUp(s) || s.over || c.canGo(s, now):
		c.release(s, now)
	}
	switch {
	case s.state != shareReleasing:
	case s.over:
		s.actAt = now.add(overFor)
	case !c.givesUp(s):
		s.failures, s.actAt = 0, now.add(reopenMost)
	}
}

// givesUp reports whether this drainer is not to keep a partition.
func (c *core) givesUp(s *share) bool { return c.leaving || c.valves[s.policy].ending }

// canGo reports whether a partition that this drainer gives up can be released: there is an heir, or nothing to be left.
func (c *core) canGo(s *share, now instant) bool {
	to := c.favourite[s]
	return to != "" && c.peers[to].alive(now, c.options.lease) || c.quiet(s)
}

// quiet reports whether nothing of a partition is under way here or still to be told, and stops it from starting more.
func (c *core) quiet(s *share) bool {
	v := c.valves[s.policy]
	v.quiesce(s.part)
	if v.busy+v.claims.running+c.unsettled[s.key()] > 0 {
		return false
	}
	for _, j := range s.part.jobs {
		if j.stage >= stageSaving || j.stage == stageRunning && j.holder == "" {
			return false
		}
	}
	return true
}
