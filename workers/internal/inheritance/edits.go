package inheritance

import (
	"cmp"
	"maps"
	"slices"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// MostEdits bounds a partition's edited jobs, because each record of its owner has them all.
const MostEdits = 1000

// Edits are operators' changes of stored jobs, by job, which owners hand on until the jobs end.
type Edits struct {
	jobs  map[uint64]record.Edit
	front int64 // of the last move
}

// Of returns a job's edit, or none. One with another stamp belongs to a former stream.
func (e *Edits) Of(seq uint64, stored int64) record.Edit {
	if edit := e.jobs[seq]; edit.Job == stored {
		return edit
	}
	return record.Edit{}
}

// Full reports whether a job without an edit can get none.
func (e *Edits) Full(seq uint64, stored int64) bool {
	return len(e.jobs) >= MostEdits && e.Of(seq, stored).Seq == 0
}

// Add adds to a job's edit. run is the number of its next run.
func (e *Edits) Add(seq uint64, stored int64, want job.Edit, run int) record.Edit {
	edit := e.Of(seq, stored)
	edit.Seq, edit.Job = seq, stored
	edit.Priority = cmp.Or(want.Priority, edit.Priority)
	edit.Deadline = cmp.Or(want.Deadline, edit.Deadline)
	if want.Front {
		e.front++
		edit.Front = e.front
	}
	if want.Run {
		edit.Run = run
	}
	if e.jobs == nil {
		e.jobs = map[uint64]record.Edit{}
	}
	e.jobs[seq] = edit
	return edit
}

func (e *Edits) Forget(seq uint64) { delete(e.jobs, seq) }

// Swept forgets the edits of jobs up to a sequence that are not held.
func (e *Edits) Swept(through uint64, held func(seq uint64) bool) {
	maps.DeleteFunc(e.jobs, func(seq uint64, _ record.Edit) bool {
		return seq <= through && !held(seq)
	})
}

func (e *Edits) Inherit(list []record.Edit) {
	e.jobs = map[uint64]record.Edit{}
	for _, edit := range list {
		e.jobs[edit.Seq] = edit
		e.front = max(e.front, edit.Front)
	}
}

func (e *Edits) Records() (list []record.Edit) {
	return slices.SortedFunc(maps.Values(e.jobs), func(a, b record.Edit) int {
		return cmp.Compare(a.Seq, b.Seq)
	})
}
