package core

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// crashed counts that who ran a job crashed, and records it before anything else: a job that has
// crashed too many is not started by the next owner either, should this one crash before it has
// buried the job and that is known.
//
// Nothing behind it in its bucket starts meanwhile, since it goes back to its place (law 4).
func (v *valve) crashed(j *heldJob, holder string) {
	j.crashes++
	j.Bucket.Part.crashes[j.Seq] = holder
	// a successor may find the record or not, and then has to know whose crash it was
	j.noting, j.holder = true, holder
	j.Bucket.noting++
	j.Bucket.Part.noting++
	v.recordFailure(j, 0)
}

// finished takes the outcome of a run that a worker had. The worker is free whatever became of the
// partition. Only then is it asked whose the outcome is: this process's, its successor's, or
// nobody's.
func (v *valve) finished(number uint64, o Outcome, now pace.Instant) {
	r, known := v.runs[number]
	if !known {
		return
	}
	delete(v.runs, number)
	if r.remote {
		v.claims.running--
	} else {
		v.busy--
	}
	switch p := r.Bucket.Part; p.state {
	case partitionOpening, partitionLive:
		p.checkpointed.changed = true
		v.settle(r.heldJob, o, now)
	case partitionSurrendered:
		if r.stage == stageGone {
			return // with its stream: the successor has other jobs under these sequences
		}
		if o.Kind == OutcomeFailed {
			o.Attempts = r.attempt
		}
		o.Holder, o.Stream = p.holder, p.Stream()
		v.out.reports = append(v.out.reports, Report{p.Policy, p.Number, o})
	}
}

// settle applies the outcome of a running job.
//
// Only OutcomeFailed and OutcomePermanent count an attempt. What the job cannot help does not: a
// target that asks for a pause or is down, a worker that went away, a check that did not pass (law
// 6).
func (v *valve) settle(j *heldJob, o Outcome, now pace.Instant) {
	b := j.Bucket
	b.running--
	local := j.holder == ""
	j.holder = ""
	if j.stage == stageGone {
		switch o.Kind {
		case OutcomeReturned:
			b.cameBack()
			b.stalled = true
		case OutcomeThrottled: // the target means the bucket, whatever became of the job
			v.throttle(b, o.RetryAfter, now)
		}
		v.place(b, now)
		return
	}
	v.detach(j)
	switch o.Kind {
	case OutcomeDone:
		b.lastError = ""
	case OutcomeFailed, OutcomeThrottled, OutcomePermanent:
		b.lastError = o.Error
	}
	// Whoever says no is up.
	if o.Kind == OutcomeDone || o.Kind == OutcomeThrottled || o.Kind == OutcomePermanent ||
		o.Kind == OutcomeFailed && !o.Unavailable {
		v.available(j, now)
	}
	retry := v.Policy.Retry
	switch o.Kind {
	case OutcomeDone:
		b.throttles = 0
		if e, keyed := j.ended(job.EndDone); keyed {
			v.out.done = append(v.out.done, Ending{Ref: j.ref(), Ended: e})
		}
		v.ack(j)
	case OutcomePermanent:
		if o.Reason == "" { // said by the run that ends now, which is one more
			o.Reason, o.Attempts = job.ReasonPermanent, j.Attempts+1
		}
		j.Attempts = max(j.Attempts, o.Attempts)
		v.bury(j, o.Reason, o.Error)
	case OutcomeFailed:
		j.LastError = o.Error
		if o.Unavailable && !v.unavailable(j, now) {
			v.makeReady(j, now)
			break
		}
		j.Attempts = cmp.Or(o.Attempts, j.Attempts+1)
		if j.Attempts >= retry.MaxAttempts {
			v.bury(j, job.ReasonAttempts, o.Error)
			break
		}
		v.recordFailure(j,
			pace.Jittered(pace.Doubled(time.Duration(retry.Backoff), j.Attempts-1,
				time.Duration(retry.MaxBackoff)), v.random()))
	case OutcomeThrottled:
		v.throttle(b, o.RetryAfter, now)
		v.makeReady(j, now)
	case OutcomeUncounted:
		v.makeReady(j, now)
	case OutcomeReturned:
		if local {
			b.cameBack()
			b.stalled = true
			if b.pace != nil {
				b.pace.Spare(&b.clock, j.Cost)
			}
			if v.total != nil {
				v.total.Spare(&v.totalClock, j.Cost)
			}
		}
		v.makeReady(j, now)
	}
	v.place(b, now)
}

// throttle pauses a bucket because its target asked for it, or for the policy's backoff, doubled
// for each pause in a row.
//
// The bucket waits and not the job: a 429 is about all that the target gets for this key, and the
// job that met it is as good as any other.
func (v *valve) throttle(b *bucket, wait time.Duration, now pace.Instant) {
	retry := v.Policy.Retry
	if now >= b.cool { // answers to jobs that were under way when a pause began do not make another
		b.throttles++
	}
	if wait <= 0 {
		wait = pace.Doubled(time.Duration(retry.Backoff), b.throttles-1,
			time.Duration(retry.MaxCooldown))
	}
	b.cool = max(b.cool, now.Add(min(wait, time.Duration(retry.MaxCooldown))))
}

