package workers

import (
	"cmp"
	"slices"
	"time"
)

const (
	// checkpointEvery is the shortest time between two checkpoints of a partition.
	checkpointEvery = 250 * time.Millisecond
	// checkpointPerBucket makes checkpoints of partitions with many buckets rarer.
	checkpointPerBucket = 20 * time.Microsecond
	// mostClockBytes is how much of a record its clocks may fill, so that it fits a message. Buckets left out count as
	// having started a job at the takeover.
	mostClockBytes = 512 << 10
	// clockBytes is the size of a clock record without its key.
	clockBytes = 64
)

// checkpointState is when a partition's checkpoint is written again.
type checkpointState struct {
	revision uint64
	pending  bool // being written
	changed  bool // something started since the last one
	last     instant
}

// checkpointDue is when the next checkpoint of a partition may be written; never while nothing has changed.
func (p *partition) checkpointDue() instant {
	if p.state != partitionLive || !p.checkpointed.changed || p.checkpointed.pending {
		return never
	}
	if p.checkpointed.last == 0 {
		return 0
	}
	return p.checkpointed.last.add(checkpointEvery + time.Duration(len(p.buckets))*checkpointPerBucket)
}

// handover collects what a successor needs. Only clocks that are later than atLeast from now are listed: a successor that
// comes by a crash comes no sooner.
func (v *valve) handover(p *partition, now instant, atLeast time.Duration) handover {
	h := handover{Rate: v.policy.Outflow.String(), Total: v.policy.OutflowTotal.String()}
	if v.total != nil {
		h.Clocks = append(h.Clocks, clockRecord{
			Due: micros(max(v.totalClock.due, now).since(now)), Tat: micros(v.totalClock.tat.since(now)),
		})
	}
	for _, b := range p.buckets {
		c := clockRecord{Key: b.key}
		matters := false
		if b.cool > now.add(atLeast) {
			c.Cool, c.Throttles, matters = micros(b.cool.since(now)), b.throttles, true
		}
		if b.pace != nil {
			if atLeast > 0 {
				matters = matters || b.pace.next(&b.clock) > now.add(atLeast)
			} else {
				matters = matters || !b.pace.fresh(&b.clock, now)
			}
			// Lateness is not handed over: what is due is due now.
			c.Due = micros(max(b.clock.due, now.add(-b.pace.credit)).since(now))
			c.Tat = micros(b.clock.tat.since(now))
			if rate := b.pace.rate.String(); rate != h.Rate {
				c.Rate = rate
			}
		}
		if matters {
			h.Clocks = append(h.Clocks, c)
		}
	}
	slices.SortFunc(h.Clocks, func(a, b clockRecord) int {
		if a.Key == "" || b.Key == "" {
			return cmp.Compare(a.Key, b.Key) // that of all together goes first, and is never left out
		}
		return cmp.Or(cmp.Compare(max(b.Due, b.Cool), max(a.Due, a.Cool)), cmp.Compare(a.Key, b.Key))
	})
	size := 0
	for i, c := range h.Clocks {
		if size += clockBytes + len(c.Key); size > mostClockBytes {
			h.Clocks, h.Partial = h.Clocks[:i], true
			break
		}
	}
	h.Running = v.runningJobs(p)
	return h
}

// runningJobs lists the jobs of a partition that have started and have no recorded outcome yet.
func (v *valve) runningJobs(p *partition) []runRecord {
	var running []runRecord
	for _, j := range p.jobs {
		switch j.stage {
		case stageRunning, stageSaving, stageBurying:
			running = append(running, runRecord{j.Seq, cmp.Or(j.holder, v.self)})
		}
	}
	for seq, in := range p.inherited {
		if in.holder != "" {
			running = append(running, runRecord{seq, in.holder})
		}
	}
	slices.SortFunc(running, func(a, b runRecord) int { return cmp.Compare(a.Seq, b.Seq) })
	return running
}
