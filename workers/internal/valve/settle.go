package valve

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/gates"
	"github.com/penstock-mq/penstock/workers/internal/handle"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// crashed counts a crash of a job's holder. It is recorded first, for the next owner, and later
// jobs wait until the job is back in the queue (law 4).
func (a *Actions) crashed(j *heldJob, holder string) {
	j.crashes++
	j.Bucket.Part.legacy.CrashedBy[j.Seq] = holder
	j.noting, j.holder = true, holder
	j.Bucket.notes(1)
	a.recordFailure(j, 0)
}

// Finished frees a worker, and applies the outcome or passes it to the partition's successor.
func (v *Valve) Finished(number uint64, o record.Outcome, now pace.Instant) {
	r, known := v.Crew.End(number, o.Kind == record.OutcomeReturned)
	if !known {
		return
	}
	j := r.Of
	if j.call != nil {
		v.decided(j, o, now)
		return
	}
	switch p := j.Bucket.Part; p.state {
	case partitionOpening, partitionLive:
		p.Checkpoints.Changed = true
		v.settle(j, o, now)
	case partitionLost:
		v.account(j, o, true, now)
	case partitionSurrendered:
		o.Answered = j.answered()
		v.account(j, o, true, now) // of limits that stay here
		if j.stage == stageGone {
			return // the successor's stream has other jobs under these sequences
		}
		if o.Kind == record.OutcomeFailed {
			o.Attempts = r.Attempt
		}
		p.passOn(o, p.holder)
	}
}

// answered reports whether a limit counts a run from its answer.
func (j *heldJob) answered() bool {
	for c := j.charged; c != nil; c = c.next {
		if c.IsAnswered() {
			return true
		}
	}
	return false
}

// Answered reports that the answer to a run's request had begun by an instant, read after it.
func (v *Valve) Answered(number uint64, at, now pace.Instant) {
	if r, known := v.Crew.Run(number); known {
		v.answer(r.Of, at, now)
	}
}

// Pause begins the pause that a run's outcome will name.
func (v *Valve) Pause(number uint64, wait time.Duration, now pace.Instant) {
	if r, known := v.Crew.Run(number); known && r.Of.Bucket.Part.Live() {
		v.coolDown(r.Of.Bucket, wait, now)
	}
}

// Progress takes a report, or an empty one as a sign of life, and returns a report for a new owner
// of the partition.
func (v *Valve) Progress(r Run, text string) (goesOn record.Report, handedOver bool) {
	run, known := v.Crew.Run(r.Number)
	if !known {
		return goesOn, false
	}
	j := run.Of
	p := j.Bucket.Part
	if text != "" {
		p.progress[r.Seq] = text
	}
	goesOn = record.Report{Policy: p.Policy, Partition: p.Number, Outcome: record.Outcome{
		Seq: r.Seq, Kind: record.OutcomeProgress, Progress: p.progress[r.Seq], Stream: p.Stream()}}
	return goesOn, p.state == partitionSurrendered && j.stage != stageGone
}

// settle applies an outcome. Causes outside of the job count no attempt (law 6).
func (v *Valve) settle(j *heldJob, o record.Outcome, now pace.Instant) {
	b := j.Bucket
	b.runs(-1)
	delete(b.Part.progress, j.Seq)
	if j.call != nil {
		b.callers.Running--
	}
	local := j.holder == ""
	j.holder = ""
	v.account(j, o, local, now)
	if o.Kind != record.OutcomeThrottled {
		v.coolDown(b, o.RetryAfter, now)
	}
	if local && o.Kind == record.OutcomeReturned {
		b.cameBack()
		b.own().stalled = true
	}
	if j.stage == stageGone {
		if o.Kind == record.OutcomeThrottled {
			v.throttle(j, o.RetryAfter, local, now)
		}
		return
	}
	v.stock.detach(j)
	switch o.Kind {
	case record.OutcomeDone, record.OutcomeFailed, record.OutcomeThrottled, record.OutcomePermanent:
		if b.own().lastError = o.Error; o.Kind == record.OutcomeDone {
			b.lastError, b.passed = "", max(b.passed, j.began)
		}
		if o.Kind != record.OutcomeFailed || !o.Unavailable { // a target that rejects a call is up
			v.available(j, now)
		}
	case record.OutcomeUncounted:
		if o.Again > 0 {
			v.available(j, now)
		}
	}
	if j.call != nil && o.Kind != record.OutcomeReturned {
		v.endCall(j, o, now)
		return
	}
	v.conclude(j, o, local, now)
}

