package valve

import (
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/claimant"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// stock keeps the jobs that do not run: in order, delayed, or deep, with as much of their texts as
// memory allows, until they leave their bucket. It knows nothing of limits, workers or targets.
type stock struct {
	settings *settings
	agenda   *agenda
	texts    *texts
	wall     wallClock
	out      *Actions
}

// add keeps a job that arrives, as an operator's edit wants it.
func (s *stock) add(b *bucket, a *job.Arrived, edit record.Edit, now pace.Instant) *heldJob {
	j := newJob(b)
	j.Arrived, j.Front, j.generation = *a, edit.Front, b.Part.generation
	j.Key = b.queue.Key
	apply(&j.Arrived, edit)
	s.date(j, now)
	b.queue.Arrive(&j.Job)
	b.Part.jobs[a.Seq] = j
	s.texts.weigh(j)
	b.held++
	return j
}

func (s *stock) date(j *heldJob, now pace.Instant) {
	j.expires = s.wall.instant(s.settings.expiry(j), now)
}

func (s *stock) makeReady(j *heldJob, now pace.Instant) {
	if j.call != nil {
		j.stage = stageWaiting
		calls := &j.Bucket.Part.calls
		calls.Take(j.call, claimant.Return, min(j.call.Ends, now.Add(callSilence)))
		return
	}
	b := j.Bucket
	j.enter(stageWaiting)
	if j.Body != nil && j.Size > leanSize {
		if b.queue.Near() > 0 || s.texts.bytes >= s.texts.memory.bodies() {
			j.Body, j.Lean = nil, true
		} else {
			s.texts.keep(j)
		}
	}
	s.enqueue(j)
}

func (s *stock) enqueue(j *heldJob) {
	j.Behind = j.behind()
	b := j.Bucket
	b.own()
	if b.queue.Push(&j.Job) || b.spot == spotNone {
		b.changed()
	}
	s.agenda.lookAt(j, j.expires)
}

// delay defers a job, without a large body.
func (s *stock) delay(j *heldJob, until pace.Instant) {
	j.enter(stageDelayed)
	if j.Size > leanSize {
		j.Body, j.Lean = nil, true
	}
	s.agenda.lookAt(j, min(until, j.expires))
	j.Bucket.own()
	j.Bucket.queue.Delay(&j.Job)
}

func (s *stock) detach(j *heldJob) {
	j.Bucket.changed()
	s.texts.free(j)
	s.agenda.lookAway(j)
	if j.call != nil {
		if j.Bucket.callers.Chosen == j.call {
			j.Bucket.unchoose()
		}
		return
	}
	j.Bucket.queue.Remove(&j.Job)
}

// dismiss drops a job that does not run.
func (s *stock) dismiss(j *heldJob, how queue.End) (removed int) {
	if j.stage != stageWaiting && j.stage != stageDelayed {
		return 0
	}
	s.detach(j)
	s.out.Cancelled = append(s.out.Cancelled, Seen{Ref: j.ref(), Header: j.Header})
	if e, keyed := j.ended(how); keyed {
		j.enter(stageAcking)
		s.out.Endings = append(s.out.Endings, Ending{Ref: j.ref(), Ended: e, Headless: j.headless})
	} else {
		s.out.ack(j)
	}
	return 1
}

func (s *stock) purge(jobs []*heldJob) (removed int) {
	for _, j := range jobs {
		removed += s.dismiss(j, queue.EndPurged)
	}
	return removed
}

// dropCall drops a call, which is stored nowhere.
func (s *stock) dropCall(j *heldJob) {
	s.detach(j)
	j.Bucket.Part.calls.Drop(j.call)
	s.texts.memory.calls--
	j.stage = stageGone
}

// lose drops a job that left the stream, or that another client removed. A local run holds
// concurrency until it ends; a remote one will never report.
func (s *stock) lose(j *heldJob) {
	s.detach(j)
	switch {
	case j.stage == stageRunning && j.holder != "":
		j.Bucket.runs(-1)
	case j.noting:
		j.Bucket.notes(-1)
	}
	if j.stage != stageAcking {
		s.out.Vanished++
	}
	s.remove(j)
}

func (s *stock) remove(j *heldJob) {
	b := j.Bucket
	s.texts.unweigh(j)
	j.enter(stageGone)
	delete(b.Part.jobs, j.Seq)
	delete(b.Part.legacy.CrashedBy, j.Seq)
	b.Part.edits.Forget(j.Seq)
	b.held--
	if j.recorded {
		s.out.Forgets = append(s.out.Forgets, Forgotten{j.ref(), b.Part.legacy.Revisions[j.Seq]})
		delete(b.Part.legacy.Revisions, j.Seq)
	}
	if b.held == 0 {
		b.changed()
	}
}

func (s *stock) saved(j *heldJob, now pace.Instant) {
	if j.stage != stageSaving {
		return
	}
	if j.noting {
		j.noting, j.holder = false, ""
		j.Bucket.notes(-1)
	}
	switch {
	case j.crashes >= MostCrashes:
		s.out.buryCrashed(j)
	case j.backoff > 0:
		s.delay(j, now.Add(j.backoff))
	default:
		s.makeReady(j, now)
	}
}
