package valve

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// MostEdits is how many jobs of a partition may differ from what is stored of them. More are
// refused until some of these have ended, for every record that an owner leaves lists them.
const MostEdits = 1000

// edits are how jobs of a partition differ from what is stored of them, because an operator wanted
// that. A stored job cannot change, so its owner knows it, and tells the next one.
type edits struct {
	jobs  map[uint64]record.Edit
	front int64 // of the job that was moved last
	// how many were ever made; how many of them the checkpoint tells that is being written; and how
	// many one that is stored
	made, telling, told uint64
}

// of returns how a job is to differ. A stamp that is another's is of a stream that was restored.
func (e *edits) of(seq uint64, stored int64) (record.Edit, bool) {
	if edit, known := e.jobs[seq]; known && edit.Job == stored {
		return edit, true
	}
	return record.Edit{}, false
}

// inherit takes what the predecessor told.
func (e *edits) inherit(list []record.Edit) {
	e.jobs = map[uint64]record.Edit{}
	for _, edit := range list {
		e.jobs[edit.Seq] = edit
		e.front = max(e.front, edit.Front)
	}
}

// records lists them in the order of their jobs.
func (e *edits) records() (list []record.Edit) {
	for _, edit := range e.jobs {
		list = append(list, edit)
	}
	slices.SortFunc(list, func(a, b record.Edit) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// edited returns a job as its edit, if it has one, wants it.
func (p *Part) edited(a *job.Arrived) (*job.Arrived, record.Edit) {
	edit, known := p.edits.of(a.Seq, a.Stored.UnixNano())
	if !known {
		return a, edit
	}
	changed := *a
	apply(&changed, edit)
	return &changed, edit
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

// edit changes a job that does not run, and reports whether it did. Full says that there are too
// many edits. The job keeps to its bucket's rate; law 4 does not hold for it any more.
func (v *Valve) edit(p *Part, seq uint64, want job.Edit, now pace.Instant,
	wall time.Time) (done, full bool) {

	j := v.seek(p, seq)
	if j == nil || j.stage != stageWaiting && j.stage != stageDelayed {
		return false, false
	}
	stored := j.Stored.UnixNano()
	edit, known := p.edits.of(seq, stored)
	if !known && len(p.edits.jobs) >= MostEdits {
		return false, true
	}
	if p.jobs[seq] == nil {
		j = v.raise(p, seq)
	}
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
		edit.Run = j.Attempts + 1
	}
	if p.edits.jobs == nil {
		p.edits.jobs = map[uint64]record.Edit{}
	}
	p.edits.jobs[seq] = edit
	p.edits.made++
	p.Changed = true
	v.reorder(j, edit, want.Run, now, wall)
	return true, false
}

// reorder puts a job where its edit has it.
func (v *Valve) reorder(j *heldJob, edit record.Edit, run bool, now pace.Instant,
	wall time.Time) {

	delayed, until, before := j.stage == stageDelayed, j.at, j.Priority
	v.detach(j)
	apply(&j.Arrived, edit)
	j.front = edit.Front
	if j.Priority != before {
		j.Bucket.join(j)
	}
	v.date(j, now, wall)
	if !delayed || run {
		v.makeReady(j, now)
	} else {
		if !j.recorded { // its deadline may have been before it was due
			until = now.Later(j.NotBefore.Sub(wall))
		}
		v.delay(j, until)
	}
	v.place(j.Bucket, now)
}

// EditWaits reports whether somebody waits for a checkpoint that tells of an edit.
func (p *Part) EditWaits() bool { return p.edits.told < p.edits.made }
