package valve

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
func (v *Valve) crashed(j *heldJob, holder string) {
	j.crashes++
	j.Bucket.Part.crashes[j.Seq] = holder
	// a successor may find the record or not, and then has to know whose crash it was
	j.noting, j.holder = true, holder
	j.Bucket.own().noting++
	j.Bucket.Part.noting++
	v.recordFailure(j, 0)
}

// Finished takes the outcome of a run that a worker had. The worker is free whatever became of the
// partition. Only then is it asked whose the outcome is: this process's, its successor's, or
// nobody's.
func (v *Valve) Finished(number uint64, o record.Outcome, now pace.Instant) {
	r, known := v.runs[number]
	if !known {
		return
	}
	delete(v.runs, number)
	if r.remote {
		v.claims.running--
	} else {
		v.Busy--
	}
	switch p := r.Bucket.Part; p.state {
	case partitionOpening, partitionLive:
		p.Changed = true
		v.settle(r.heldJob, o, now)
	case partitionSurrendered:
		if r.stage == stageGone {
			return // with its stream: the successor has other jobs under these sequences
		}
		if o.Kind == record.OutcomeFailed {
			o.Attempts = r.attempt
		}
		o.Holder, o.Stream = p.holder, p.Stream()
		v.passOn(p, o)
	}
}

// Progress is what the new owner of a partition is told of a run that this process still watches
// over, and that goes on.
func (v *Valve) Progress(r Run) (goesOn record.Report, handedOver bool) {
	j := v.runs[r.Number].heldJob
	if j == nil {
		return goesOn, false
	}
	p := j.Bucket.Part
	goesOn = record.Report{Policy: p.Policy, Partition: p.Number,
		Outcome: record.Outcome{Seq: r.Seq, Kind: record.OutcomeProgress, Stream: p.Stream()}}
	return goesOn, p.state == partitionSurrendered && j.stage != stageGone
}

