package valve

import (
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Drop ends a partition that another process took.
//
// What runs of it is another's to judge: outcomes that come from now on have no effect.
func (v *Valve) Drop(p *Part) { v.leave(p, partitionLost) }

// Surrender ends a partition in order and returns what its next owner needs. Outcomes that are
// still to come, or that came but are not recorded yet, are reported to that owner.
//
// An outcome that is not recorded anywhere must not be lost with this owner: a failure would cost
// no attempt, and a dead letter would be a run more.
func (v *Valve) Surrender(p *Part, now pace.Instant) record.Handover {
	h := v.Handover(p, now, 0)
	for _, j := range p.jobs {
		switch {
		case j.stage == stageSaving:
			v.report(j, record.Outcome{
				Seq: j.Seq, Kind: record.OutcomeFailed, Error: j.LastError, Attempts: j.Attempts,
			})
		case j.stage == stageBurying && j.ran():
			v.report(j, record.Outcome{
				Seq: j.Seq, Kind: record.OutcomePermanent, Error: j.LastError, Reason: j.reason,
				Attempts: j.Attempts,
			})
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(p.inherited)) {
		if in := p.inherited[seq]; in.outcome != nil {
			// it was told to us, but the job has not arrived here
			o := *in.outcome
			o.Holder, o.Stream = v.Self, p.Stream()
			v.passOn(p, o)
		}
	}
	p.holder = v.Self
	v.leave(p, partitionSurrendered)
	return h
}

// Unreported counts the jobs of a surrendered partition whose outcome its next owner will hear from
// us.
//
// They must be those that Surrender and Finished report, one for one: with one too many this
// process never ends, with one too few it is gone before its heir has heard of the last outcome,
// and that job runs again.
func (p *Part) Unreported() (n int) {
	for _, j := range p.jobs {
		if j.stage == stageSaving || j.stage == stageBurying && j.ran() ||
			j.stage == stageRunning && j.holder == "" {
			n++
		}
	}
	for _, in := range p.inherited {
		if in.outcome != nil {
			n++
		}
	}
	return n
}

// undecidedStill reports whether jobs are on their way to a worker, or the record of a crash is,
// which must not get lost.
func (p *Part) Undecided() bool { return p.undecided.any() || p.noting > 0 }

// Quiet reports whether nothing of a partition is under way here, nor of others of its policy.
func (v *Valve) Quiet(p *Part) bool {
	if v.Busy+v.claims.running > 0 {
		return false
	}
	for _, j := range p.jobs {
		if j.stage >= stageSaving || j.stage == stageRunning && j.holder == "" {
			return false
		}
	}
	return true
}

// Quiesce keeps a partition but starts nothing of it any more.
//
// It still hears outcomes and confirms acknowledgements: only what waits stands still.
func (v *Valve) Quiesce(p *Part) {
	if !p.Quiesced {
		v.leave(p, partitionOpening)
		v.parts[p.Number], p.Quiesced = p, true
	}
}

// report has an outcome told to the next owner. It says whose run it was and of which stream, since
// by then another run of the job may be under way, or another job under its sequence.
func (v *Valve) report(j *heldJob, o record.Outcome) {
	o.Holder, o.Stream = v.Self, j.Bucket.Part.Stream()
	v.passOn(j.Bucket.Part, o)
}

// passOn has the next owner of a partition told an outcome.
func (v *Valve) passOn(p *Part, o record.Outcome) {
	v.out.Reports = append(v.out.Reports,
		record.Report{Policy: p.Policy, Partition: p.Number, Outcome: o})
}

// leave takes a partition out of all that decides about starts. Its buckets keep their clocks when
// it is only quiesced, for the handover is still to be collected.
func (v *Valve) leave(p *Part, state partitionState) {
	p.state = state
	delete(v.parts, p.Number)
	if state != partitionOpening {
		v.bodies -= p.bodies
		v.memory.near -= p.near
		v.memory.deep -= int64(p.deep.Len())
		p.deep.Clear() // what still runs may keep the rest for long
		for _, b := range p.buckets {
			if b.down() {
				v.broken--
				b.target = nil
			}
			v.remember(b, nil)
		}
	}
	for _, b := range p.buckets {
		v.noteHeld(b, "")
	}
	v.sched.Retain(func(b scheduledBucket) bool { return b.Part != p })
	v.due.Retain(func(b dueBucket) bool { return b.Part != p })
	v.unread.Retain(func(b dueBucket) bool { return b.Part != p })
	v.timers.Retain(func(j timedJob) bool { return j.Bucket.Part != p })
}
