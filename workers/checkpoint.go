package workers

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

const (
	// checkpointEvery is the shortest time between two checkpoints of a partition.
	checkpointEvery = 250 * time.Millisecond
	// checkpointPerBucket makes checkpoints of partitions with many buckets rarer.
	checkpointPerBucket = 20 * time.Microsecond
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
	if p.fresh || p.state > partitionLive || !p.checkpointed.changed || p.checkpointed.pending {
		return never
	}
	if p.checkpointed.last == 0 {
		return 0
	}
	return p.checkpointed.last.add(checkpointEvery + time.Duration(len(p.buckets))*checkpointPerBucket)
}

// handover collects what a successor needs; fit bounds it. Only clocks that are later than atLeast from now are listed: a
// successor that comes by a crash comes no sooner.
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
		b.cooled(now)
		if b.cool > now.add(atLeast) {
			c.Cool, c.Throttles, matters = micros(b.cool.since(now)), b.throttles, true
		}
		if b.down() {
			c.Down, c.Probe, matters = b.target.failures, micros(b.target.at.since(now)), true
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
			c.Starts = roundRate(b.rateNow(now))
			h.Clocks = append(h.Clocks, c)
		}
	}
	slices.SortFunc(h.Clocks, func(a, b clockRecord) int {
		if a.Key == "" || b.Key == "" {
			return cmp.Compare(a.Key, b.Key) // that of all together goes first, and is never left out
		}
		return v.compareClocks(a, b)
	})
	h.Running, h.Stream = v.runningJobs(p), p.stream()
	if atLeast == 0 {
		h.Done = v.doneJobs(p, now)
	}
	if p.crashedAt != 0 && now.since(p.crashedAt) < v.slowest()+time.Second {
		h.Crashed = max(1, micros(now.since(p.crashedAt)))
	}
	return h
}

// compareClocks orders clocks by what is lost when they are left out, which makes them wait for an interval. Waits that are
// longer must not become shorter by that, so they go first. Of the others those lose most that are due soonest.
func (v *valve) compareClocks(a, b clockRecord) int {
	waitA, waitB := max(a.Due, a.Cool), max(b.Due, b.Cool)
	longA, longB := waitA > v.intervalOf(a.Key), waitB > v.intervalOf(b.Key)
	switch {
	case longA && longB:
		return cmp.Or(cmp.Compare(waitB, waitA), cmp.Compare(a.Key, b.Key))
	case longA:
		return -1
	case longB:
		return 1
	}
	return cmp.Or(cmp.Compare(waitA, waitB), cmp.Compare(a.Key, b.Key))
}

// intervalOf is the time between two starts of a key's bucket in µs, 0 when it is unpaced.
func (v *valve) intervalOf(key queue.Key) int64 {
	if l := v.limitsOf(key); l.pace != nil {
		return micros(l.pace.interval)
	}
	return 0
}

// slowest is the longest interval of any key.
func (v *valve) slowest() (longest time.Duration) {
	if v.base.pace != nil {
		longest = v.base.pace.interval
	}
	for _, l := range v.special {
		if l.pace != nil {
			longest = max(longest, l.pace.interval)
		}
	}
	return longest
}

// jsonLength is about the length of a text in JSON, without its quotes.
func jsonLength(s string) int {
	n := len(s)
	for i := range len(s) {
		if s[i] == '<' || s[i] == '>' || s[i] == '&' || s[i] == '"' || s[i] == '\\' {
			n += 5
		}
	}
	return n
}

// doneJobs lists jobs of a partition whose acknowledgement may not be seen yet, first those whose acknowledgement is not
// confirmed: they will come again for certain.
func (v *valve) doneJobs(p *partition, now instant) (done []uint64) {
	for seq, j := range p.jobs {
		if j.stage == stageAcking {
			done = append(done, seq)
		}
	}
	slices.Sort(done)
	var confirmed []uint64
	for seq := range p.finished {
		confirmed = append(confirmed, seq)
	}
	for _, f := range p.recent {
		if now.since(f.at) <= staleFor {
			confirmed = append(confirmed, f.seq)
		}
	}
	slices.Sort(confirmed)
	return append(done, slices.Compact(confirmed)...)
}

// stream tells the partition's stream from others of its name, 0 while it is not known.
func (p *partition) stream() int64 {
	if p.created.IsZero() {
		return 0
	}
	return p.created.UnixNano()
}

// runningJobs lists the jobs of a partition that have started and have no recorded outcome yet.
func (v *valve) runningJobs(p *partition) []runRecord {
	var running []runRecord
	for _, j := range p.begun {
		if j.stage != stageBurying || j.ran() {
			running = append(running, runRecord{j.Seq, cmp.Or(j.holder, v.self)})
		}
	}
	for seq, in := range p.inherited {
		switch {
		case in.outcome != nil: // from now on it is ours to tell
			running = append(running, runRecord{seq, v.self})
		case in.holder != "" || in.crashed != "": // a crash counts once the job is here
			running = append(running, runRecord{seq, cmp.Or(in.holder, in.crashed)})
		}
	}
	slices.SortFunc(running, func(a, b runRecord) int { return cmp.Compare(a.Seq, b.Seq) })
	return running
}

// note writes a partition's checkpoint.
func (c *core) note(v *valve, p *partition, now instant) {
	s := &p.checkpointed
	s.pending, s.changed, s.last = true, false, now
	h := v.handover(p, now, c.lease.fence.since(now))
	h.fit(c.most)
	h.At = c.wall(now).UnixMicro()
	value := encode(checkpoint{V: version, Owner: c.lease.id, Epoch: p.epoch, handover: h})
	c.out.puts = append(c.out.puts, put{
		table: tablePartitions, key: checkpointKey(p.policy, p.number), value: value, revision: s.revision, sent: now, why: whyCheckpoint,
	})
}

const checkpointSuffix = ".clocks"

func checkpointKey(policy string, number int) string {
	return shareKey(policy, number) + checkpointSuffix
}

func (c *core) checkpointShare(p put) *share {
	s := c.shares[p.key[:len(p.key)-len(checkpointSuffix)]]
	if s == nil || s.part == nil {
		return nil
	}
	return s
}

// checkpointed takes the answer to a checkpoint. On a conflict it is written over: whoever wrote it owned the partition
// before us.
func (c *core) checkpointed(p put, result putResult, revision uint64, now instant) {
	s := c.checkpointShare(p)
	switch {
	case s == nil:
	case result == putOK:
		s.part.checkpointed.revision, s.part.checkpointed.pending = revision, false
	default:
		c.out.reads = append(c.out.reads, read{p})
	}
}
