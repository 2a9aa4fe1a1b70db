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
	// mostGathered is how many buckets checkpoints look at in a turn of the loop, in all, because starts wait meanwhile.
	mostGathered = 2048
)

// checkpointState is when a partition's checkpoint is written again.
type checkpointState struct {
	revision  uint64
	pending   bool // being written
	changed   bool // something started since the last one was begun
	last      instant
	gathering *gathering // of one that is under way; nil: none
}

// checkpointDue is when the next checkpoint of a partition may be written; never while nothing has changed.
func (p *partition) checkpointDue() instant {
	s := &p.checkpointed
	switch {
	case p.fresh || p.state > partitionLive:
		return never
	case s.gathering != nil:
		return 0
	case !s.changed || s.pending:
		return never
	case s.last == 0:
		return 0
	}
	return s.last.add(checkpointEvery + time.Duration(len(p.buckets))*checkpointPerBucket)
}

// gathering is the part of a checkpoint or a handover that takes long, with many buckets: their clocks, looked at some at
// a time. Of those that are looked at early nothing becomes untrue: what is listed lies beyond the fence, and nobody can
// start before it; and what has started meanwhile has changed the next checkpoint.
type gathering struct {
	walk   *walk
	pieces [][]heldClock // so that none is copied when there are more
}

// heldClock is what is to be told of a bucket's clock, as instants.
type heldClock struct {
	clockRecord // but for what lies ahead
	pace        *pace
	clock       clock
	cool, probe instant
}

// gather begins a gathering.
func (p *partition) gather() *gathering { return &gathering{walk: p.walk()} }

// some looks at up to n more buckets, and reports whether those were the last. What matters lies after an instant: the fence,
// for a successor that comes by a crash comes no sooner; or now, when all shall be told that is not as good as new.
func (g *gathering) some(n int, now, after instant) (done bool) {
	piece := make([]heldClock, 0, min(n, g.walk.left))
	done = g.walk.some(n, func(b *bucket) {
		b.cooled(now)
		if c, matters := b.heldClock(now, after); matters {
			piece = append(piece, c)
		}
	})
	g.pieces = append(g.pieces, piece)
	return done
}

func (b *bucket) heldClock(now, after instant) (c heldClock, matters bool) {
	c.Key, c.pace, c.clock = b.key, b.pace, b.clock
	if b.cool > after {
		c.cool, c.Throttles, matters = b.cool, b.throttles, true
	}
	if b.down() {
		c.Down, c.probe, matters = b.target.failures, b.target.at, true
	}
	if b.pace != nil {
		if after > now {
			matters = matters || b.pace.next(&b.clock) > after
		} else {
			matters = matters || !b.pace.fresh(&b.clock, now)
		}
	}
	if matters {
		c.Starts = roundRate(b.rateNow(now))
	}
	return c, matters
}

// records are the clocks as a record lists them, in its order, by durations from now. It touches nothing that changes.
func (g *gathering) records(now instant, of handover) (clocks []clockRecord) {
	var all []listedClock
	for _, h := range slices.Concat(g.pieces...) {
		c := listedClock{clockRecord: h.clockRecord}
		if h.cool > 0 {
			c.Cool = max(0, micros(h.cool.since(now)))
		}
		if h.Down > 0 {
			c.Probe = micros(h.probe.since(now))
		}
		if h.pace != nil {
			// Lateness is not handed over: what is due is due now.
			c.Due = micros(max(h.clock.due, now.add(-h.pace.credit)).since(now))
			c.Tat = micros(h.clock.tat.since(now))
			if own := h.pace.rate.String(); own != of.Rate {
				c.Rate = own
			}
			if h.pace.burst != of.Burst {
				c.Burst = h.pace.burst
			}
			c.interval = micros(h.pace.interval)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, compareClocks)
	for _, c := range all {
		clocks = append(clocks, c.clockRecord)
	}
	return clocks
}

type listedClock struct {
	clockRecord
	interval int64 // between two starts, in µs; 0: the bucket is unpaced
}

// compareClocks orders clocks by what is lost when they are left out, which makes them wait for an interval. Waits that are
// longer must not become shorter by that, so they go first. Of the others those lose most that are due soonest.
func compareClocks(a, b listedClock) int {
	waitA, waitB := max(a.Due, a.Cool), max(b.Due, b.Cool)
	longA, longB := waitA > a.interval, waitB > b.interval
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

// handover tells all that a successor needs, by durations from now; fit bounds it. Only clocks that are later than atLeast
// from now are listed.
func (v *valve) handover(p *partition, now instant, atLeast time.Duration) handover {
	g := p.gather()
	g.some(len(p.list), now, now.add(atLeast))
	h := v.handoverBut(p, now)
	h.Clocks = append(h.Clocks, g.records(now, h)...)
	if atLeast == 0 {
		h.Done = v.doneJobs(p, now)
	}
	return h
}

// handoverBut tells what a successor needs but for the clocks of buckets. That of all together goes first, and is never left
// out.
func (v *valve) handoverBut(p *partition, now instant) handover {
	h := handover{Rate: v.policy.Outflow.String(), Burst: max(v.policy.Burst, 1), Total: v.policy.OutflowTotal.String()}
	if v.total != nil {
		h.Clocks = append(h.Clocks, clockRecord{
			Due: micros(max(v.totalClock.due, now).since(now)), Tat: micros(v.totalClock.tat.since(now)),
		})
	}
	h.Running, h.Stream, h.Last = v.runningJobs(p), p.stream(), max(p.highest, p.last)
	if p.crashedAt != 0 && now.since(p.crashedAt) < v.slowest()+time.Second {
		h.Crashed = max(1, micros(now.since(p.crashedAt)))
	}
	return h
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
		if p.jobs[seq] == nil {
			confirmed = append(confirmed, seq)
		}
	}
	for _, f := range p.recent {
		if p.jobs[f.seq] == nil && now.since(f.at) <= finishedFor {
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

// note works on a partition's checkpoint, for which it looks at up to n buckets, and returns how many of these are left. To
// put it in writing takes the longest, and whoever writes it does that.
func (c *core) note(v *valve, p *partition, n int, now instant) (left int) {
	s := &p.checkpointed
	if s.gathering == nil {
		s.gathering, s.changed, s.last = p.gather(), false, now
	}
	g := s.gathering
	left = max(0, n-g.walk.left)
	if !g.some(n, now, c.lease.fence) {
		return left
	}
	s.gathering, s.pending = nil, true
	h, most := v.handoverBut(p, now), c.most
	h.At = c.wall(now).UnixMicro()
	record := checkpoint{V: version, Owner: c.lease.id, Epoch: p.epoch}
	c.out.puts = append(c.out.puts, put{
		table: tablePartitions, key: checkpointKey(p.policy, p.number), revision: s.revision, sent: now, why: whyCheckpoint,
		gathering: g, compose: func() []byte {
			record.handover = h
			record.Clocks = slices.Concat(h.Clocks, g.records(now, h))
			record.fit(most)
			return encode(record)
		},
	})
	return left
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
