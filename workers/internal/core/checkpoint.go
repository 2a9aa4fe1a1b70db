package core

import (
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

const (
	// checkpointEvery, plus checkpointPerBucket, is the shortest time between checkpoints of a
	// partition: with 100,000 buckets 2¼ s.
	checkpointEvery     = 250 * time.Millisecond
	checkpointPerBucket = 20 * time.Microsecond
	mostGathered        = 2048
)

type checkpointState struct {
	revision  uint64
	pending   bool
	last      pace.Instant
	gathering *valve.Gathering
}

// checkpointDue returns when the next checkpoint may be written: never before the predecessor's
// state, which it would overwrite, is taken over.
func (p *partition) checkpointDue() pace.Instant {
	s := &p.checkpointed
	switch {
	case p.fresh || !p.Owned():
		return pace.Never
	case s.gathering != nil:
		return 0
	case !p.Checkpoints.Changed || s.pending:
		return pace.Never
	case s.last == 0:
		return 0
	}
	if p.Checkpoints.Waits() {
		return s.last.Add(checkpointEvery)
	}
	return s.last.Add(checkpointEvery + time.Duration(p.Buckets())*checkpointPerBucket)
}

// note reads up to n buckets for a checkpoint, and returns n minus their number.
func (c *Core) note(p *partition, n int, now pace.Instant) (left int) {
	s := &p.checkpointed
	if s.gathering == nil {
		s.gathering, p.Checkpoints.Changed, s.last = p.Gather(), false, now
	}
	g := s.gathering
	left = max(0, n-g.Walk.Left())
	if !g.Some(n, now, c.Lease.Fence) {
		return left
	}
	s.gathering, s.pending = nil, true
	// Runs are collected last: an ended one would hold concurrency at a successor.
	h, most := p.HandoverBut(now), c.most
	h.At = c.Wall(now).UnixMicro()
	r := record.Checkpoint{V: record.Version, Owner: c.Lease.Id, Epoch: p.Epoch}
	c.out.puts = append(c.out.puts, Put{
		Table: TablePartitions, Key: record.CheckpointKey(p.Policy, p.Number),
		Revision: s.revision, sent: now, Why: whyCheckpoint,
		gathering: g, compose: func() []byte {
			r.Handover = h
			r.Clocks = slices.Concat(h.Clocks, g.Records(now, h))
			r.Fit(most)
			return record.Encode(r)
		},
	})
	return left
}

func (c *cluster) checkpointShare(p Put) *share {
	s := c.shares[p.Key[:len(p.Key)-len(record.CheckpointSuffix)]]
	if s == nil || s.part == nil || s.part.Part != p.gathering.Of {
		return nil
	}
	return s
}

// checkpointed handles the result of a write. After a failure the revision is read, and the next
// checkpoint is built from new state.
func (c *Core) checkpointed(p Put, revision uint64, now pace.Instant) {
	s := c.checkpointShare(p)
	if s == nil {
		return
	}
	c.valve(s.policy)
	if revision == 0 {
		c.out.reads = append(c.out.reads, p)
		return
	}
	s.part.checkpointed.revision, s.part.checkpointed.pending = revision, false
	if of := c.valves[s.policy]; s.part.Checkpoints.Store() && of != nil {
		waiting := []*livePolicy{of}
		if of.of.shared {
			waiting = c.sorted
		}
		for _, v := range waiting {
			v.NotedFirst(of.Valve, now)
		}
	}
}
