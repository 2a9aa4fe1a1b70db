package workers

import "time"

// opened is what was found when a backlog was opened.
type opened struct {
	last       uint64     // sequence of the stream: what is stored up to there is delivered first
	created    time.Time  // of the stream
	claimed    time.Time  // when JetStream stored the claim
	checkpoint checkpoint // of the predecessors
	noted      time.Time  // when JetStream stored it
	revision   uint64     // of the checkpoint's record
	attempts   map[uint64]storedAttempt
}

type storedAttempt struct {
	attemptRecord
	stored time.Time
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

// inheritance puts together what the record that we replaced and the last checkpoint tell.
func (c *core) inheritance(s *share, found opened, now instant) inheritance {
	b := s.before
	in := inheritance{owner: b.record.Owner, attempts: map[uint64]inheritedAttempt{}, gone: map[string]bool{}}
	noted := b.stored
	since := func(stored time.Time) time.Duration {
		if stored.IsZero() || found.claimed.IsZero() {
			return 0
		}
		return max(0, found.claimed.Sub(stored))
	}
	switch {
	case !b.exists && found.checkpoint.V == 0:
	case b.exists && b.record.Released:
		in.handover, in.elapsed = b.record.handover, since(b.stored)
	default:
		in.crashed = true
		in.handover, in.elapsed = found.checkpoint.handover, since(found.noted)
		if noted = found.noted; found.checkpoint.Epoch != b.revision && (b.record.After == 0 || found.checkpoint.Epoch < b.record.After) {
			in.handover.Running, in.handover.Stream, noted = b.record.Running, b.record.Stream, b.stored
		}
	}
	// What it says of sequences may be about another stream, whose name this one has now.
	if stream := in.handover.Stream; noted.Before(found.created) || stream != 0 && stream != found.created.UnixNano() {
		in.handover.Running, in.handover.Done = nil, nil
	}
	for _, r := range in.handover.Running {
		if r.Holder != c.lease.id && c.peer(r.Holder, now).gone {
			in.gone[r.Holder] = true
		}
	}
	for seq, a := range found.attempts {
		if a.stored.Before(found.created) {
			continue
		}
		left := time.Duration(a.DueIn)*time.Microsecond - since(a.stored)
		in.attempts[seq] = inheritedAttempt{a.attemptRecord, max(0, left)}
	}
	return in
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