// conclude decides what becomes of a stored job that ran, or of a call that came back.
func (v *Valve) conclude(j *heldJob, o record.Outcome, local bool, now pace.Instant) {
	b := j.Bucket
	switch o.Kind {
	case record.OutcomeDone:
		b.own().Throttles = 0
		if e, keyed := j.ended(queue.EndDone); keyed {
			v.out.Done = append(v.out.Done, Ending{Ref: j.ref(), Ended: e})
		}
		v.out.ack(j)
	case record.OutcomePermanent:
		if o.Reason == "" {
			o.Reason, o.Attempts = queue.ReasonPermanent, j.Attempts+1
		}
		j.Attempts = max(j.Attempts, o.Attempts)
		v.out.bury(j, o.Reason, o.Error)
	case record.OutcomeFailed:
		j.LastError = o.Error // also of the breaker
		if o.Unavailable && !v.down(j, gates.MostSuspectJobs, now) {
			v.stock.makeReady(j, now)
			break
		}
		v.failed(j, o)
	case record.OutcomeThrottled:
		if o.Doubtful && j.suspect(now) {
			v.failed(j, o)
			break
		}
		v.throttle(j, o.RetryAfter, local, now)
		v.stock.makeReady(j, now)
	case record.OutcomeUncounted:
		if o.Again > 0 {
			j.snoozes++
			v.out.recordFailure(j, min(o.Again, time.Duration(v.Policy.MaxAge)))
			j.snoozed = true
			break
		}
		if o.Unavailable {
			j.LastError, b.own().lastError = o.Error, o.Error
			v.down(j, 1, now)
		}
		v.stock.makeReady(j, now)
	case record.OutcomeReturned:
		if local {
			b.pace.Spare(&b.clock, j.Cost)
			v.total.Return(j.Cost)
		}
		v.stock.makeReady(j, now)
	}
}

// failed counts an attempt.
func (v *Valve) failed(j *heldJob, o record.Outcome) {
	retry := v.Policy.Retry
	j.LastError = o.Error
	j.Attempts = cmp.Or(o.Attempts, j.Attempts+1)
	if j.Attempts >= job.MaxAttempts(j.Header, retry.MaxAttempts) {
		v.out.bury(j, queue.ReasonAttempts, o.Error)
		return
	}
	backoff := pace.Jittered(pace.Doubled(time.Duration(retry.Backoff), j.Attempts-1,
		time.Duration(retry.MaxBackoff)), v.random())
	v.out.recordFailure(j, max(backoff, min(o.Again, time.Duration(v.Policy.MaxAge))))
}

// mostDoubts is the number of throttles after which a job, not its bucket, is at fault.
const mostDoubts = 3

// suspect reports whether a doubtful throttle counts as an attempt: since others pass, the job
// would otherwise wait for ever. It lets them go first to find out.
func (j *heldJob) suspect(now pace.Instant) bool {
	if j.doubts == 0 || j.Bucket.passed > j.doubted {
		j.alone = min(j.alone+1, mostDoubts)
	}
	j.doubts, j.doubted = min(j.doubts+1, mostDoubts), now
	return j.alone == mostDoubts
}

// throttle pauses a bucket, for the policy's backoff if the target named no time, doubled for each
// consecutive pause.
func (v *Valve) throttle(j *heldJob, wait time.Duration, local bool, now pace.Instant) {
	b, retry := j.Bucket, v.Policy.Retry
	if now >= b.Cool { // answers to earlier jobs start no other
		b.own().Throttles++
	}
	if wait <= 0 {
		wait = pace.Doubled(time.Duration(retry.Backoff), b.Throttles-1,
			time.Duration(retry.MaxCooldown))
	}
	v.coolDown(b, wait, now)
	began := j.began
	if !local {
		began = 0
	}
	if v.learning.learn(b, began, now) {
		v.out.Adapted = append(v.out.Adapted, Adapted{j.ref(), b.pace.Rate.PerSecond()})
	}
}

