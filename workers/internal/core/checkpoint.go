package core

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

const (
	// checkpointEvery is the shortest time between two checkpoints of a partition. What starts in
	// between is known to nobody if the owner crashes: it is counted as a start at the last moment,
	// and its run is no crash.
	checkpointEvery = 250 * time.Millisecond
	// checkpointPerBucket makes checkpoints of partitions with many buckets rarer: one of 100,000
	// is written every 2¼ s and not four times a second.
	checkpointPerBucket = 20 * time.Microsecond
	// mostGathered is how many buckets checkpoints look at in a turn of the loop, in all, because
	// starts wait meanwhile.
	mostGathered = 2048
)

// checkpointState is when a partition's checkpoint is written again.
//
// One is written at a time, over the revision of the one before. Nothing is written while nothing
// has changed, so idle partitions cost nothing.
type checkpointState struct {
	revision  uint64
	pending   bool // being written
	last      pace.Instant
	gathering *valve.Gathering // of one that is under way; nil: none
}

// checkpointDue is when the next checkpoint of a partition may be written; never while nothing has
// changed, nor before what the predecessor left is taken in, for it would be overwritten.
func (p *partition) checkpointDue() pace.Instant {
	s := &p.checkpointed
	switch {
	case p.fresh || !p.Owned():
		return pace.Never
	case s.gathering != nil:
		return 0
	case !p.Changed || s.pending:
		return pace.Never
	case s.last == 0:
		return 0
	}
	if p.EditWaits() {
		return s.last.Add(checkpointEvery) // for somebody waits for it
	}
	return s.last.Add(checkpointEvery + time.Duration(p.Buckets())*checkpointPerBucket)
}

// note works on a partition's checkpoint, for which it looks at up to n buckets, and returns how
// many of these are left. To put it in writing takes the longest, and whoever writes it does that.
func (c *Core) note(v *livePolicy, p *partition, n int, now pace.Instant) (left int) {
	s := &p.checkpointed
	if s.gathering == nil {
		s.gathering, p.Changed, s.last = v.Gather(p.Part), false, now
	}
	g := s.gathering
	left = max(0, n-g.Walk.Left())
	if !g.Some(n, now, c.Lease.Fence) {
		return left
	}
	s.gathering, s.pending = nil, true
	// Runs are collected last, at once and for this instant: of clocks a while is no harm (see
	// gathering), but a run that has ended since would hold concurrency at a successor.
	h, most := v.HandoverBut(p.Part, now), c.most
	h.At = c.Wall(now).UnixMicro()
	r := record.Checkpoint{V: record.Version, Owner: c.Lease.Id, Epoch: p.Epoch}
	c.out.puts = append(c.out.puts, Put{
		Table: TablePartitions, Key: record.CheckpointKey(p.Policy,
			p.Number), Revision: s.revision, sent: now, Why: whyCheckpoint,
		gathering: g, compose: func() []byte {
			r.Handover = h
			r.Clocks = slices.Concat(h.Clocks, g.Records(now, h))
			r.Fit(most)
			return record.Encode(r)
		},
	})
	return left
}

// checkpointShare is the share whose checkpoint a write is; nil: it has been lost since, and maybe
// taken again.
func (c *Core) checkpointShare(p Put) *share {
	s := c.shares[p.Key[:len(p.Key)-len(record.CheckpointSuffix)]]
	if s == nil || s.part == nil || s.part.Part != p.gathering.Of {
		return nil
	}
	return s
}

// checkpointed takes the answer to a checkpoint. On a conflict it is written over: whoever wrote it
// owned the partition before us.
//
// A checkpoint that failed is not repeated as it was: its revision is read, and the next one is put
// together anew.
func (c *Core) checkpointed(p Put, result putResult, revision uint64, now pace.Instant) {
	s := c.checkpointShare(p)
	if s == nil {
		return
	}
	c.valve(s.policy)
	switch {
	case result == PutOK:
		s.part.checkpointed.revision, s.part.checkpointed.pending = revision, false
		of := c.valves[s.policy]
		if s.part.Noted(true) && of != nil {
			for _, v := range c.sorted {
				v.NotedFirst(of.Valve, now)
			}
		}
	default:
		s.part.Noted(false)
		c.out.reads = append(c.out.reads, read{p})
	}
}
