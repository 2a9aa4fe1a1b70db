package core

import (
	"cmp"
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

const mostGathered = 2048

// checkpointDue returns when the next checkpoint may be written: never before the predecessor's
// state, which it would overwrite, is taken over.
func (p *partition) checkpointDue() pace.Instant {
	switch {
	case p.fresh || !p.Owned():
		return pace.Never
	case p.gathering != nil:
		return 0
	}
	return p.Checkpoints.Due(p.Buckets())
}

// Checkpoint works on due checkpoints. Without the lease a successor may have written one.
func (c *Core) Checkpoint(now pace.Instant) {
	if !c.wasOpen {
		return
	}
	left := cmp.Or(c.options.gather, mostGathered)
	for _, v := range c.valves.awake {
		for _, s := range v.shares {
			if p := s.part; left > 0 && p != nil && now >= p.checkpointDue() {
				left = c.note(p, left, now)
			}
		}
	}
}

// note reads up to n buckets for a checkpoint, and returns n minus their number.
func (c *Core) note(p *partition, n int, now pace.Instant) (left int) {
	if p.gathering == nil {
		p.Checkpoints.Gather(now)
		p.gathering = p.Gather()
	}
	g := p.gathering
	left = max(0, n-g.Walk.Left())
	if !g.Some(n, now, c.Lease.Fence) {
		return left
	}
	p.gathering = nil
	// Runs are collected last: an ended one would hold concurrency at a successor.
	h, most := p.HandoverBut(now), c.most
	h.At = c.Wall(now).UnixMicro()
	r := record.Checkpoint{V: record.Version, Owner: c.Lease.Id, Epoch: p.Epoch}
	c.out.puts = append(c.out.puts, Put{
		Table: TablePartitions, Key: record.CheckpointKey(p.Policy, p.Number),
		Revision: p.Checkpoints.Revision, sent: now, Why: whyCheckpoint,
		gathering: g, compose: func() []byte {
			r.Handover = h
			r.Clocks = slices.Concat(h.Clocks, g.Records(now, h))
			r.Fit(most)
			return record.Encode(r)
		},
	})
	return left
}

// checkpointed handles the result of a write. After a failure the revision is read, and the next
// checkpoint is built from new state.
func (c *Core) checkpointed(p Put, revision uint64, now pace.Instant) {
	s := c.shares.of(p.gathering.Of.Partition)
	if s == nil {
		return
	}
	of := c.valves.visit(s.policy)
	if revision == 0 {
		c.out.reads = append(c.out.reads, p)
		return
	}
	s.part.Checkpoints.Revision = revision
	if s.part.Checkpoints.Store() && of != nil {
		waiting := []*livePolicy{of}
		if of.of.shared {
			waiting = c.valves.sorted
		}
		for _, v := range waiting {
			v.NotedFirst(of.Valve, now)
		}
	}
}
