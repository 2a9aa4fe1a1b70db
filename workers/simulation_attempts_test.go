package workers

// Attempt records in the simulation: compare-and-set, and read back on a conflict, as attempts.go has it.

// save writes an attempt record until it stands, or another does that is not to be replaced.
func (d *drainer) save(s *save) {
	w, key, expected, conflict := d.w, attemptKey(s.bucket.part, s.Seq), s.revision, false
	d.call(attemptsName, func() {
		stands := w.attempts[key]
		if conflict = stands.revision != expected && (expected != 0 || stands.V != 0); !conflict {
			w.revision++
			s.revision = w.revision
			w.attempts[key] = storedAttempt{s.record, w.stamp(attemptsName), w.revision}
			w.noteAttempt(d, *s)
		}
	}, s.bucket.part, func(v *valve) {
		if !conflict {
			d.saved(v, s)
			return
		}
		var found record
		d.call(attemptsName, func() {
			a := w.attempts[key]
			found = record{exists: a.V != 0, value: encode(a.attemptRecord), revision: a.revision}
		}, s.bucket.part, func(v *valve) {
			if s.met(found) {
				d.saved(v, s)
			} else {
				d.save(s)
			}
		})
	})
}

// saved tells a valve that an attempt record is stored.
func (d *drainer) saved(v *valve, s *save) {
	v.stored(s, d.clock())
	if d.w.sabotage == savedForgotten && s.bucket.part.state == partitionLive {
		v.unplace(s.bucket)
	}
}

// deleteAttempt leaves the marker of a deletion.
func (w *world) deleteAttempt(f forgotten) {
	key := attemptKey(f.part, f.seq)
	if f.revision == 0 || w.attempts[key].revision == f.revision {
		w.revision++
		w.attempts[key] = storedAttempt{revision: w.revision}
	}
}
