package valve

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

// gathering is the part of a checkpoint or a handover that takes long, with many buckets: their
// clocks, looked at some at a time. Of those that are looked at early nothing becomes untrue: what
// is listed lies beyond the fence, and nobody can start before it; and what has started meanwhile
// has changed the next checkpoint.
type Gathering struct {
	Of     *Part
	v      *Valve // for the limits
	Walk   *walk.Walk[*bucket]
	pieces [][]heldClock // so that none is copied when there are more
}

// heldClock is what is to be told of a bucket's clock, as instants.
type heldClock struct {
	record.Clock // but for what lies ahead
	pace         *pace.Pace
	due, tat     pace.Instant // of its clock
	next         pace.Instant // when that allows a start
	cool, probe  pace.Instant
	learnt       learnt
}

// Gather begins a gathering.
func (v *Valve) Gather(p *Part) *Gathering {
	v.gathered(p)
	p.edits.telling = p.edits.made
	return &Gathering{Of: p, v: v, Walk: p.list.Walk()}
}

// Some looks at up to n more buckets, and reports whether those were the last. What matters lies
// after an instant: the fence, for a successor that comes by a crash comes no sooner; or now, when
// all shall be told that is not as good as new.
//
// Most buckets are as good as new, or due before the fence, and are not listed: after a crash those
// wait for one interval, which is the longest that they could have had to.
func (g *Gathering) Some(n int, now, after pace.Instant) (done bool) {
	piece := make([]heldClock, 0, min(n, g.Walk.Left()))
	done = g.Walk.Some(n, func(b *bucket) {
		b.cooled(now)
		c, matters := b.heldClock(now, after)
		if g.v.quota != nil {
			c.Used = g.v.quota.Encode(b.used, g.v.instant(now))
		}
		if matters || c.Used != "" {
			piece = append(piece, c)
		}
	})
	g.pieces = append(g.pieces, piece)
	return done
}

// heldClock copies what a successor must know of a bucket, if that is anything: by value, since the
// record is put together beside the loop while the bucket goes on.
func (b *bucket) heldClock(now, after pace.Instant) (c heldClock, matters bool) {
	c.Key, c.pace = b.key, b.pace
	if b.cool > after {
		c.cool, c.Throttles, matters = b.cool, b.throttles, true
	}
	if b.down() {
		c.Down, c.probe, matters = b.target.failures, b.target.at, true
	}
	if b.learnt != nil {
		c.learnt, matters = *b.learnt, true
	}
	if b.pace != nil {
		c.due, c.tat, c.next = b.clock.Due, b.clock.TAT(), b.pace.Next(&b.clock)
		if after > now {
			matters = matters || c.next > after
		} else {
			matters = matters || !b.pace.Fresh(&b.clock, now)
		}
	}
	if matters {
		c.Starts = b.rate.Now(b.pace, now)
	}
	return c, matters
}

// Records are the clocks as a record lists them, in its order, by durations from now. It touches
// nothing that changes.
//
// Durations are what two processes can compare: neither knows the other's clock. Rates and bursts
// are named only where they differ from the policy's, as records are small.
func (g *Gathering) Records(now pace.Instant, of record.Handover) (clocks []record.Clock) {
	var all []listedClock
	for _, h := range slices.Concat(g.pieces...) {
		c := listedClock{Clock: h.Clock}
		if h.cool > 0 {
			c.Cool = max(0, record.Micros(h.cool.Since(now)))
		}
		if h.Down > 0 {
			c.Probe = record.Micros(h.probe.Since(now))
		}
		if l := h.learnt; l.Known() {
			c.Learnt = l.Text(time.Duration(now), l.under.pace.Rate.PerSecond())
		}
		if h.pace != nil {
			// Lateness is not handed over, or the gap of the handover would be made up by the next
			// owner: what is due is due now.
			c.Due = record.Micros(max(h.due, now.Add(-h.pace.Credit)).Since(now))
			c.Tat = record.Micros(h.tat.Since(now))
			if own := h.pace.Rate.String(); own != of.Rate {
				c.Rate = own
			}
			if h.pace.Burst != of.Burst {
				c.Burst = h.pace.Burst
			}
			c.interval = record.Micros(h.pace.Interval)
			c.Wait = max(0, record.Micros(h.next.Since(now)))
		}
		all = append(all, c)
	}
	slices.SortFunc(all, compareClocks)
	for _, c := range all {
		clocks = append(clocks, c.Clock)
	}
	return clocks
}

