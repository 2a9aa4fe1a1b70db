package valve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// MostEdits bounds a partition's edited jobs, because each record of its owner has them all.
const MostEdits = 1000

type edits struct {
	jobs  map[uint64]record.Edit
	front int64  // of the last move
	noted uint32 // first checkpoint with all edits, and without the cool-downs that were ended
}

// of returns a job's edit, or none. One with another stamp belongs to a former stream.
func (e *edits) of(seq uint64, stored int64) record.Edit {
	if edit := e.jobs[seq]; edit.Job == stored {
		return edit
	}
	return record.Edit{}
}

func (e *edits) inherit(list []record.Edit) {
	e.jobs = map[uint64]record.Edit{}
	for _, edit := range list {
		e.jobs[edit.Seq] = edit
		e.front = max(e.front, edit.Front)
	}
}

func (e *edits) records() (list []record.Edit) {
	return slices.SortedFunc(maps.Values(e.jobs), func(a, b record.Edit) int {
		return cmp.Compare(a.Seq, b.Seq)
	})
}

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
	edit := p.edits.of(seq, stored)
	if edit.Seq == 0 && len(p.edits.jobs) >= MostEdits {
		return false, true
	}
	j = p.reach(seq)
	edit.Seq, edit.Job = seq, stored
	if want.Priority != nil {
		edit.Priority = want.Priority
	}
	if want.Deadline != nil {
		edit.Deadline = want.Deadline
	}
	if want.Front {
		p.edits.front++
		edit.Front = p.edits.front
	}
	if want.Run {
		edit.Run = j.ordinal()
	}
	if p.edits.jobs == nil {
		p.edits.jobs = map[uint64]record.Edit{}
	}
	p.edits.jobs[seq] = edit
	p.noteEdit()
	p.v.reorder(j, edit, want.Run, now)
	return true, false
}

func (v *Valve) reorder(j *heldJob, edit record.Edit, run bool, now pace.Instant) {
	delayed, until, before := j.stage == stageDelayed, j.At, j.Priority
	v.detach(j)
	apply(&j.Arrived, edit)
	j.Front = edit.Front
	if j.Priority != before {
		j.Bucket.queue.Rejoin(&j.Job)
	}
	v.date(j, now)
	if !delayed || run {
		v.makeReady(j, now)
	} else {
		if !j.recorded {
			until = v.wall.instant(j.NotBefore, now)
		}
		v.delay(j, until)
	}
}

// noteEdit requests a checkpoint.
func (p *Part) noteEdit() {
	p.edits.noted = p.unnoted.noted.Begun + 1
	p.Changed = true
}

// resume ends a bucket's cool-down, without a burst, and what was learnt from it: an operator knows
// that the target accepts requests. Answers to requests under way may begin another.
func (v *Valve) resume(b *bucket, now pace.Instant) (ended bool) {
	if b.Cool <= now {
		return false
	}
	b.Cool, b.Throttles = now, 0
	if b.learnt != nil {
		b.learnt.State = b.learnt.RisingFrom(time.Duration(now))
	}
	b.Part.noteEdit()
	b.changed()
	return true
}

func (p *Part) EditWaits() bool { return p.unnoted.noted.Stored < p.edits.noted }