func (s *settings) coolDown(b *bucket, wait time.Duration, now pace.Instant) {
	if wait > 0 {
		b.own().Cool = max(b.Cool, now.Add(min(wait, time.Duration(s.Policy.Retry.MaxCooldown))))
		b.changed()
	}
}

func (a *Actions) recordFailure(j *heldJob, backoff time.Duration) {
	j.enter(stageSaving)
	j.backoff, j.recorded, j.snoozed = backoff, true, false
	p := j.Bucket.Part
	a.Saves = append(a.Saves, Save{j.ref(), record.Attempt{
		V:         record.Version,
		Attempts:  j.Attempts,
		DueIn:     record.Micros(backoff),
		LastError: j.LastError,
		Crashes:   j.crashes,
		Snoozes:   j.snoozes,
		Stream:    p.Stream(),
		Job:       j.Stored.UnixNano(),
		Epoch:     p.Epoch,
		CrashedBy: p.legacy.CrashedBy[j.Seq],
	}, p.legacy.Revisions[j.Seq]})
}

func (p *Part) Written(s *Save, now pace.Instant) {
	p.legacy.Revisions[s.Seq] = s.Revision
	if j := p.Held(s.Ref); j != nil {
		j.Attempts = max(j.Attempts, s.Record.Attempts)
		j.crashes = max(j.crashes, s.Record.Crashes)
		j.snoozes = max(j.snoozes, s.Record.Snoozes)
		p.v.stock.saved(j, now)
	}
}

// Met handles a conflict of a save with a found record, which may be nil, and reports whether the
// save is over: the record is its own, whose answer was lost, or a later owner's, or the job is
// finished. Otherwise it merges counts.
func (s *Save) Met(found []byte, revision uint64) (end bool) {
	if found == nil {
		s.Revision = 0
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
		s.Record.Attempts = max(s.Record.Attempts, r.Attempts)
		s.Record.Crashes = max(s.Record.Crashes, r.Crashes)
		s.Record.Snoozes = max(s.Record.Snoozes, r.Snoozes)
	}
	return false
}

func (a *Actions) buryCrashed(j *heldJob) {
	a.bury(j, queue.ReasonCrashed, "its drainer crashed too often while running it")
}

// bury stores a dead letter before the acknowledgement (law 3). Its message id makes a second one
// harmless.
func (a *Actions) bury(j *heldJob, reason queue.Reason, detail string) {
	j.enter(stageBurying)
	j.LastError, j.reason = detail, reason
	a.Burials = append(a.Burials, Burial{Ref: j.ref(), Stored: j.Stored, Header: j.Header,
		Body: j.Body, Lean: j.Lean, Headless: j.headless, Attempts: j.Attempts, Reason: reason,
		Detail: detail})
}

// Buried handles a stored dead letter.
func (p *Part) Buried(name handle.Ref) {
	if j := p.Held(name); j != nil && j.stage == stageBurying {
		p.v.out.ack(j)
	}
}

// ack requests an acknowledgement. Until its confirmation the job is kept, without its text,
// because it may be redelivered.
func (a *Actions) ack(j *heldJob) {
	j.enter(stageAcking)
	j.Body, j.Header = nil, nil
	a.Acks = append(a.Acks, j.ref())
}

// Confirmed handles a confirmed acknowledgement, which the stream's leader may not have applied.
func (p *Part) Confirmed(seq uint64, now pace.Instant) {
	j := p.jobs[seq]
	if j == nil || j.stage != stageAcking {
		return
	}
	p.legacy.Finish(seq, j.Stored.UnixNano(), p.sweeping, now)
	p.v.stock.remove(j)
}

func (j *heldJob) ended(how queue.End) (e job.Ended, keyed bool) {
	if j.headless {
		return job.Ended{How: how, Accepted: j.Stored}, j.keyed
	}
	if job.HeaderValue(j.Header, job.HeaderIdempotencyKey) == "" {
		return e, false
	}
	return job.Ended{How: how, Accepted: j.Stored,
		Sum: job.HeaderValue(j.Header, job.HeaderSum)}, true
}
