package workers

import "time"

// opened is what was found when a backlog was opened.
type opened struct {
	last       uint64     // sequence of the stream: what is stored up to there is delivered first
	created    time.Time  // of the stream
	claimed    time.Time  // when JetStream stored the claim
	read       time.Time  // when the claim was read, by this machine's wall clock
	checkpoint checkpoint // of the predecessors
	noted      time.Time  // when JetStream stored it
	revision   uint64     // of the checkpoint's record
	since      time.Time  // there being no checkpoint: when the table of these records was made
	attempts   map[uint64]storedAttempt
}

type storedAttempt struct {
	attemptRecord
	stored   time.Time
	revision uint64
}

// opened takes the success of an opening; its arrivals may follow.
func (c *core) opened(o opening, epoch uint64, found opened, now instant) {
	p := o.part
	s := c.shares[shareKey(p.policy, p.number)]
	if s == nil || s.part != p || p.epoch != epoch || p.state > partitionLive {
		return
	}
	v := c.valves[p.policy]
	p.last = found.last
	s.failures, s.over = 0, false
	if o.inherit && p.fresh {
		p.fresh = false
		p.checkpointed.revision = found.revision
		p.checkpointed.changed = true
		v.inherit(p, c.inheritance(s, found, now), now)
	} else if !found.created.Equal(p.created) {
		v.restart(p, now)
	}
	p.created = found.created
	switch {
	case c.leaving || v.ending:
		v.quiesce(p)
	case p.state == partitionOpening && !p.quiesced:
		v.live(p, now)
	}
}

// behind reports whether a backlog was opened where less of the stream is known than was seen before. For some seconds after
// it was cut off or stood still, a server can answer as the leader that it was, and deliver what is long gone. It is believed
// in the end: a stream that was restored from a backup has less for good.
func (c *core) behind(o opening, found opened) bool {
	p := o.part
	s := c.shares[shareKey(p.policy, p.number)]
	if s == nil || s.part != p || s.failures >= mostFailures-1 {
		return false
	}
	if !p.fresh {
		return found.created.Equal(p.created) && found.last < max(p.highest, p.last)
	}
	for _, h := range []handover{s.before.record.handover, found.checkpoint.handover} {
		if h.Stream == found.created.UnixNano() && found.last < h.Last {
			return true
		}
	}
	return false
}

// inheritance puts together what the record that we replaced and the last checkpoint tell.
func (c *core) inheritance(s *share, found opened, now instant) inheritance {
	b := s.before
	in := inheritance{owner: b.record.Owner, attempts: map[uint64]inheritedAttempt{}, gone: map[string]bool{}}
	noted := b.stored
	switch {
	case !b.exists && found.checkpoint.V == 0 && found.created.Before(found.since):
		// The stream is older than the table, which was made anew: there may be an owner who has not heard of that.
		in.crashed, in.fence = true, c.options.lease
	case !b.exists && found.checkpoint.V == 0:
	case b.exists && b.record.Released:
		in.handover = b.record.handover
		in.elapsed, in.age = c.elapsed(found, noted, b.record.At, b.seen, now)
	default:
		if in.crashed = true; !b.exists { // it was lost, which the writer of the checkpoint may not have heard either
			in.fence = c.options.lease
		}
		in.handover = found.checkpoint.handover
		in.elapsed, in.age = c.elapsed(found, found.noted, in.handover.At, 0, now)
		newer := found.checkpoint.Epoch == b.revision ||
			b.record.After != 0 && found.checkpoint.Epoch >= b.record.After && in.handover.At >= b.record.At
		if noted = found.noted; !newer {
			in.handover.Running, in.handover.Done = b.record.Running, b.record.Done
			in.handover.Stream, noted = b.record.Stream, b.stored
		}
	}
	if found.another(in.handover.Stream, noted) {
		in.handover.Running, in.handover.Done = nil, nil
	}
	for _, r := range in.handover.Running {
		if r.Holder != c.lease.id && c.peer(r.Holder, now).gone {
			in.gone[r.Holder] = true
		}
	}
	for seq, a := range found.attempts {
		if found.another(a.Stream, a.stored) {
			continue
		}
		passed, _ := c.elapsed(found, a.stored, a.At, 0, now)
		left := time.Duration(a.DueIn)*time.Microsecond - passed
		in.attempts[seq] = inheritedAttempt{a.attemptRecord, max(0, left), a.revision}
	}
	return in
}

// another reports whether what a record says of sequences is about another stream, whose name this one has now. Records of
// older versions tell it by their stamps alone.
func (found opened) another(stream int64, stored time.Time) bool {
	if stream == 0 {
		return stored.Before(found.created)
	}
	return stream != found.created.UnixNano()
}

// elapsed is how much time has passed, at least and at most, since what a record tells was so: since it was stored, or, where
// it says at, was put together. The stamps of the record and of the claim may be of two leaders' clocks, one of which may be
// wrong, or have been set in between. So waits go by the least that any clock says: this process's own if it saw the record
// come, else also the drainers' idea of JetStream's clock, then and now, and this machine's wall clock. Whether anything can
// have happened since is asked of the most, for the record may have been stored long after it was put together.
func (c *core) elapsed(found opened, stored time.Time, at int64, seen, now instant) (least, most time.Duration) {
	if stored.IsZero() || found.claimed.IsZero() {
		return 0, forever
	}
	least = found.claimed.Sub(stored)
	most = least
	told := time.UnixMicro(at)
	if at != 0 {
		most = max(most, found.claimed.Sub(told), c.wall(now).Sub(told))
	}
	switch {
	case seen > 0:
		least = min(least, now.since(seen))
	default:
		if at != 0 {
			least = min(least, c.wall(now).Sub(told))
		}
		if !found.read.IsZero() {
			least = min(least, found.read.Sub(stored))
		}
	}
	return max(0, least), max(0, min(most, forever))
}

// unopened takes the failure of an opening; streamless says that there is no stream.
func (c *core) unopened(o opening, epoch uint64, streamless bool, now instant) {
	s := c.shares[shareKey(o.part.policy, o.part.number)]
	if s != nil && s.part == o.part && o.part.epoch == epoch {
		o.part.unopened = true
		s.over = streamless && (!c.known[s.policy] || c.valves[s.policy].retired)
		s.actAt = now.add(doubled(reopenAfter, s.failures, reopenMost))
		s.failures++
	}
}
