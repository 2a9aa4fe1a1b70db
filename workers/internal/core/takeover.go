package core

import (
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// Opened is that a backlog was opened, whose arrivals may follow, and what was found then.
//
// The records are read before the consumer is made. Of a job that ends in between something is told
// though it is not stored any more, which goes with the sweep; the other way round a job would come
// of which nothing is told.
type Opened struct {
	Opening
	// sequence of the stream: what is stored up to there is delivered first
	Last    uint64
	Created time.Time // of the stream
	// when JetStream stored the record by which the partition was taken
	Taken      time.Time
	Read       time.Time         // when that record was read, by this machine's wall clock
	Checkpoint record.Checkpoint // of the predecessors
	Noted      time.Time         // when JetStream stored it
	Revision   uint64            // of the checkpoint's record
	// there being no checkpoint: when the table of these records was made
	Since    time.Time
	Attempts map[uint64]StoredAttempt
}

// Damaged takes that the checkpoint cannot be read. There was an owner, of which nothing is known,
// not even how long ago it wrote.
func (found *Opened) Damaged() {
	found.Checkpoint, found.Noted = record.Checkpoint{V: record.Version}, time.Time{}
}

type StoredAttempt struct {
	record.Attempt
	Stored   time.Time
	Revision uint64
}

// It may come late, of an epoch that this process has replaced since, or of a partition that it has
// given up; then it is no word on anything.
func (found Opened) apply(c *Core, now pace.Instant) {
	s := c.share(found.Part)
	if s == nil || s.part.Epoch != found.Epoch || !s.part.Owned() {
		return
	}
	p, v := s.part, c.valve(s.policy)
	s.failures, s.over = 0, false
	if v.shared {
		found.Created = v.stored // for it has no stream
	}
	var left *valve.Inheritance
	if found.Inherit && p.fresh {
		p.fresh = false
		p.checkpointed.revision = found.Revision
		p.Changed = true
		in := c.inheritance(s, found, now)
		if left = &in; in.Crashed {
			c.out.takeovers = append(c.out.takeovers, p.Partition)
		}
	}
	v.Opened(p.Part, found.Created, found.Last, left, now)
	switch {
	case c.Leaving || v.ending:
		v.Quiesce(p.Part)
	default:
		v.Live(p.Part, now)
	}
}

// Behind reports whether a backlog was opened where less of the stream is known than was seen
// before. For some seconds after it was cut off or stood still, a server can answer as the leader
// that it was, and deliver what is long gone. It is believed in the end: a stream that was restored
// from a backup has less for good.
//
// How long is counted in openings: the fifth is believed, 7.5 s after the first (0.5 + 1 + 2 + 4).
// A server was seen to answer so 8 s after it was back. To believe the first would run jobs again
// that are long done; to believe none would leave a restored stream for ever.
func (c *Core) Behind(found Opened) bool {
	s := c.share(found.Part)
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

// inheritance puts together what the record that we replaced and the last checkpoint tell.
//
// There are four cases. Without record and checkpoint nobody owned the partition, unless the stream
// is older than the table: then records were lost, and somebody may start jobs until a lease has
// passed. A released record tells everything. After a crash the checkpoint tells the clocks, and of
// who runs what the newer of the two is believed: a checkpoint of the epoch that was replaced, or
// of any in a row of owners that crashed or took another epoch (After), is newer than the record if
// it was put together later. An owner that crashed before its first checkpoint leaves one of an
// owner before it, whose word on what runs is long untrue.
func (c *Core) inheritance(s *share, found Opened, now pace.Instant) valve.Inheritance {
	b := s.before
	in := valve.Inheritance{Owner: b.record.Owner, Attempts: map[uint64]valve.InheritedAttempt{},
		Gone: map[string]bool{}}
	noted := b.stored
	switch {
	case !b.exists && found.Checkpoint.V == 0 && found.Created.Before(found.Since):
		// The stream is older than the table, which was recreated: there may be an owner that has
		// not heard of that.
		in.Crashed, in.Fence = true, c.options.Lease
	case !b.exists && found.Checkpoint.V == 0:
	case b.exists && b.record.Released:
		in.Handover = b.record.Handover
		in.Elapsed, in.Age = c.elapsed(found, noted, b.record.At, b.seen, now)
	default:
		if in.Crashed = true; !b.exists {
			// it was lost, which the writer of the checkpoint may not have heard either
			in.Fence = c.options.Lease
		}
		in.Handover = found.Checkpoint.Handover
		in.Elapsed, in.Age = c.elapsed(found, found.Noted, in.Handover.At, 0, now)
		newer := found.Checkpoint.Epoch == b.revision ||
			b.record.After != 0 && found.Checkpoint.Epoch >= b.record.After &&
				in.Handover.At >= b.record.At
		kept, known := b.record.KeepsFrom(b.revision)
		in.Current = found.Checkpoint.Epoch == b.revision ||
			known && found.Checkpoint.Epoch >= kept
		in.Unstarted = known && kept == b.revision && b.record.After == 0 &&
			found.Checkpoint.V == 0 && !found.Created.Before(found.Since)
		if noted = found.Noted; !newer {
			in.Handover.Running, in.Handover.Done = b.record.Running, b.record.Done
			in.Handover.Edits = b.record.Edits
			in.Handover.Stream, in.Handover.Through, noted = b.record.Stream, b.record.Through,
				b.stored
		}
	}
	if found.another(in.Handover.Stream, noted) {
		in.Handover.Running, in.Handover.Done = nil, nil
	}
	for _, r := range in.Handover.Running {
		if r.Holder != c.Lease.Id && c.peer(r.Holder, now).gone {
			in.Gone[r.Holder] = true
		}
	}
	for seq, a := range found.Attempts {
		if found.another(a.Stream, a.Stored) {
			continue
		}
		passed, _ := c.elapsed(found, a.Stored, a.At, 0, now)
		left := time.Duration(a.DueIn)*time.Microsecond - passed
		in.Attempts[seq] = valve.InheritedAttempt{Attempt: a.Attempt, DueIn: max(0, left),
			Revision: a.Revision}
	}
	return in
}

// another reports whether what a record says of sequences is about another stream, whose name this
// one has now. Records of older versions tell it by their stamps alone.
//
// Sequences count from 1 in it, so a job that waits there would be taken for one that runs, or is
// done (law 3).
func (found Opened) another(stream int64, stored time.Time) bool {
	if stream == 0 {
		return stored.Before(found.Created)
	}
	return stream != found.Created.UnixNano()
}

// elapsed is how much time has passed, at least and at most, since what a record tells was so:
// since it was stored, or, where it says at, was put together. The stamps of the record and of the
// taking may be of two leaders' clocks, one of which may be wrong, or have been set in between. So
// waits go by the least that any clock says: this process's own if it saw the record come, else
// also the drainers' idea of JetStream's clock, then and now, and this machine's wall clock.
// Whether anything can have happened since is asked of the most, for the record may have been
// stored long after it was put together.
func (c *Core) elapsed(found Opened, stored time.Time, at int64,
	seen, now pace.Instant) (least, most time.Duration) {
	if stored.IsZero() || found.Taken.IsZero() {
		return 0, pace.Forever
	}
	least = found.Taken.Sub(stored)
	most = least
	told := time.UnixMicro(at)
	if at != 0 {
		most = max(most, found.Taken.Sub(told), c.Wall(now).Sub(told))
	}
	switch {
	case seen > 0:
		least = min(least, now.Since(seen))
	default:
		if at != 0 {
			least = min(least, c.Wall(now).Sub(told))
		}
		if !found.Read.IsZero() {
			least = min(least, found.Read.Sub(stored))
		}
	}
	return max(0, least), max(0, min(most, pace.Forever))
}

// An opening that failed is not tried again at once: where a stream is missing, or its server
// catches up, each try deletes and creates a consumer.
func (e Unopened) apply(c *Core, now pace.Instant) {
	if s := c.share(e.Part); s != nil && s.part.Epoch == e.Epoch {
		s.part.unopened = true
		s.over = e.Streamless && (!c.known[s.policy] || c.valves[s.policy].retired)
		s.actAt = now.Add(pace.Doubled(reopenAfter, s.failures, reopenMost))
		s.failures++
	}
}