type listedClock struct {
	record.Clock
	interval int64 // between two starts, in µs; 0: the bucket is unpaced
}

// compareClocks orders clocks by what is lost when they are left out, which makes them wait for an
// interval, or for the longest that is left out. Waits that are longer go first, so that few
// buckets wait for those of others. Of the others those lose most that are due soonest.
func compareClocks(a, b listedClock) int {
	waitA, waitB := max(a.Wait, a.Cool), max(b.Wait, b.Cool)
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

// Handover tells all that a successor needs, by durations from now; fit bounds it. Only clocks that
// are later than atLeast from now are listed.
func (v *Valve) Handover(p *Part, now pace.Instant, atLeast time.Duration) record.Handover {
	g := v.Gather(p)
	g.Some(p.list.Len(), now, now.Add(atLeast))
	h := v.HandoverBut(p, now)
	h.Clocks = append(h.Clocks, g.Records(now, h)...)
	if atLeast == 0 {
		h.Done = v.doneJobs(p, now)
	}
	return h
}

// HandoverBut tells what a successor needs but for the clocks of buckets. That of all together goes
// first, and is never left out.
//
// A crash is told on for as long as it can matter to a bucket that is not listed: one interval of
// the slowest key, and its spread (see Valve.bucket).
func (v *Valve) HandoverBut(p *Part, now pace.Instant) record.Handover {
	h := record.Handover{Rate: v.Policy.Outflow.String(), Burst: max(v.Policy.Burst, 1),
		Total: v.Policy.OutflowTotal.String()}
	if v.total != nil {
		h.Clocks = append(h.Clocks, record.Clock{
			Due:  record.Micros(max(v.totalClock.Due, now).Since(now)),
			Tat:  record.Micros(v.totalClock.TAT().Since(now)),
			Wait: record.Micros(v.total.Next(&v.totalClock).Since(now)),
		})
	}
	h.Running, h.Stream, h.Last = v.runningJobs(p), p.Stream(), max(p.highest, p.last)
	h.Through, h.Edits = p.tellsThrough(), p.edits.records()
	if p.crashedAt != 0 && now.Since(p.crashedAt) < v.slowest()+time.Second {
		h.Crashed = max(1, record.Micros(now.Since(p.crashedAt)))
	}
	h.Rest = max(0, record.Micros(p.restsUntil.Since(now)))
	v.tellLimits(p, &h, now)
	return h
}

// slowest is the longest interval of any key.
func (v *Valve) slowest() (longest time.Duration) {
	if v.base.pace != nil {
		longest = v.base.pace.Interval
	}
	for _, l := range v.special {
		if l.pace != nil {
			longest = max(longest, l.pace.Interval)
		}
	}
	return longest
}

// doneJobs lists jobs of a partition whose acknowledgement may not be seen yet, first those whose
// acknowledgement is not confirmed: they will come again for certain.
//
// They are listed because an acknowledgement is confirmed by the consumer, and the stream's leader
// removes the job later, or never if the consumer is deleted first, as it is by the next owner (law
// 3: it would run twice in a handover where nothing crashed).
func (v *Valve) doneJobs(p *Part, now pace.Instant) (done []uint64) {
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
		if p.jobs[f.seq] == nil && now.Since(f.at) <= finishedFor {
			confirmed = append(confirmed, f.seq)
		}
	}
	slices.Sort(confirmed)
	return append(done, slices.Compact(confirmed)...)
}

// runningJobs lists the jobs of a partition that have started and have no recorded outcome yet.
//
// Jobs whose dead letter is being stored are among them if they ran: the next owner would else
// start them. One that never ran can be judged again by anybody, to the same letter.
func (v *Valve) runningJobs(p *Part) []record.Run {
	var running []record.Run
	for _, j := range p.begun {
		if j.stage != stageBurying || j.ran() {
			running = append(running, record.Run{Seq: j.Seq, Holder: cmp.Or(j.holder, v.Self)})
		}
	}
	for seq, in := range p.inherited {
		switch {
		case in.outcome != nil: // from now on it is ours to tell
			running = append(running, record.Run{Seq: seq, Holder: v.Self})
		case in.holder != "" || in.crashed != "": // a crash counts once the job is here
			running = append(running, record.Run{Seq: seq, Holder: cmp.Or(in.holder, in.crashed)})
		}
	}
	slices.SortFunc(running, func(a, b record.Run) int { return cmp.Compare(a.Seq, b.Seq) })
	return running
}
