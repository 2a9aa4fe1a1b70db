package core

import (
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

func (d *drainer) save(s *valve.Save) {
	w, key, expected, conflict := d.w, s.AttemptKey(), s.Revision, false
	if w.sabotage == crashesForgotten {
		s.Record.Crashes = 0
	}
	d.call(attemptsName, func() {
		stands := w.attempts[key]
		if conflict = stands.Revision != expected && (expected != 0 || stands.V != 0); !conflict {
			w.revision++
			s.Revision = w.revision
			w.attempts[key] = StoredAttempt{Attempt: s.Record, Stored: w.stamp(attemptsName),
				Revision: w.revision}
			w.noteAttempt(d, *s)
		}
	}, s.Part, func() {
		if !conflict {
			d.saved(s)
			return
		}
		var found []byte
		var revision uint64
		d.call(attemptsName, func() {
			a := w.attempts[key]
			if found, revision = nil, a.Revision; a.V != 0 {
				found = record.Encode(a.Attempt)
			}
		}, s.Part, func() {
			if s.Met(found, revision) {
				d.saved(s)
			} else {
				d.save(s)
			}
		})
	})
}

func (d *drainer) saved(s *valve.Save) {
	if d.w.sabotage != savedForgotten || s.Record.Crashes == 0 {
		d.core.Handle(Saved{*s}, d.clock())
	}
}

func (w *world) deleteAttempt(f valve.Forgotten) {
	key := f.AttemptKey()
	if f.Revision == 0 || w.attempts[key].Revision == f.Revision {
		w.revision++
		w.attempts[key] = StoredAttempt{Revision: w.revision}
	}
}
