package core

import "github.com/penstock-mq/penstock/queue/job"

// What the core and its shell call what the core keeps: comparable values, so that events and
// actions can be written down, and nothing of the core's state can be reached from outside.

// Partition names a partition for as long as this core has it: one that it gives up and takes again
// is another, of which nothing that is still under way for the first tells anything. (Its epoch
// would not do: it changes whenever the backlog is opened anew, while the jobs go on.)
type Partition struct {
	Policy string
	Number int
	tenure uint64 // counted by the core
}

// part returns what a name stands for; nil: this core does not have it any more.
func (c *Core) part(name Partition) *partition {
	if v := c.valves[name.Policy]; v != nil {
		if p := v.parts[name.Number]; p != nil && p.Partition == name {
			return p
		}
	}
	return nil
}

// Ref names a stored job of a partition. When it was stored is part of the name, for in a stream
// that was restored from a backup another job may have its sequence.
type Ref struct {
	Part   Partition
	Seq    uint64
	Key    job.Key // its bucket
	stored int64   // Unix ns
}

func (j *heldJob) ref() Ref {
	return Ref{j.Bucket.Part.Partition, j.Seq, j.Key, j.Stored.UnixNano()}
}

// held returns the job that a name stands for, and its valve; nil: this core does not hold it any
// more.
func (c *Core) held(name Ref) (*valve, *heldJob) {
	if p := c.part(name.Part); p != nil {
		if j := p.jobs[name.Seq]; j != nil && j.Stored.UnixNano() == name.stored {
			return c.valves[p.Policy], j
		}
	}
	return nil, nil
}

// share returns the share whose partition has the name, also while it is being released.
func (c *Core) share(name Partition) *share {
	s := c.shares[ShareKey(name.Policy, name.Number)]
	if s == nil || s.part == nil || s.part.Partition != name {
		return nil
	}
	return s
}
