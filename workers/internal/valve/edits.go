package valve

import (
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func apply(a *job.Arrived, edit record.Edit) {
	if edit.Priority != nil {
		a.Priority = *edit.Priority
	}
	if edit.Deadline != nil {
		a.Deadline = *edit.Deadline
	}
	if edit.Run > 0 {
		a.NotBefore = time.Time{}
	}
}

// edit changes a waiting job, which then is exempt from law 4. full: there are too many edits.
func (p *Part) edit(seq uint64, want job.Edit, now pace.Instant) (done, full bool) {
	j := p.seek(seq)
	if j == nil || j.stage != stageWaiting && j.stage != stageDelayed {
		return false, false
	}
	stored := j.Stored.UnixNano()
	if p.edits.Full(seq, stored) {
		return false, true
	}
	j = p.reach(seq)
	edit := p.edits.Add(seq, stored, want, j.ordinal())
	p.Checkpoints.Ask()
	p.v.stock.reorder(j, edit, want.Run, now)
	return true, false
}

func (s *stock) reorder(j *heldJob, edit record.Edit, run bool, now pace.Instant) {
	delayed, until, before := j.stage == stageDelayed, j.At, j.Priority
	s.detach(j)
	apply(&j.Arrived, edit)
	j.Front = edit.Front
	if j.Priority != before {
		j.Bucket.queue.Rejoin(&j.Job)
	}
	s.date(j, now)
	if !delayed || run {
		s.makeReady(j, now)
	} else {
		if !j.recorded {
			until = s.wall.instant(j.NotBefore, now)
		}
		s.delay(j, until)
	}
}

// resume ends a bucket's cool-down, without a burst, and what was learnt from it: an operator knows
// that the target accepts requests. Answers to requests under way may begin another.
func (b *bucket) resume(now pace.Instant) (ended bool) {
	if b.Cool <= now {
		return false
	}
	b.Cool, b.Throttles = now, 0
	if b.learnt != nil {
		b.learnt.State = b.learnt.RisingFrom(time.Duration(now))
	}
	b.Part.Checkpoints.Ask()
	b.changed()
	return true
}
