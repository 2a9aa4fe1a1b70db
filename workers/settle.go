package workers

import (
	"cmp"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// crashed counts that who ran a job crashed, and records it before anything else: a job that has crashed too many is not
// started by the next owner either, should this one crash before it has buried the job and that is known.
func (v *valve) crashed(j *job, holder string) {
	j.crashes++
	j.bucket.part.crashes[j.Seq] = holder
	j.noting, j.holder = true, holder // a successor may find the record or not, and then has to know whose crash it was
	j.bucket.noting++
	j.bucket.part.noting++
	v.save(j, 0)
}

// settle applies the outcome of a running job.
func (v *valve) settle(j *job, o outcome, now instant) {
	b := j.bucket
	b.running--
	local := j.holder == ""
	j.holder = ""
	if j.stage == stageGone {
		switch o.Kind {
		case outcomeReturned:
			b.cameBack()
			b.stalled = true
		case outcomeThrottled: // the target means the bucket, whatever became of the job
			v.throttle(b, o.RetryAfter, now)
		}
		v.place(b, now)
		return
	}
	v.detach(j)
	switch o.Kind {
	case outcomeDone:
		b.lastError = ""
	case outcomeFailed, outcomeThrottled, outcomePermanent:
		b.lastError = o.Error
	}
	if o.Kind == outcomeDone || o.Kind == outcomeThrottled || o.Kind == outcomePermanent || o.Kind == outcomeFailed && !o.Unavailable {
		v.available(j, now)
	}
	retry := v.policy.Retry
	switch o.Kind {
	case outcomeDone:
		b.throttles = 0
		if e, keyed := j.ended(queue.EndDone); keyed {
			v.out.done = append(v.out.done, ending{recordOf: recordOf{b.part, j.Seq}, Ended: e})
		}
		v.ack(j)
	case outcomePermanent:
		if o.Reason == "" { // said by the run that ends now, which is one more
			o.Reason, o.Attempts = ReasonPermanent, j.attempts+1
		}
		j.attempts = max(j.attempts, o.Attempts)
		v.bury(j, o.Reason, o.Error)
	case outcomeFailed:
		j.lastError = o.Error
		if o.Unavailable && !v.unavailable(j, now) {
			v.makeReady(j, now)
			break
		}
		j.attempts = cmp.Or(o.Attempts, j.attempts+1)
		if j.attempts >= retry.MaxAttempts {
			v.bury(j, ReasonAttempts, o.Error)
			break
		}
		v.save(j, jittered(doubled(time.Duration(retry.Backoff), j.attempts-1, time.Duration(retry.MaxBackoff)), v.random()))
	case outcomeThrottled:
		v.throttle(b, o.RetryAfter, now)
		v.makeReady(j, now)
	case outcomeUncounted:
		v.makeReady(j, now)
	case outcomeReturned:
		if local {
			b.cameBack()
			b.stalled = true
			if b.pace != nil {
				b.pace.spare(&b.clock, j.Cost)
			}
			if v.total != nil {
				v.total.spare(&v.totalClock, j.Cost)
			}
		}
		v.makeReady(j, now)
	}
	v.place(b, now)
}

// throttle pauses a bucket because its target asked for it, or for the policy's backoff, doubled for each pause in a row.
func (v *valve) throttle(b *bucket, wait time.Duration, now instant) {
	retry := v.policy.Retry
	if now >= b.cool { // answers to jobs that were under way when a pause began do not make another
		b.throttles++
	}
	if wait <= 0 {
		wait = doubled(time.Duration(retry.Backoff), b.throttles-1, time.Duration(retry.MaxCooldown))
	}
	b.cool = max(b.cool, now.add(min(wait, time.Duration(retry.MaxCooldown))))
}

// doubled is d·2^n, at most limit.
func doubled(d time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}

// jittered is between half of d and d, by a draw in [0, 1): jobs that failed together come back apart, and none at once.
func jittered(d time.Duration, draw float64) time.Duration {
	return d/2 + time.Duration(draw*float64(d-d/2))
}

// save records a counted attempt or crash; the job backs off once saved confirms it.
func (v *valve) save(j *job, backoff time.Duration) {
	j.enter(stageSaving)
	j.backoff, j.recorded = backoff, true
	p := j.bucket.part
	v.out.saves = append(v.out.saves, save{j, attemptRecord{
		V: version, Attempts: j.attempts, DueIn: micros(backoff), LastError: j.lastError, Crashes: j.crashes,
		Stream: p.stream(), Epoch: p.epoch, CrashedBy: p.crashes[j.Seq],
	}, p.records[j.Seq]})
}

// saved lets a job go on whose attempt record is stored.
func (v *valve) saved(j *job, now instant) {
	if j.bucket.part.state > partitionLive || j.stage != stageSaving {
		return
	}
	if j.noting {
		j.noting, j.holder = false, ""
		j.bucket.noting--
		j.bucket.part.noting--
	}
	switch {
	case j.crashes >= mostCrashes:
		v.buryCrashed(j)
		v.place(j.bucket, now)
	case j.backoff > 0:
		v.delay(j, now.add(j.backoff))
	default:
		v.makeReady(j, now)
	}
}

func (v *valve) buryCrashed(j *job) {
	v.bury(j, ReasonCrashed, "its drainer crashed while it ran, as often as this may happen")
}

func (v *valve) bury(j *job, reason Reason, detail string) {
	j.enter(stageBurying)
	j.lastError, j.reason = detail, reason
	v.out.burials = append(v.out.burials, burial{j, reason, detail})
}

// buried is called when a job's dead letter is stored.
func (v *valve) buried(j *job) {
	if j.bucket.part.state <= partitionLive && j.stage == stageBurying {
		v.ack(j)
	}
}

func (v *valve) ack(j *job) {
	j.enter(stageAcking)
	j.Body, j.Header = nil, nil
	v.out.acks = append(v.out.acks, recordOf{j.bucket.part, j.Seq})
}

// confirmed is called when the server has confirmed an acknowledgement: the job's place is free.
func (v *valve) confirmed(p *partition, seq uint64, now instant) {
	p.finish(seq, now)
	if p.sweeping && p.finished != nil {
		p.finished[seq] = struct{}{} // its delivery by the backlog that was just opened may still be on the way
	}
	if j := p.jobs[seq]; j != nil && j.stage == stageAcking {
		v.remove(j, now)
	}
}

func (v *valve) remove(j *job, now instant) {
	b := j.bucket
	delete(b.part.jobs, j.Seq)
	delete(b.part.begun, j.Seq)
	delete(b.part.crashes, j.Seq)
	b.held--
	if j.recorded {
		v.out.forgets = append(v.out.forgets, forgotten{recordOf{b.part, j.Seq}, b.part.records[j.Seq]})
		delete(b.part.records, j.Seq)
	}
	if b.held == 0 {
		v.place(b, now)
	}
}
