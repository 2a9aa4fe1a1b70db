package core

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// A confirmed change holds for every later owner; an unconfirmed one may or may not.

type edited struct {
	job.Edit
	answered bool
}

func (w *world) editSome(name string) {
	stored := slices.Sorted(maps.Keys(w.streams[name].messages))
	if len(stored) == 0 {
		return
	}
	seq := stored[w.rng.IntN(len(stored))]
	want := job.Edit{Run: w.chance(0.4), Front: w.chance(0.4)}
	if w.chance(0.4) {
		priority := w.rng.IntN(5) - 2
		want.Priority = &priority
	}
	if w.chance(0.2) {
		end := w.wall().Add(w.between(0, 10*time.Second))
		want.Deadline = &end
	}
	w.asks(name, w.streams[name].messages[seq].Partition, func(d *drainer, p *partition) {
		held := d.ask(p, job.Question{Op: job.OpJob, Jobs: []uint64{seq}}).Job
		if held == nil {
			return
		}
		f := w.accepted[identity{name, seq, held.AcceptedAt.UnixNano()}]
		if f.edit != nil {
			return
		}
		f.edit, f.excepted = &edited{Edit: want}, true
		if want.Run {
			f.rests = 0
		}
		if c := w.contests[p]; c != nil {
			delete(c.keys[f.key].waiting, seq)
		}
		d.core.Handle(Asked{p.Partition, job.Question{Op: job.OpEdit, Jobs: []uint64{seq},
			Edit: &want}, func(a job.Answer) { f.edit.answered = a.Edited }}, d.clock())
	})
}

func (w *world) keepsEdit(s *stint) {
	e := s.fate.edit
	if e == nil || !e.answered {
		return
	}
	state := s.d.ask(s.part, job.Question{Op: job.OpJob, Jobs: []uint64{s.Seq}}).Job
	if known := state.Edit; known == nil || known.Run != e.Run || known.Front != e.Front ||
		e.Priority != nil && *known.Priority != *e.Priority {
		w.fail("edits: %s was changed, of which its owner knows %+v",
			job.ID(s.fate.policy, s.Seq), known)
	}
}

func (f *fate) deadlines() []time.Time {
	switch e := f.edit; {
	case e == nil || e.Deadline == nil:
		return []time.Time{f.message.Deadline}
	case e.answered:
		return []time.Time{*e.Deadline}
	default:
		return []time.Time{f.message.Deadline, *e.Deadline}
	}
}

// ended reports whether a job's deadline may have passed, and whether it must have.
func (f *fate) ended(wall time.Time) (perhaps, surely bool) {
	surely = true
	for _, end := range f.deadlines() {
		perhaps = perhaps || !end.IsZero() && !wall.Before(end.Add(-wallOff))
		surely = surely && !end.IsZero() && wall.After(end.Add(wallOff))
	}
	return perhaps, surely
}

// mayHaveEnded reports whether the job may have expired, unknown to later owners.
func (f *fate) mayHaveEnded() bool {
	return f.edit != nil && !f.edit.answered && f.edit.Deadline != nil
}

func forgetEdits(found *Opened, before *record.Owner) {
	found.Checkpoint.Edits, before.Edits = nil, nil
}
