package core

import "github.com/penstock-mq/penstock/workers/internal/record"

// Attempt records in the simulation: compare-and-set, and read back on a conflict, as attempts.go
// has it.

// save writes an attempt record until it stands, or another does that is not to be replaced.
func (d *drainer) save(s *Save) {
	w, key, expected, conflict := d.w, s.AttemptKey(), s.Revision, false
	d.call(attemptsName, func() {
		stands := w.attempts[key]
		if conflict = stands.Revision != expected && (expected != 0 || stands.V != 0); !conflict {
			w.revision++
			s.Revision = w.revision
			w.attempts[key] = StoredAttempt{s.Record, w.stamp(attemptsName), w.revision}
			w.noteAttempt(d, *s)
		}
	}, s.Part, func() {
		if !conflict {
			d.saved(s)
			return
		}
		var found Record
		d.call(attemptsName, func() {
			a := w.attempts[key]
			found = Record{Exists: a.V != 0, Value: record.Encode(a.Attempt), Revision: a.Revision}
		}, s.Part, func() {
			if s.Met(found) {
				d.saved(s)
			} else {
				d.save(s)
			}
		})
	})
}

// saved tells the core that an attempt record is stored.
func (d *drainer) saved(s *Save) {
	d.core.Handle(Saved{*s}, d.clock())
	if v, j := d.core.held(s.Ref); j != nil && d.w.sabotage == savedForgotten &&
		j.Bucket.Part.state == partitionLive {
		v.unplace(j.Bucket)
	}
}

// deleteAttempt leaves the marker of a deletion.
func (w *world) deleteAttempt(f Forgotten) {
	key := f.AttemptKey()
	if f.Revision == 0 || w.attempts[key].Revision == f.Revision {
		w.revision++
		w.attempts[key] = StoredAttempt{Revision: w.revision}
	}
}