// settle applies the outcome of a running job.
//
// Only OutcomeFailed and OutcomePermanent count an attempt. What the job cannot help does not: a
// target that asks for a pause or is down, a worker that went away, a check that did not pass (law
// 6).
func (v *Valve) settle(j *heldJob, o record.Outcome, now pace.Instant) {
	b := j.Bucket
	b.running--
	local := j.holder == ""
	j.holder = ""
	v.account(j, o, local, now)
	if o.Kind != record.OutcomeThrottled {
		v.coolDown(b, o.RetryAfter, now)
	}
	if j.stage == stageGone {
		switch o.Kind {
		case record.OutcomeReturned:
			b.cameBack()
			b.own().stalled = true
		case record.OutcomeThrottled: // the target means the bucket, whatever became of the job
			v.throttle(j, o.RetryAfter, local, now)
		}
		v.place(b, now)
		return
	}
	v.detach(j)
	switch o.Kind {
	case record.OutcomeDone:
		b.own().lastError = ""
	case record.OutcomeFailed, record.OutcomeThrottled, record.OutcomePermanent:
		b.own().lastError = o.Error
	}
	// Whoever says no is up.
	switch o.Kind {
	case record.OutcomeDone, record.OutcomeThrottled, record.OutcomePermanent:
		v.available(j, now)
	case record.OutcomeFailed:
		if !o.Unavailable {
			v.available(j, now)
		}
	}
	retry := v.Policy.Retry
	switch o.Kind {
	case record.OutcomeDone:
		b.own().throttles = 0
		if e, keyed := j.ended(job.EndDone); keyed {
			v.out.Done = append(v.out.Done, Ending{Ref: j.ref(), Ended: e})
		}
		v.ack(j)
	case record.OutcomePermanent:
		if o.Reason == "" { // said by the run that ends now, which is one more
			o.Reason, o.Attempts = job.ReasonPermanent, j.Attempts+1
		}
		j.Attempts = max(j.Attempts, o.Attempts)
		v.bury(j, o.Reason, o.Error)
	case record.OutcomeFailed:
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
	case record.OutcomeThrottled:
		v.throttle(j, o.RetryAfter, local, now)
		v.makeReady(j, now)
	case record.OutcomeUncounted:
		v.makeReady(j, now)
	case record.OutcomeReturned:
		if local {
			b.cameBack()
			b.own().stalled = true
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
func (v *Valve) throttle(j *heldJob, wait time.Duration, local bool, now pace.Instant) {
	b, retry := j.Bucket, v.Policy.Retry
	if now >= b.cool { // answers to jobs that were under way when a pause began do not make another
		b.own().throttles++
	}
	if wait <= 0 {
		wait = pace.Doubled(time.Duration(retry.Backoff), b.throttles-1,
			time.Duration(retry.MaxCooldown))
	}
	v.coolDown(b, wait, now)
	began := j.began
	if !local {
		began = 0
	}
	v.learn(b, j, began, now)
}

// coolDown has a bucket start nothing for a while: because its target throttles, or before it has
// to, when an answer says that nothing is left.
func (v *Valve) coolDown(b *bucket, wait time.Duration, now pace.Instant) {
	if wait > 0 {
		b.cool = max(b.cool, now.Add(min(wait, time.Duration(v.Policy.Retry.MaxCooldown))))
	}
}

// recordFailure records a counted attempt or crash; the job backs off once saved confirms it.
//
// It is written first: if the owner crashed during the backoff, the next one would not know of the
// attempt, and a job that always fails would outlive any number of attempts.
func (v *Valve) recordFailure(j *heldJob, backoff time.Duration) {
	j.enter(stageSaving)
	j.backoff, j.recorded = backoff, true
	p := j.Bucket.Part
	v.out.Saves = append(v.out.Saves, Save{j.ref(), record.Attempt{
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

// Written takes that the write of an attempt record is at its end.
func (v *Valve) Written(p *Part, s *Save, now pace.Instant) {
	p.records[s.Seq] = s.Revision
	if j := p.Held(s.Ref); j != nil {
		j.Attempts = max(j.Attempts, s.Record.Attempts)
		j.crashes = max(j.crashes, s.Record.Crashes)
		v.saved(j, now)
	}
}

// saved lets a job go on whose attempt record is stored.
func (v *Valve) saved(j *heldJob, now pace.Instant) {
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

// Met takes what stands where a write of a save conflicted (nil: nothing), and reports whether that
// is the end of it: because it is this very write, whose answer was lost; because the job is
// finished; or because an owner of a later epoch has written, so that this process owns the job no
// more. (Should epochs have gone back, as in a table that was restored, the job goes on without a
// record.) Otherwise an earlier owner wrote after its successor had read: what it counted counts,
// and is replaced.
//
// For attempt records are written by compare-and-set. A process that was declared dead and goes on
// may still have a write under way, and so may one whose call was given up: neither takes back what
// a later owner has counted.
func (s *Save) Met(found []byte, revision uint64) (end bool) {
	if found == nil {
		s.Revision = 0 // the oldest records go when there are too many of them
		return revision > 0
	}
	var r record.Attempt
	err := record.Decode(found, &r)
	if err == nil && r.Epoch > s.Record.Epoch {
		return true
	}
	s.Revision = revision
	if errors.Is(err, record.ErrVersion) || bytes.Equal(found, record.Encode(s.Record)) {
		return true
	}
	if r.Stream == s.Record.Stream {
		s.Record.Attempts, s.Record.Crashes = max(s.Record.Attempts,
			r.Attempts), max(s.Record.Crashes, r.Crashes)
	}
	return false
}

func (v *Valve) buryCrashed(j *heldJob) {
	v.bury(j, job.ReasonCrashed, "its drainer crashed while it ran, as often as this may happen")
}

// bury has a job's dead letter stored, and only then acknowledges it: in the other order a crash in
// between would lose it (law 3). Twice stored is no harm, since letters have message ids.
func (v *Valve) bury(j *heldJob, reason job.Reason, detail string) {
	j.enter(stageBurying)
	j.LastError, j.reason = detail, reason
	v.out.Burials = append(v.out.Burials, Burial{Ref: j.ref(), Stored: j.Stored, Header: j.Header,
		Body: j.Body, Lean: j.Lean, Headless: j.headless, Attempts: j.Attempts, Reason: reason,
		Detail: detail})
}

// Buried is called when a job's dead letter is stored.
func (v *Valve) Buried(j *heldJob) {
	if j != nil && j.stage == stageBurying {
		v.ack(j)
	}
}

// ack asks for a job's acknowledgement. The job is kept until that is confirmed, for it holds its
// place in the stream, and may be delivered again, until then. Its body is not wanted any more.
func (v *Valve) ack(j *heldJob) {
	j.enter(stageAcking)
	j.Body, j.Header = nil, nil
	v.out.Acks = append(v.out.Acks, j.ref())
}

// Confirmed is called when the server has confirmed an acknowledgement: the job's place is free.
//
// What was confirmed is remembered for a while: the stream's leader may not have heard of it.
func (v *Valve) Confirmed(p *Part, seq uint64, now pace.Instant) {
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

func (v *Valve) remove(j *heldJob, now pace.Instant) {
	b := j.Bucket
	v.unweigh(j)
	j.enter(stageGone)
	delete(b.Part.jobs, j.Seq)
	delete(b.Part.crashes, j.Seq)
	delete(b.Part.edits.jobs, j.Seq)
	b.held--
	if j.recorded {
		v.out.Forgets = append(v.out.Forgets,
			Forgotten{j.ref(), b.Part.records[j.Seq]})
		delete(b.Part.records, j.Seq)
	}
	if b.held == 0 {
		v.place(b, now)
	}
}

// ended is how a job ends, if it has an Idempotency-Key. The sum is the admitter's.
func (j *heldJob) ended(how job.End) (e job.Ended, keyed bool) {
	if j.headless {
		return job.Ended{How: how, Accepted: j.Stored}, j.keyed
	}
	if job.HeaderValue(j.Header, job.HeaderIdempotencyKey) == "" {
		return e, false
	}
	return job.Ended{How: how, Accepted: j.Stored,
		Sum: job.HeaderValue(j.Header, job.HeaderSum)}, true
}
