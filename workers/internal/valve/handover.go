package valve

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/quota"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/walk"
)

// Gathering collects the clocks of a partition's buckets in pieces. Clocks read early stay valid:
// they allow no start before the fence, and later starts are in the next checkpoint.
type Gathering struct {
	Of     *Part
	Walk   *walk.Walk[*bucket]
	pieces [][]heldClock
}

type heldClock struct {
	record.Clock
	pace        *pace.Pace
	due, tat    pace.Instant
	next        pace.Instant // earliest start
	cool, probe pace.Instant
	learnt      learnt
	interval    int64 // in µs; 0: unpaced
	units       int64 // of all costs
}

func (p *Part) Gather() *Gathering {
	var all *quota.Limits
	if t := p.v.together; t != nil {
		all = t.Limits
	}
	p.Checkpoints.Begin(p.v.quota, all)
	return &Gathering{Of: p, Walk: p.list.Walk()}
}

// Some reads up to n more buckets, and reports whether those were the last. It omits clocks that
// are irrelevant after an instant: the fence, because no successor comes sooner; or now, for all
// that are not fresh.
func (g *Gathering) Some(n int, now, after pace.Instant) (done bool) {
	piece := make([]heldClock, 0, min(n, g.Walk.Left()))
	done = g.Walk.Some(n, func(b *bucket) {
		b.cooled(now)
		c, matters := b.heldClock(now, after)
		if v := g.Of.v; v.quota != nil {
			c.Used = v.quota.Encode(b.Used, v.wall.reading(now))
			if c.Used != "" {
				c.Units, c.Open = v.quota.Counted(b.Used, v.wall.reading(now))
			}
			for _, n := range c.Units {
				c.units += n
			}
		}
		if matters || c.Used != "" {
			piece = append(piece, c)
		}
	})
	g.pieces = append(g.pieces, piece)
	return done
}

func (b *bucket) heldClock(now, after pace.Instant) (c heldClock, matters bool) {
	c.Key, c.pace = b.queue.Key, b.pace
	if b.Cool > after {
		c.cool, c.Throttles, matters = b.Cool, b.Throttles, true
	}
	if b.Target.Down() {
		c.Down, c.probe, matters = b.Target.Failures, b.Target.At, true
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
		c.Starts = b.rate.Now(b.pace, pace.Few, now)
	}
	return c, matters
}

// Records returns the clocks in order, with durations from now. It reads no changing state.
func (g *Gathering) Records(now pace.Instant, of record.Handover) (clocks []record.Clock) {
	all := slices.Concat(g.pieces...)
	for i := range all {
		c := &all[i]
		if c.cool > 0 {
			c.Cool = max(0, record.Micros(c.cool.Since(now)))
		}
		if c.Down > 0 {
			c.Probe = record.Micros(c.probe.Since(now))
		}
		if l := c.learnt; l.Known() {
			c.Learnt = l.Text(time.Duration(now), l.under.pace.Rate.PerSecond())
		}
		if c.pace != nil {
			// due now, because the next owner must not make up for the gap
			c.Due = record.Micros(max(c.due, now.Add(-c.pace.Credit)).Since(now))
			c.Tat = record.Micros(c.tat.Since(now))
			if own := c.pace.Rate.String(); own != of.Rate {
				c.Rate = own
			}
			if c.pace.Burst != of.Burst {
				c.Burst = c.pace.Burst
			}
			c.interval = record.Micros(c.pace.Interval)
			c.Wait = max(0, record.Micros(c.next.Since(now)))
		}
	}
	slices.SortFunc(all, compareClocks)
	for _, c := range all {
		clocks = append(clocks, c.Clock)
	}
	return clocks
}

// compareClocks orders clocks by the cost of omitting them: those with open units and longest waits
// first, then those with most units, then soonest due.
func compareClocks(a, b heldClock) int {
	switch {
	case a.Open && !b.Open:
		return -1
	case b.Open && !a.Open:
		return 1
	}
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
	return cmp.Or(cmp.Compare(b.units, a.units), cmp.Compare(waitA, waitB),
		cmp.Compare(a.Key, b.Key))
}

// Handover returns a record for a successor.
func (p *Part) Handover(now pace.Instant) record.Handover {
	g := p.Gather()
	g.Some(p.list.Len(), now, now)
	h := p.HandoverBut(now)
	h.Clocks = append(h.Clocks, g.Records(now, h)...)
	h.Done = p.doneJobs(now)
	return h
}

// HandoverBut is Handover without the buckets' clocks. It reports a crash while it may affect an
// unlisted bucket.
func (p *Part) HandoverBut(now pace.Instant) record.Handover {
	h := record.Handover{Rate: p.v.Policy.Outflow.String(), Burst: max(p.v.Policy.Burst, 1),
		Total: p.v.Policy.OutflowTotal.String()}
	if t := &p.v.total; t.Pace != nil {
		h.Clocks = append(h.Clocks, record.Clock{
			Due:  record.Micros(max(t.Clock.Due, now).Since(now)),
			Tat:  record.Micros(t.Clock.TAT().Since(now)),
			Wait: record.Micros(t.Next().Until.Since(now)),
		})
	}
	h.Running, h.Stream, h.Last = p.runningJobs(), p.Stream(), max(p.highest, p.last)
	h.Through, h.Edits = p.legacy.Through(p.newest, p.sweeping), p.edits.Records()
	h.Ended, h.Calls = p.calls.Tell()
	h.Crashed, h.Rest = p.legacy.Tell(p.v.slowest(), now)
	p.tellLimits(&h, now)
	return h
}

func (s *settings) slowest() (longest time.Duration) {
	if s.base.pace != nil {
		longest = s.base.pace.Interval
	}
	for key := range s.overrides {
		if l := s.limitsOf(key); l.pace != nil {
			longest = max(longest, l.pace.Interval)
		}
	}
	return longest
}

// doneJobs lists jobs whose acknowledgement may not be applied: first unconfirmed ones, which will
// be redelivered; then confirmed ones, which the stream may lose if the consumer is deleted.
func (p *Part) doneJobs(now pace.Instant) (done []uint64) {
	for seq, j := range p.jobs {
		if j.stage == stageAcking {
			done = append(done, seq)
		}
	}
	slices.Sort(done)
	held := func(seq uint64) bool { return p.jobs[seq] != nil }
	return append(done, slices.DeleteFunc(p.legacy.Confirmed(now), held)...)
}

// runningJobs lists started jobs without a recorded outcome.
func (p *Part) runningJobs() []record.Run {
	running := p.legacy.Running(p.v.Self)
	for _, j := range p.begun {
		if j.stage != stageBurying || j.ran() {
			running = append(running, record.Run{Seq: j.Seq, Holder: cmp.Or(j.holder, p.v.Self)})
		}
	}
	slices.SortFunc(running, func(a, b record.Run) int { return cmp.Compare(a.Seq, b.Seq) })
	return running
}
