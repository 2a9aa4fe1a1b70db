package core

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/inheritance"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Opened reports an opened backlog, and the records read before.
type Opened struct {
	Opening
	// Last is the stream's last sequence, delivered before newer ones.
	Last    uint64
	Created time.Time
	// when JetStream stored the taking
	Taken      time.Time
	Read       time.Time         // by this machine's wall clock
	Checkpoint record.Checkpoint // a predecessor's
	Noted      time.Time         // when JetStream stored the checkpoint
	Revision   uint64
	// without a checkpoint: when its table was created
	Since    time.Time
	Attempts map[uint64]StoredAttempt
}

// Damaged records that the checkpoint is unreadable.
func (found *Opened) Damaged() {
	found.Checkpoint, found.Noted = record.Checkpoint{V: record.Version}, time.Time{}
}

type StoredAttempt = inheritance.Attempt

func (found Opened) apply(c *Core, now pace.Instant) {
	s := c.backlog(found.Part, found.Epoch)
	if s == nil {
		return
	}
	p, v := s.part, c.valves.all[s.policy]
	s.failures, s.over = 0, false
	c.shares.stir(s)
	if v.of.shared {
		found.Created = v.of.Stored
	}
	var left *inheritance.State
	if found.Inherit && p.fresh {
		p.fresh = false
		p.Checkpoints.Replace(found.Revision)
		in := c.inheritance(s, found, now)
		if left = &in; in.Crashed {
			c.out.takeovers = append(c.out.takeovers, p.Partition)
		}
	}
	p.Opened(found.Created, found.Last, left, now)
	switch {
	case c.Leaving || v.ending:
		p.Quiesce()
	default:
		p.GoLive(now)
	}
}

// Behind reports whether a backlog shows an older state of the stream than was seen before: for
// some seconds a server that was cut off or frozen can answer as the former leader, and deliver
// removed jobs.
//
// The fifth opening is accepted, 7.5 s after the first (0.5 + 1 + 2 + 4), because a stream restored
// from a backup stays behind. A server once did so 8 s after its return.
func (c *Core) Behind(found Opened) bool {
	s := c.shares.of(found.Part)
	if s == nil || s.failures >= mostFailures-1 {
		return false
	}
	if p := s.part; !p.fresh {
		return p.Behind(found.Created, found.Last)
	}
	for _, h := range []record.Handover{s.before.record.Handover, found.Checkpoint.Handover} {
		if h.Stream == found.Created.UnixNano() && found.Last < h.Last {
			return true
		}
	}
	return false
}

// inheritance combines the replaced record and the last checkpoint.
//
// Without both, the partition had no owner, unless the stream is older than the table, when records
// were lost and an owner may start jobs for another lease. A released record is complete. After a
// crash the checkpoint has the clocks, and the newer of the two has the runs: a checkpoint of the
// replaced epoch, or of any since After, is newer than the record if it was built later.
func (c *Core) inheritance(s *share, found Opened, now pace.Instant) inheritance.State {
	b := s.before
	in := inheritance.State{Owner: b.record.Owner, Attempts: map[uint64]StoredAttempt{},
		Gone: map[string]bool{}}
	noted := b.stored
	switch {
	case !b.exists && found.Checkpoint.V == 0 && found.Created.Before(found.Since):
		in.Crashed, in.Fence = true, c.options.Lease
	case !b.exists && found.Checkpoint.V == 0:
	case b.exists && b.record.Released:
		in.Handover = b.record.Handover
		in.Elapsed, in.Age = c.server.elapsed(found, noted, b.record.At, b.seen, now)
	default:
		if in.Crashed = true; !b.exists {
			// the checkpoint's writer may not have noticed the record's loss
			in.Fence = c.options.Lease
		}
		in.Handover, in.Former = found.Checkpoint.Handover, found.Checkpoint.Owner != in.Owner
		in.Elapsed, in.Age = c.server.elapsed(found, found.Noted, in.Handover.At, 0, now)
		newer := found.Checkpoint.Epoch == b.revision ||
			b.record.After != 0 && found.Checkpoint.Epoch >= b.record.After &&
				in.Handover.At >= b.record.At
		in.Unstarted = found.Revision == 0 && !found.Created.Before(found.Since)
		if noted = found.Noted; !newer {
			in.Handover.Running, in.Handover.Done = b.record.Running, b.record.Done
			in.Handover.Edits = b.record.Edits
			in.Handover.Ended = slices.Concat(in.Handover.Ended, b.record.Ended)
			in.Handover.Stream, in.Handover.Through, noted = b.record.Stream, b.record.Through,
				b.stored
		}
	}
	if found.another(in.Handover.Stream, noted) {
		in.Handover.Running, in.Handover.Done = nil, nil
	}
	for _, r := range in.Handover.Running {
		if r.Holder != c.Lease.Id && c.peers.of(r.Holder, now).gone {
			in.Gone[r.Holder] = true
		}
	}
	for seq, a := range found.Attempts {
		if found.another(a.Stream, a.Stored) {
			continue
		}
		passed, _ := c.server.elapsed(found, a.Stored, a.At, 0, now)
		a.DueIn -= passed.Microseconds()
		in.Attempts[seq] = a
	}
	return in
}

// another reports whether a record is about another stream of this name (law 3).
func (found Opened) another(stream int64, stored time.Time) bool {
	if stream == 0 {
		return stored.Before(found.Created)
	}
	return stream != found.Created.UnixNano()
}

// A failed opening is not retried at once.
func (e Unopened) apply(c *Core, now pace.Instant) {
	if s := c.backlog(e.Part, e.Epoch); s != nil {
		s.part.unopened = true
		c.shares.stir(s)
		s.over = e.Streamless && (c.policies[s.policy] == nil || c.policies[s.policy].Retired)
		s.actAt = now.Add(pace.Doubled(reopenAfter, s.failures, reopenMost))
		s.failures++
	}
}