// recordFailure records a counted attempt or crash; the job backs off once saved confirms it.
//
// It is written first: if the owner crashed during the backoff, the next one would not know of the
// attempt, and a job that always fails would outlive any number of attempts.
func (v *valve) recordFailure(j *heldJob, backoff time.Duration) {
	j.enter(stageSaving)
	j.backoff, j.recorded = backoff, true
	p := j.Bucket.Part
	v.out.saves = append(v.out.saves, Save{j.ref(), record.Attempt{
		V:         record.Version,
		Attempts:  j.Attempts,
		DueIn:     record.Micros(backoff),
		LastError: j.LastError,
		Crashes:   j.crashes,
		Stream:    p.Stream(),
		Job:       j.Stored.UnixNano(),
		Epoch:     p.Epoch,
		CrashedBy: p.crashes[j.Seq],
	}, p.records[j.Seq]})
}

// saved lets a job go on whose attempt record is stored.
func (v *valve) saved(j *heldJob, now pace.Instant) {
	if j.stage != stageSaving {
		return
	}
	if j.noting {
		j.noting, j.holder = false, ""
		j.Bucket.noting--
		j.Bucket.Part.noting--
	}
	switch {
	case j.crashes >= MostCrashes:
		v.buryCrashed(j)
		v.place(j.Bucket, now)
	case j.backoff > 0:
		v.delay(j, now.Add(j.backoff))
	default:
		v.makeReady(j, now)
	}
}

// Met takes what stands where a write of a save conflicted, and reports whether that is the end of
// it: because it is this very write, whose answer was lost; because the job is finished; or because
// an owner of a later epoch has written, so that this process owns the job no more. (Should epochs
// have gone back, as in a table that was restored, the job goes on without a record.) Otherwise an
// earlier owner wrote after its successor had read: what it counted counts, and is replaced.
//
// For attempt records are written by compare-and-set. A process that was declared dead and goes on
// may still have a write under way, and so may one whose call was given up: neither takes back what
// a later owner has counted.
func (s *Save) Met(found Record) (end bool) {
	if !found.Exists {
		s.Revision = 0 // the oldest records go when there are too many of them
		return found.Revision > 0
	}
	var r record.Attempt
	err := record.Decode(found.Value, &r)
	if err == nil && r.Epoch > s.Record.Epoch {
		return true
	}
	s.Revision = found.Revision
	if errors.Is(err, record.ErrVersion) || bytes.Equal(found.Value, record.Encode(s.Record)) {
		return true
	}
	if r.Stream == s.Record.Stream {
		s.Record.Attempts, s.Record.Crashes = max(s.Record.Attempts,
			r.Attempts), max(s.Record.Crashes, r.Crashes)
	}
	return false
}

func (e Saved) apply(c *Core, now pace.Instant) {
	if p := c.part(e.Part); p != nil {
		p.records[e.Seq] = e.Revision
	}
	if v, j := c.held(e.Ref); j != nil {
		j.Attempts = max(j.Attempts, e.Record.Attempts)
		j.crashes = max(j.crashes, e.Record.Crashes)
		v.saved(j, now)
	}
}

func (v *valve) buryCrashed(j *heldJob) {
	v.bury(j, job.ReasonCrashed, "its drainer crashed while it ran, as often as this may happen")
}

// bury has a job's dead letter stored, and only then acknowledges it: in the other order a crash in
// between would lose it (law 3). Twice stored is no harm, since letters have message ids.
func (v *valve) bury(j *heldJob, reason job.Reason, detail string) {
	j.enter(stageBurying)
	j.LastError, j.reason = detail, reason
	v.out.burials = append(v.out.burials, Burial{Ref: j.ref(), Stored: j.Stored, Header: j.Header,
		Body: j.Body, Lean: j.Lean, Attempts: j.Attempts, Reason: reason, Detail: detail})
}

func (e Buried) apply(c *Core, _ pace.Instant) {
	if v, j := c.held(e.Ref); j != nil {
		v.buried(j)
	}
}

// buried is called when a job's dead letter is stored.
func (v *valve) buried(j *heldJob) {
	if j.stage == stageBurying {
		v.ack(j)
	}
}

// ack asks for a job's acknowledgement. The job is kept until that is confirmed, for it holds its
// place in the stream, and may be delivered again, until then. Its body is not wanted any more.
func (v *valve) ack(j *heldJob) {
	j.enter(stageAcking)
	j.Body, j.Header = nil, nil
	v.out.acks = append(v.out.acks, j.ref())
}

// confirmed is called when the server has confirmed an acknowledgement: the job's place is free.
//
// What was confirmed is remembered for a while: the stream's leader may not have heard of it.
func (v *valve) confirmed(p *partition, seq uint64, now pace.Instant) {
	j := p.jobs[seq]
	if j == nil || j.stage != stageAcking {
		return
	}
	stored := j.Stored.UnixNano()
	p.finish(seq, stored, now)
	if p.sweeping && p.finished != nil {
		// its delivery by the backlog that was just opened may still be on the way
		p.finished[seq] = stored
	}
	v.remove(j, now)
}

func (v *valve) remove(j *heldJob, now pace.Instant) {
	b := j.Bucket
	delete(b.Part.jobs, j.Seq)
	delete(b.Part.begun, j.Seq)
	delete(b.Part.crashes, j.Seq)
	b.held--
	if j.recorded {
		v.out.forgets = append(v.out.forgets,
			Forgotten{j.ref(), b.Part.records[j.Seq]})
		delete(b.Part.records, j.Seq)
	}
	if b.held == 0 {
		v.place(b, now)
	}
}
