package valve

import (
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Drop ends a partition that another process took. Later outcomes of its runs have no effect,
// since they are the new owner's to judge.
func (v *Valve) Drop(p *Part) { v.leave(p, partitionLost) }

// Surrender ends a partition in order and returns its next owner's record. Outcomes that are
// still to come, or are not recorded yet, are reported to that owner.
//
// Losing an unrecorded outcome with this owner would drop a counted attempt, or run a job again
// that is due to become a dead letter.
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
			// reported to us, but the job has not arrived here
			o := *in.outcome
			o.Holder, o.Stream = v.Self, p.Stream()
			v.passOn(p, o)
		}
	}
	p.holder = v.Self
	v.leave(p, partitionSurrendered)
	return h
}

// Unreported counts the jobs of a surrendered partition whose outcome we will report to its
// next owner.
//
// The count must match the reports of Surrender and Finished exactly. One too many and this
// process never ends; one too few and it ends before its last report, and that job runs again.
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

// Undecided reports whether jobs are on their way to a worker, or a crash is being recorded;
// neither may be lost.
func (p *Part) Undecided() bool { return p.undecided.any() || p.noting > 0 }

// Quiet reports whether nothing of the partition, and no job of its policy, is in progress
// here.
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

// Quiesce keeps a partition but stops its starts. It still handles outcomes and
// acknowledgements.
func (v *Valve) Quiesce(p *Part) {
	if !p.Quiesced {
		v.leave(p, partitionOpening)
		v.parts[p.Number], p.Quiesced = p, true
	}
}

// report sends a job's outcome to the next owner. It names the run's holder and the stream,
// because another run, or another job under the sequence, may exist by then.
func (v *Valve) report(j *heldJob, o record.Outcome) {
	o.Holder, o.Stream = v.Self, j.Bucket.Part.Stream()
	v.passOn(j.Bucket.Part, o)
}

// passOn sends an outcome to the next owner of a partition.
func (v *Valve) passOn(p *Part, o record.Outcome) {
	v.out.Reports = append(v.out.Reports,
		record.Report{Policy: p.Policy, Partition: p.Number, Outcome: o})
}

// leave removes a partition from all decisions about starts. A quiesced partition keeps its
// buckets' clocks for the handover.
func (v *Valve) leave(p *Part, state partitionState) {
	v.leaveCalls(p)
	p.state = state
	delete(v.parts, p.Number)
	if state != partitionOpening {
		v.bodies -= p.bodies
		v.memory.near -= p.near
		v.memory.deep -= int64(p.deep.Len())
		p.deep.Clear() // running jobs may keep the rest for long
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
