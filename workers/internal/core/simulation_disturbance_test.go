package core

import "time"

// unplanned is called when a process crashed, or lost its lease with its renewals: its jobs may run
// again, and its acknowledgements be lost. Outages and lost connections alone may not cause that.
func (w *world) unplanned(d *drainer) {
	d.lost = w.now
	w.forgets(d)
	for s := range w.stints() {
		if s.d == d {
			delete(w.active[s.fate.bucket], s)
			s.fate.excepted = true
		}
	}
	for _, f := range w.accepted {
		if f.final() && f.stream.messages[f.seq] != nil {
			f.forgiven = true
		}
	}
}

func (w *world) buried(id string) {
	if d := w.named(id); d != nil {
		w.unplanned(d)
		w.isDeclaredDead(d)
	}
}

func (w *world) disturbances(until time.Duration) {
	for at := w.between(time.Second, 6*time.Second); at <
		until; at += w.between(500*time.Millisecond, 8*time.Second) {
		w.after(at, w.disturb)
	}
}

func (w *world) targetsFail(until time.Duration) {
	if w.chance(0.5) {
		return
	}
	for at := w.between(0, 10*time.Second); at <
		until; at += w.between(time.Second, 20*time.Second) {
		w.after(at, func() {
			what := w.policies[w.rng.IntN(len(w.policies))].Name
			if w.chance(0.5) {
				what = bucketOf(what, someKey(w))
			}
			w.set.down[what] = w.now + w.between(100*time.Millisecond, 10*time.Second)
		})
	}
}

func (d *drainer) crash() {
	if d.alive {
		d.alive = false
		d.w.unplanned(d)
		d.w.dies(d)
	}
}

func (w *world) targetIsDown(f *fate) bool {
	return w.set.down[f.policy] > w.now || w.set.down[f.bucket] > w.now
}

func (w *world) disturb() {
	alive := w.alive()
	if len(alive) == 0 {
		w.join()
		return
	}
	d := alive[w.rng.IntN(len(alive))]
	switch w.rng.IntN(7) {
	case 0:
		if len(alive) < 5 {
			w.join()
		}
	case 1:
		w.crash(d, 0)
	case 2:
		d.frozen = max(d.frozen, w.now+w.between(100*time.Millisecond, 12*time.Second))
	case 3:
		d.receive(func() {
			d.leaving = true
			d.core.Handle(Stopped{}, d.clock())
		})
		w.after(w.between(0, 3*time.Second), w.join)
	case 4:
		d.disconnect(w.between(100*time.Millisecond, 8*time.Second))
	case 5:
		if w.chance(0.5) {
			w.outage(w.between(200*time.Millisecond, 6*time.Second))
		}
	case 6:
		w.killLender()
	}
}

func (d *drainer) disconnect(length time.Duration) {
	w := d.w
	d.cut = max(d.cut, w.now+length)
	w.to(d, 0, func() { d.core.Handle(Connected{}, d.clock()) })
	w.to(d, d.cut-w.now, func() {
		if d.cut <= w.now {
			d.core.Handle(Connected{Up: true}, d.clock())
		}
	})
}

// outage restarts the server, which loses consumers in memory.
func (w *world) outage(length time.Duration) {
	w.down = true
	w.outages++
	n := w.outages
	w.after(length, func() {
		if n != w.outages {
			return
		}
		w.down = false
		for _, s := range w.streams {
			for _, consumers := range s.consumers {
				for _, c := range consumers {
					c.closed = true
				}
			}
			clear(s.consumers)
		}
	})
	for _, d := range w.drainers {
		if d.alive {
			d.disconnect(length + w.between(0, 500*time.Millisecond))
		}
	}
}
